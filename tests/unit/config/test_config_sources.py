"""Where values come from, which one wins, and what is said about mistakes."""

import json
from pathlib import Path

import pytest
from config_texts import ACCEPTED, FILE, NODES, VALID, drawn, given, pair
from hypothesis import strategies as st

from glm53ctl.config import sources
from glm53ctl.config.catalog import ENV_NAMES, LEAVES
from glm53ctl.config.profiles import PROFILES
from glm53ctl.config.sources import ConfigError, Layer, clear_override, load, write_override


@pytest.fixture(autouse=True)
def no_file_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sources, "DEFAULT_FILE", tmp_path / "absent" / "config.yaml")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


def mistakes(path: Path | None = None, *overrides: str, **environ: str) -> dict[str, list[str]]:
    with pytest.raises(ConfigError) as caught:
        load(path, overrides=overrides, environ=environ)
    found: dict[str, list[str]] = {}
    for finding in caught.value.findings:
        found.setdefault(finding.code, []).append(finding.sentence())
    return found


# --- precedence ----------------------------------------------------------------------------------

RANKED = (Layer.COMMAND_LINE, Layer.OVERRIDE, Layer.ENVIRONMENT, Layer.FILE, Layer.PROFILE)


@drawn(layers=st.sets(st.sampled_from(RANKED)))
def test_the_highest_layer_that_says_a_setting_decides(
    tmp_path_factory: pytest.TempPathFactory, layers: set[Layer]
) -> None:
    run = tmp_path_factory.mktemp("run")
    text = FILE.replace("vllm-recipe", "demo" if Layer.PROFILE in layers else "vllm-recipe")
    values = {Layer.COMMAND_LINE: 5, Layer.OVERRIDE: 6, Layer.ENVIRONMENT: 7, Layer.FILE: 8}
    environ = {"GLM53_PATHS__RUN_DIR": str(run)}
    overrides = [f"canary.max_tokens={5}"] if Layer.COMMAND_LINE in layers else []
    if Layer.OVERRIDE in layers:
        (run / "override.yaml").write_text("canary: {max_tokens: 6}\n")
    if Layer.ENVIRONMENT in layers:
        environ["GLM53_CANARY__MAX_TOKENS"] = "7"
    if Layer.FILE in layers:
        text += "canary: {max_tokens: 8}\n"
    loaded = load(written(run, text), overrides=overrides, environ=environ, rules=False)
    said = [layer for layer in RANKED if layer in layers and layer in values]
    expected = values[said[0]] if said else 64
    assert loaded.config.canary.max_tokens == expected
    assert loaded.origins["canary.max_tokens"].layer is (said[0] if said else Layer.DEFAULT)
    assert loaded.origins["serve.max_num_batched_tokens"].layer is Layer.PROFILE


def test_origins_say_the_exact_place(tmp_path: Path) -> None:
    path = written(tmp_path, FILE + "serve:\n\n  # a comment\n  max_num_seqs: 2\n")
    loaded = given("api.port=8000", path=path, environ={"GLM53_DENSE": "fp8"})
    said = {key: str(origin) for key, origin in loaded.origins.items()}
    assert said["serve.max_num_seqs"] == f"{path}:10"
    assert said["nodes"] == f"{path}:2"
    assert said["api.port"] == "--set"
    assert said["dense"] == "GLM53_DENSE"
    assert said["kv.dtype"] == "profile vllm-recipe"
    assert said["api.host"] == "default"
    assert said.keys() == LEAVES.keys()


def test_a_file_may_choose_the_profile_and_the_line_another(tmp_path: Path) -> None:
    path = written(tmp_path, FILE.replace("vllm-recipe", "long"))
    assert given(path=path).config.serve.max_model_len == 1_048_576
    assert given("profile=vllm-recipe", path=path).config.serve.max_model_len == 900_000


def test_the_default_file_is_read_when_it_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "DEFAULT_FILE", written(tmp_path, FILE + "dense: q4\n"))
    assert given().config.dense == "q4"


def test_every_setting_has_its_own_variable() -> None:
    assert len(ENV_NAMES) == len(LEAVES)
    assert ENV_NAMES["GLM53_SERVE__MAX_MODEL_LEN"] == "serve.max_model_len"
    assert ENV_NAMES["GLM53_SUPERVISE__LIMITS__NCCL"] == "supervise.limits.nccl"


def test_one_word_values_are_yaml() -> None:
    loaded = given(
        *VALID,
        "engine.enforce_eager=true",
        "engine.extra_args=[--seed, 3]",
        "engine.extra_env={NCCL_IB_TC: 106}",
        "api.key_file=null",
        "kv.bytes=",
        "canary.prompt=Reply: OK",
        "weights.revision=0123456789012345678901234567890123456789",
    ).config
    assert loaded.engine.enforce_eager is True
    assert loaded.engine.extra_args == ("--seed", "3")
    assert loaded.engine.extra_env == {"NCCL_IB_TC": "106"}
    assert loaded.api.key_file is None
    assert loaded.kv.bytes is None
    assert loaded.canary.prompt == "Reply: OK"
    assert loaded.weights.revision == "0123456789" * 4


@pytest.mark.parametrize("rails", ["auto", 1, 2])
def test_a_choice_of_a_word_and_numbers_takes_both(tmp_path: Path, rails: object) -> None:
    file = written(tmp_path, f"{FILE}\nfabric: {{rails: {rails}}}\n")
    assert load(file, environ={}).config.fabric.rails == rails
    assert given(*VALID, f"fabric.rails={rails}").config.fabric.rails == rails


def test_text_in_a_file_needs_no_quotes(tmp_path: Path) -> None:
    text = FILE.replace("10.0.9.1}", "10.0.9.1, cpus: 0}") + "canary: {expect: yes}\n"
    config = given(path=written(tmp_path, text)).config
    assert config.head.cpus == "0"
    assert config.canary.expect == "yes"


@pytest.mark.parametrize("profile", list(PROFILES))
def test_every_profile_loads(profile: str) -> None:
    loaded = given(*VALID, f"profile={profile}")
    assert loaded.config.profile == profile
    assert all(finding.severity == "warn" for finding in loaded.findings)


def test_the_demo_needs_nothing_but_its_name() -> None:
    config = given("profile=demo").config
    assert config.world_size == 2
    assert config.serve.max_model_len == 2048
    assert config.spec_tokens == 0


def test_another_drafter_than_the_profiles_has_its_own_number_of_tokens() -> None:
    assert given(*VALID).config.spec_tokens == 7
    assert given(*VALID, "spec.method=mtp").config.spec_tokens == 2


# --- mistakes ------------------------------------------------------------------------------------


def test_all_mistakes_come_at_once_with_their_lines(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "nodes:\n  - {name: spark-head, adress: 10.0.9.1}\n"
        "serve:\n  max_num_seqs: 999\n  max_model_len: long\nmax_model_len: 5\n"
        "serve:\n  max_num_seqs: 1\n",
    )
    found = mistakes(path, "api.port=x", GLM53_KV__DTYP="fp8")
    lines = "\n".join(line for group in found.values() for line in group)
    for part in (
        f"{path}:2 nodes.0.adress: There is no setting nodes.0.adress. Did you mean address?",
        f"{path}:2 nodes.0.address: nodes.0.address is missing",
        f"{path}:4 serve.max_num_seqs: serve.max_num_seqs is 999; it must be a whole number "
        "from 1 to 256.",
        f'{path}:5 serve.max_model_len: serve.max_model_len is "long"',
        f"{path}:6 max_model_len: There is no setting max_model_len. "
        "Did you mean serve.max_model_len?",
        f"{path}:7 serve: serve already stands on line 3",
        "--set api.port",
        "environment GLM53_KV__DTYP: No setting has this name. Did you mean GLM53_KV__DTYPE?",
    ):
        assert part in lines.replace("CFG_MISSING: ", "").replace("CFG_RANGE: ", "")
    assert "pydantic" not in lines
    assert "Input should" not in lines


@pytest.mark.parametrize(
    ("word", "code", "part"),
    [
        ("serve.max_model_len=true", "CFG_TYPE", "a whole number from 1 to 1048576"),
        ("serve.max_model_len='4096'", "CFG_TYPE", "a whole number"),
        ("serve.max_model_len=1.5", "CFG_TYPE", "a whole number"),
        ("engine.enforce_eager=1", "CFG_TYPE", "true or false"),
        ("kv.dtype=int4", "CFG_RANGE", "one of auto, fp8, bfloat16, nvfp4"),
        ("kv.gpu_memory_utilization=.inf", "CFG_TYPE", "a number"),
        ("kv.gpu_memory_utilization=0", "CFG_RANGE", "more than 0 and at most 0.95"),
        ("ablit.layers=all", "CFG_RANGE", "like 15-45"),
        ("media.url_domains=example.org", "CFG_TYPE", "a list (text)"),
        ("warmup.together=2", "CFG_TYPE", "a list (a whole number from 1 to 256)"),
        ("licenses.accept=[MIT]", "CFG_RANGE", "ShapleyMCG-1.0"),
        ("serve=3", "CFG_TYPE", "serve is a section"),
        ("serve.max_model_len", "CFG_SYNTAX", "needs a value"),
        ("media.images=[", "CFG_SYNTAX", "not valid YAML"),
        ("profile=dmeo", "CFG_PROFILE", "vllm-recipe, long, demo"),
        ("nodes.0.cpus=1", "CFG_UNKNOWN_KEY", "nodes is set as a whole"),
        ("serve.modelname=x", "CFG_UNKNOWN_KEY", "Did you mean serve.model_name?"),
        ("MAX_NUM_SEQS=2", "CFG_UNKNOWN_KEY", "Did you mean serve.max_num_seqs?"),
        ("maxModelLen=2", "CFG_UNKNOWN_KEY", "Did you mean serve.max_model_len?"),
        ("api.key=x", "CFG_UNKNOWN_KEY", "Did you mean api.key_file?"),
        ("zzz=1", "CFG_UNKNOWN_KEY", "Remove it."),
    ],
)
def test_a_mistake_is_one_clear_sentence(word: str, code: str, part: str) -> None:
    found = mistakes(None, NODES, ACCEPTED, word)
    assert list(found) == [code]
    (sentence,) = found[code]
    assert part in sentence


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("serve: {max_num_seqs: 2\n", "CFG_SYNTAX", ":2"),
        ("a: &x 1\nb: *x\n", "CFG_SYNTAX", "aliases are not supported"),
        ("dense: !!python/name:os.system x\n", "CFG_SYNTAX", "tags are not supported"),
        ("[" * 4000, "CFG_SYNTAX", "nested too deeply"),
        ("- 1\n", "CFG_TYPE", "`key: value` lines"),
        ("dense: \x00\n", "CFG_SYNTAX", "not allowed"),
        ("kv: {bytes: " + "9" * 5000 + "}\n", "CFG_TYPE", "kv.bytes"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(
    tmp_path: Path, text: str, code: str, part: str
) -> None:
    found = mistakes(written(tmp_path, text), NODES, ACCEPTED)
    assert part in found[code][0]


def test_a_file_that_cannot_be_read_is_said_alone(tmp_path: Path) -> None:
    found = mistakes(tmp_path / "none.yaml")
    assert list(found) == ["CFG_FILE"]
    (tmp_path / "config.yaml").write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in mistakes(tmp_path / "config.yaml")["CFG_FILE"][0]


def test_without_any_source_the_nodes_are_missing() -> None:
    assert "head first" in mistakes()["CFG_MISSING"][0]


@drawn(text=st.text(max_size=80) | st.binary(max_size=40).map(lambda b: b.decode("latin-1")))
def test_no_text_leads_to_a_traceback(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "config.yaml"
    path.write_text(text, encoding="utf-8", errors="replace")
    with pytest.raises(ConfigError):
        load(path, environ={"GLM53_SERVE__MODEL_NAME": text.replace("\0", "")})


def test_another_programs_variable_only_draws_a_warning() -> None:
    loaded = given(*VALID, environ={"GLM53_MAX_MODEL_LEN": "5"})
    (finding,) = [f for f in loaded.findings if f.code == "CFG_UNKNOWN_KEY"]
    assert finding.severity == "warn"
    assert "GLM53_SERVE__MAX_MODEL_LEN" in finding.fix


def test_secrets_are_never_echoed(tmp_path: Path) -> None:
    secret = "sk-abcdefgh"
    path = written(
        tmp_path,
        f"api: {{key: {secret}, key_file: [{secret}]}}\nweights: {{token_file: {{a: {secret}}}}}\n"
        f"engine: {{extra_env: [{secret}], extra_args: {{--api-key: {secret}}}}}\n"
        f"serve: {{max_num_seqs: {secret}}}\n",
    )
    found = mistakes(path, f"api.port={secret}", secret)
    assert secret not in json.dumps(found)
    assert len(found["CFG_TYPE"]) == 6


def test_a_rule_speaks_at_the_place_that_said_the_value(tmp_path: Path) -> None:
    path = written(tmp_path, FILE + "serve:\n  max_num_batched_tokens: 8192\n")
    found = mistakes(path, GLM53_KV__DTYPE="nvfp4")["CFG_FORBIDDEN"]
    assert found[0].startswith("CFG_FORBIDDEN: environment GLM53_KV__DTYPE: kv.dtype is nvfp4")
    assert f"{path}:8 serve.max_num_batched_tokens" in found[1]
    assert load(path, environ={}, rules=False).config.serve.max_num_batched_tokens == 8192


def test_a_credential_is_a_key(tmp_path: Path) -> None:
    words = (*VALID, "api.host=0.0.0.0")
    assert "API_NO_KEY" in mistakes(None, *words)
    (tmp_path / "api-key").touch()
    given(*words, environ={"CREDENTIALS_DIRECTORY": str(tmp_path)})


def test_a_worker_is_not_asked_for_the_key_of_the_head(tmp_path: Path) -> None:
    """Only the head listens, and only there its credential is."""
    path = written(tmp_path, FILE + f"api: {{host: 0.0.0.0}}\npaths: {{run_dir: {tmp_path}}}\n")
    elsewhere = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    config = load(path, environ=elsewhere, rank=1).config
    write_override(config, ["serve.max_num_seqs=2"], rank=1)
    for rank in (0, None):
        with pytest.raises(ConfigError, match="API_NO_KEY"):
            load(path, environ=elsewhere, rank=rank)


# --- one run -------------------------------------------------------------------------------------


def test_an_override_lasts_until_it_is_cleared(tmp_path: Path) -> None:
    base = (*VALID, f"paths.run_dir={tmp_path}")
    config = given(*base).config
    write_override(config, ["spec.method=mtp", "serve.max_num_seqs=2"])
    loaded = given(*base)
    assert (loaded.config.spec.method, loaded.config.serve.max_num_seqs) == ("mtp", 2)
    assert str(loaded.origins["spec.method"]).startswith(str(tmp_path / "override.yaml"))
    clear_override(config)
    assert given(*base).config == config


def test_who_may_not_read_the_settings_of_one_run_can_do_without(tmp_path: Path) -> None:
    words = (*VALID, f"paths.run_dir={tmp_path}")
    (tmp_path / "override.yaml").mkdir()  # cannot be read, not even by root
    with pytest.raises(ConfigError):
        load(overrides=words)
    assert load(overrides=words, with_run=False).config.paths.run_dir == str(tmp_path)


@pytest.mark.parametrize(
    "word", ["serve.max_num_seqs=0", "kv.dtype=nvfp4", "no.such=1", "paths.run_dir=/x"]
)
def test_a_wrong_override_is_refused_before_anything_is_written(tmp_path: Path, word: str) -> None:
    config = pair(f"paths.run_dir={tmp_path}")
    with pytest.raises(ConfigError):
        write_override(config, [word])
    assert list(tmp_path.iterdir()) == []


def test_an_override_file_cannot_move_itself(tmp_path: Path) -> None:
    (tmp_path / "override.yaml").write_text("paths: {run_dir: /elsewhere}\n")
    found = mistakes(None, *VALID, f"paths.run_dir={tmp_path}")
    assert "cannot set it" in found["CFG_FORBIDDEN"][0]
