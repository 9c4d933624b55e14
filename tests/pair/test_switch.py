"""Another profile on two hosts with the real engine: made and kept, or back by itself.

`demo` with other settings stands for the profiles, which this machine cannot serve: the way is the
same.
"""

import json
from collections.abc import Callable

import pytest
from waiting import wait_for

from .side import START_SECONDS

pytestmark = pytest.mark.engine

SWITCH_SECONDS = 3 * START_SECONDS
BENCH = "decode --kind structured --streams 1 --runs 1 --max-tokens 16 --no-coherence"


@pytest.fixture(scope="module")
def pair(pair):
    """The installed pair, booted."""
    pair.bed.reboot(*pair.hosts)
    return pair


def switch(pair, rank: int, *words: str) -> tuple[int, str]:
    """Run `glm53ctl switch` on a host; return its exit status and all it said."""
    command = ("glm53ctl", "switch", *words, "--deadline", str(START_SECONDS))
    done = pair.hosts[rank].exec(*command, check=False, timeout=SWITCH_SECONDS)
    return done.returncode, done.stdout + done.stderr


def sequences(pair) -> list[str]:
    """The setting that tells the profiles apart, as it is used on each host."""
    found = []
    for host in pair.hosts:
        shown = json.loads(host.output("glm53ctl", "config", "show", "--json"))
        found.append(str(shown["serve"]["max_num_seqs"]))
    return found


def until_said(pair, rank: int, told: Callable[[str], bool]) -> None:
    """Wait for what a rank tells systemd: it does so a moment after it is ready."""
    wait_for(lambda: told(pair.unit(rank, "StatusText")), "the words of the unit", 60)


def test_a_switch_is_made_and_outlives_a_reboot(pair):
    before = pair.until_ready()
    code, said = switch(pair, 0, "demo", "--set", "serve.max_num_seqs=2")
    assert code == 0, said + pair.evidence()
    after = pair.until_ready(before.epoch)
    assert after.epoch == before.epoch + 1
    assert pair.ask() == pair.config.canary.expect
    assert sequences(pair) == ["2", "2"]
    for rank in (0, 1):
        until_said(pair, rank, lambda text: "switched to demo, serve.max_num_seqs=2" in text)
    shown = pair.hosts[1].output("glm53ctl", "config", "show", "--explain")
    (line,) = [line for line in shown.splitlines() if line.startswith("serve.max_num_seqs:")]
    assert line.endswith("# /var/lib/glm53/switched.json")

    pair.bed.reboot(*pair.hosts)
    pair.until_ready(after.epoch)
    assert sequences(pair) == ["2", "2"]


def test_what_cannot_start_is_taken_back_and_the_pair_serves_again(pair):
    """Ordered on the worker; the engine has no room for one request in that cache."""
    before = pair.until_ready()
    code, said = switch(pair, 1, "demo", "--set", "kv.bytes=65536")
    assert code == 1, said + pair.evidence()
    assert "rolled back: " in said
    assert "the pair serves as before" in said
    pair.until_ready(before.epoch)
    assert pair.ask() == pair.config.canary.expect
    assert sequences(pair) == ["2", "2"]


def test_what_answers_wrong_is_taken_back(pair):
    before = pair.until_ready()
    code, said = switch(pair, 0, "demo", "--set", "canary.expect=something else")
    assert code == 1, said + pair.evidence()
    assert "OUTPUT_DEGENERATE" in said
    pair.until_ready(before.epoch)


def test_a_bench_decides_whether_it_is_kept(pair):
    """A thousandth of the speed is reached on any day; a thousand times as fast is not."""
    before = pair.until_ready()
    said = pair.hosts[0].exec("glm53ctl", "bench", *BENCH.split(), check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    code, told = switch(
        pair, 0, "demo", "--set", "serve.max_num_seqs=3", "--bench", BENCH, "--min-ratio", "1000"
    )
    assert code == 1, told + pair.evidence()
    assert "rolled back: " in told
    assert "1000.00 are wanted" in " ".join(told.split())  # in lines as wide as a terminal
    after = pair.until_ready(before.epoch)
    assert sequences(pair) == ["2", "2"]

    code, told = switch(
        pair, 0, "demo", "--set", "serve.max_num_seqs=3", "--bench", BENCH, "--min-ratio", "0.001"
    )
    assert code == 0, told + pair.evidence()
    pair.until_ready(after.epoch)
    assert sequences(pair) == ["3", "3"]


def test_what_is_wrong_on_paper_is_refused_while_the_pair_serves(pair):
    before = pair.until_ready()
    code, said = switch(pair, 0, "demo", "--set", "serve.max_num_seqs=no", "--set", "nonsense=1")
    assert code == 2
    assert "serve.max_num_seqs" in said
    assert "nonsense" in said
    assert switch(pair, 0, "demmo")[0] == 2
    assert pair.until_ready().epoch == before.epoch


def test_the_way_back_is_the_profile_of_the_file(pair):
    before = pair.until_ready()
    code, said = switch(pair, 0, "demo")
    assert code == 0, said + pair.evidence()
    pair.until_ready(before.epoch)
    assert sequences(pair) == ["4", "4"]
    until_said(pair, 0, lambda text: text.startswith("ready") and "switched" not in text)
