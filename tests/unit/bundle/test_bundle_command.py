"""`glm53ctl support-bundle` on a state directory in which everything was planted."""

import tarfile

import pytest
import yaml

from glm53ctl import cli
from glm53ctl.bundle import collect
from glm53ctl.config.schema import Paths
from glm53ctl.supervise.ledger import Incident, append_incident

PLANTED = {
    "api key": "sk-live7Qm2xWcZ81kLpTTr",
    "pair token": "2f7c9a1e" * 8,
    "hf token": "hf_AbCdEfGhIjKlMnOpQrStUv1234",
    "plain key": "correcthorsebattery",
    "prompt": "my late aunt's recipe",
    "address": "192.168.77.31",
    "ipv6": "fe80::4ebb:47ff:fe2c:13d",
    "mac": "4c:bb:47:2c:01:3d",
    "user": "wolfgang",
    "host": "tower.fritz.box",
}
LOG = """\
INFO 11-30 00:45:31 [api.py:1] non-default args: {{'api_key': ['{plain key}'], 'port': 8888}}
INFO 11-30 00:45:31 [logger.py:1] Received request c1: prompt: '{prompt}
{prompt}', params: x
WARNING 11-30 00:45:31 [hub.py:1] GET https://{host}/x with {hf token} from {address}
ERROR 11-30 00:45:31 [ib.py:1] {ipv6} at {mac}; see /home/{user}/log
{prompt}
INFO 11-30 00:45:32 [end.py:1] the end
"""


@pytest.fixture
def config(tmp_path):
    state = tmp_path / "state"
    (state / "logs").mkdir(parents=True)
    (state / "logs/rank0-000001.log").write_text(LOG.format(**PLANTED))
    loss = Incident(
        code="RANK_LOST",
        message=f"rank 1 at {PLANTED['address']}: Bearer {PLANTED['plain key']}",
        rank=1,
        epoch=1,
        at=1.0,
        evidence=(PLANTED["prompt"],),
    )
    append_incident(state, loss)
    for name in ("pair token", "api key"):
        (tmp_path / name).write_text(PLANTED[name])
    settings = {
        "profile": "demo",
        "canary": {"prompt": PLANTED["prompt"]},
        "link": {"token_file": str(tmp_path / "pair token")},
        "api": {"key_file": str(tmp_path / "api key")},
        "paths": {"state_dir": str(state), "run_dir": str(tmp_path / "run")},
        "engine": {"extra_env": {"A": PLANTED["pair token"]}},
    }
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(settings))
    return file


def bundle(monkeypatch, *words) -> int:
    monkeypatch.setattr("sys.argv", ["glm53ctl", "support-bundle", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def members(target) -> dict[str, str]:
    with tarfile.open(target) as archive:
        return {m.name: archive.extractfile(m).read().decode() for m in archive.getmembers()}


@pytest.mark.parametrize(
    ("line", "code"), [("sevre: {max_num_seqs: 2}", "CFG_UNKNOWN_KEY"), ("a: [", "CFG_SYNTAX")]
)
def test_a_configuration_with_a_mistake_leaves_a_bundle(tmp_path, config, monkeypatch, line, code):
    """What was kept is in it, and nothing that was planted, whether YAML can be read or not."""
    monkeypatch.setattr(collect, "Paths", lambda: Paths(state_dir=str(tmp_path / "state")))
    nodes = "nodes:\n- {name: tower.fritz.box, address: 192.168.77.31}\n"
    config.write_text(f"{config.read_text()}{nodes}{line}\n")
    target = tmp_path / "b.tar.gz"
    assert bundle(monkeypatch, target, "--config", config) == 0
    texts = members(target)
    assert code in texts["glm53-support/config.txt"]
    log = texts["glm53-support/logs/rank0-000001.log"]
    assert log.rstrip().endswith("the end")
    assert "https://(node 0)/" in log
    assert "incidents.json" in "".join(texts)
    for name, text in texts.items():
        for what, secret in PLANTED.items():
            assert secret not in text, f"{what} in {name}"


def test_nothing_that_was_planted_is_in_a_bundle(tmp_path, config, monkeypatch):
    target = tmp_path / "b.tar.gz"
    target.touch(0o644)  # of an earlier one
    assert bundle(monkeypatch, target, "--config", config) == 0
    assert target.stat().st_mode & 0o077 == 0
    texts = members(target)
    with tarfile.open(target) as archive:
        owners = {(m.uname, m.uid, m.mtime) for m in archive.getmembers()}
    assert owners == {("", 0, 0)}
    for name, text in texts.items():
        for what, secret in PLANTED.items():
            assert secret not in text, f"{what} in {name}"
    log = texts["glm53-support/logs/rank0-000001.log"]
    assert log.rstrip().endswith("the end")
    assert "'port': 8888" in log
    assert "(ip " in log
    assert {"versions.json", "config.json", "facts.json", "status.json", "incidents.json"} <= {
        name.removeprefix("glm53-support/") for name in texts
    }


def test_a_place_that_refuses_is_2(tmp_path, config, monkeypatch, capsys):
    assert bundle(monkeypatch, tmp_path / "no/b.tar.gz", "--config", config) == 2
    assert capsys.readouterr().err.startswith("FILE_REFUSED")
