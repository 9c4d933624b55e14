"""A switch of the profile on trial, over real supervisors; only the engine is a stand-in."""

import asyncio
import contextlib
import io
from pathlib import Path

import pytest
import yaml
from pairs import pair_config, supervisor
from rich.console import Console
from test_supervisor import Pair
from waiting import wait_for

from glm53ctl.config.sources import Switched, current_override, load
from glm53ctl.config.switched import read_switched, write_switched
from glm53ctl.status.snapshot import assemble
from glm53ctl.status.text import render
from glm53ctl.supervise import trial as trials
from glm53ctl.supervise.ledger import read_incidents
from glm53ctl.supervise.orders import give_order, stop
from glm53ctl.supervise.report import Loss, Phase, RankReport, Trial, TrialState
from glm53ctl.supervise.wire import Command
from glm53ctl.switch.order import trial_of

TWO = Switched(instead_of="demo", settings=('profile="demo"', "serve.max_num_seqs=2"))


class SwitchedPair(Pair):
    """Two ranks that do not share their state, as on two hosts."""

    def switch(self, to: Switched = TWO, **changes) -> Trial:
        trial = Trial(to=to, **{"id": "t", "ready_seconds": 60.0} | changes)
        give_order(self.config, "restart", trial=trial)
        return trial

    def until(self, state: TrialState) -> Trial:
        def there():
            told = trial_of(self.snapshot())
            return told if told is not None and told.state is state else None

        return wait_for(there, state)

    def tries(self, name: str) -> bool:
        told = trial_of(self.snapshot())
        return told is not None and told.id == name

    def streams(self) -> list[str]:
        """The setting that tells the two apart, as each engine was given it."""
        found = []
        for rank in self.until_ready().ranks:
            # An engine that has just gone, or is not one yet, has no setting.
            with contextlib.suppress(OSError, ValueError):
                command = Path(f"/proc/{rank.engine.pid}/cmdline").read_text().split("\0")
                found.append(command[command.index("--max-num-seqs") + 1])
        return found

    def kept(self) -> Switched:
        return read_switched(self.root / "state")


@pytest.fixture
def pair(tmp_path):
    made = SwitchedPair(tmp_path)
    yield made
    assert made.stop() == 0, "processes were left behind"


def test_what_serves_is_kept_and_told(pair):
    pair.start()
    before = pair.until_ready()
    assert pair.streams() == ["4", "4"]
    pair.switch()
    pair.until(TrialState.KEPT)
    after = pair.until_ready(before.epoch)
    assert after.epoch == before.epoch + 1
    assert pair.streams() == ["2", "2"]
    assert "drained" in pair.logs(0)[0].read_text()
    assert after.ranks[0].status_line().endswith("switched to demo, serve.max_num_seqs=2")
    assert read_incidents(pair.root / "state")[-1].code == "SWITCH_KEPT"
    # A restart and a new supervisor read the same.
    pair.pair.ranks[0].kill()
    pair.until_ready(after.epoch)
    assert pair.streams() == ["2", "2"]
    # And back to what the file says: nothing is kept then.
    pair.switch(Switched(), id="u")
    wait_for(lambda: not (pair.root / "state/switched.json").exists(), "the switch to be over")
    wait_for(lambda: pair.streams() == ["4", "4"], "the old engines")


def test_what_crashes_is_taken_back_at_the_first_loss(pair):
    pair.start()
    before = pair.until_ready()
    # Both halves of a real engine need each other; the stand-in's head would serve alone.
    pair.behave(rank0={"hang_at": "graphs"}, rank1={"crash_at": "kv"})
    pair.switch()
    told = pair.until(TrialState.UNDONE)
    assert "exited by itself" in told.reason
    pair.behave()
    pair.until_ready(before.epoch)
    assert pair.streams() == ["4", "4"]
    last = [i for i in read_incidents(pair.root / "state") if i.code.startswith("SWITCH")]
    assert [i.code for i in last] == ["SWITCH_UNDONE"]
    assert told.reason in last[0].message


def test_what_is_not_ready_in_time_is_taken_back(pair):
    pair.start()
    before = pair.until_ready()
    pair.behave(rank0={"hang_at": "graphs"})
    pair.switch(ready_seconds=1.5)
    assert "not ready after" in pair.until(TrialState.UNDONE).reason
    pair.behave()
    pair.until_ready(before.epoch)
    assert pair.kept() == Switched()


def test_what_is_held_is_taken_back_and_resumed(pair):
    pair.start(supervise={**pair.settings["supervise"], "crash_limit": 1})
    before = pair.until_ready()
    pair.behave(rank0={"answer": "!!!"})
    pair.switch()
    pair.until(TrialState.UNDONE)
    pair.behave()
    pair.until_ready(before.epoch)
    assert pair.until_report(0).crashes == 0


def test_what_cannot_be_used_is_taken_back(pair, monkeypatch):
    """Judged where the order is given; but a node may see it otherwise, or weights be missing."""
    monkeypatch.setenv("PYTHONPATH", str(_patience_of_a_second(pair.root)))
    pair.start()
    before = pair.until_ready()
    missing = f"weights.model_dir={pair.root / 'missing'}"
    pair.switch(Switched(instead_of="demo", settings=('profile="demo"', missing)))
    told = pair.until(TrialState.UNDONE)
    assert "missing" in told.reason
    pair.until_ready(before.epoch)


def _patience_of_a_second(root: Path) -> Path:
    """A start-up hook of Python's that shortens the patience with a blocked node."""
    folder = root / "hook"
    folder.mkdir()
    text = "import glm53ctl.supervise.trial as t\nt.HINDERED_SECONDS = 1.0\n"
    (folder / "sitecustomize.py").write_text(text)
    return folder


def test_a_bench_that_has_no_good_word_means_back(pair):
    pair.start()
    before = pair.until_ready()
    trial = pair.switch(proof_seconds=60.0)
    pair.until(TrialState.PROVING)
    assert pair.streams() == ["2", "2"]
    give_order(pair.config, "undo", trial=trial, reason="decode reaches 0.50")
    assert pair.until(TrialState.UNDONE).reason == "decode reaches 0.50"
    again = pair.until_ready(before.epoch + 1)
    assert pair.streams() == ["4", "4"]

    pair.switch(proof_seconds=0.5, id="silent")
    wait_for(lambda: pair.tries("silent"), "the second trial")
    assert "no word of the bench" in pair.until(TrialState.UNDONE).reason
    third = pair.until_ready(again.epoch + 1)

    good = pair.switch(proof_seconds=60.0, id="good")
    wait_for(lambda: pair.tries("good"), "the third trial")
    pair.until(TrialState.PROVING)
    give_order(pair.config, "keep", trial=good)
    pair.until(TrialState.KEPT)
    assert pair.until_ready(third.epoch).epoch == third.epoch + 1


def test_settings_of_one_run_come_back_with_the_profile(pair):
    pair.start()
    first = pair.until_ready()
    give_order(pair.config, "restart", ("serve.max_num_seqs=3",))
    before = pair.until_ready(first.epoch)
    pair.behave(rank0={"crash_at": "kv"})
    pair.switch()
    pair.until(TrialState.UNDONE)
    pair.behave()
    pair.until_ready(before.epoch)
    assert pair.streams() == ["3", "3"]


def test_stopping_the_pair_takes_back_what_is_on_trial(pair):
    pair.start()
    pair.until_ready()
    pair.behave(rank0={"hang_at": "graphs"})
    pair.switch()
    pair.until(TrialState.TRYING)
    pair.over.set()
    stop(pair.config)
    assert pair.kept() == Switched()
    assert trials.Trials(pair.root / "state").last.state is TrialState.UNDONE


# --- the head dies -------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["boot", "load", "canary"])
def test_a_head_that_dies_while_the_new_one_starts_goes_back(pair, stage):
    pair.start()
    before = pair.until_ready()
    pair.behave(rank0={"hang_at": stage})
    pair.switch()
    wait_for(lambda: len(pair.logs(0)) > 1 and pair.phase(0) is Phase.STARTING, "the start")
    pair.pair.ranks[0].kill()
    assert "ended in the middle" in pair.until(TrialState.UNDONE).reason
    pair.behave()
    pair.until_ready(before.epoch)
    assert pair.streams() == ["4", "4"]


KILLED_AT = """
import os, signal, sys
import glm53ctl.supervise.trial as trial
import glm53ctl.config.switched as switched
import glm53ctl.supervise.rank as rank
def dies(before):
    def call(*words, **names):
        if os.path.exists({mark!r}) and "0" in sys.argv:
            os.unlink({mark!r})
            os.kill(os.getpid(), signal.SIGKILL)
        return before(*words, **names)
    return call
{place} = dies({place})
"""


@pytest.mark.parametrize(
    ("place", "ends"),
    [
        ("trial.Trials.begin", None),
        ("rank.write_switch", TrialState.UNDONE),
        ("rank.clear_override", TrialState.UNDONE),
        ("trial.Trials.settle", TrialState.UNDONE),
    ],
    ids=["before the record", "before the setting", "before the reload", "before it is kept"],
)
def test_a_head_that_dies_between_two_writes_goes_back(pair, monkeypatch, place, ends):
    mark, hook = pair.root / "mark", pair.root / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(KILLED_AT.format(mark=str(mark), place=place))
    monkeypatch.setenv("PYTHONPATH", str(hook))
    pair.start()
    before = pair.until_ready()
    mark.touch()
    pair.switch()
    wait_for(lambda: not mark.exists(), "the kill")
    if ends is not None:
        pair.until(ends)
    pair.until_ready(before.epoch)
    assert pair.streams() == ["4", "4"]
    assert pair.kept() == Switched()


def test_a_head_that_dies_while_it_goes_back_arrives_all_the_same(pair, monkeypatch):
    mark, hook = pair.root / "mark", pair.root / "hook"
    hook.mkdir()
    text = KILLED_AT.format(mark=str(mark), place="trial.append_incident")
    (hook / "sitecustomize.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(hook))
    pair.start()
    before = pair.until_ready()
    mark.touch()
    pair.behave(rank1={"crash_at": "kv"})
    pair.switch()
    wait_for(lambda: not mark.exists(), "the kill")
    pair.behave()
    pair.until(TrialState.UNDONE)
    pair.until_ready(before.epoch)
    assert pair.streams() == ["4", "4"]


def test_a_worker_that_was_away_takes_the_switch_over_from_the_head(pair):
    pair.start()
    first = pair.until_ready()
    away = pair.root / "away.yaml"
    places = {"state_dir": str(pair.root / "state-away"), "run_dir": str(pair.root / "run-away")}
    away.write_text(yaml.safe_dump({**pair.settings, "paths": places}))
    write_switched(pair.root / "state-away", Switched(instead_of="demo", settings=("dense=fp8",)))
    pair.switch()
    pair.until(TrialState.KEPT)
    before = pair.until_ready(first.epoch)
    pair.pair.options = ["--config", str(away)]
    pair.pair.ranks[1].kill()
    wait_for(lambda: read_switched(pair.root / "state-away") == TWO, "the worker to follow")
    wait_for(lambda: pair.serves_after(before.epoch), "the next epoch")


def test_a_profile_written_into_the_file_later_wins(pair):
    pair.start()
    pair.until_ready()
    pair.switch(Switched(instead_of="long", settings=TWO.settings))
    pair.until(TrialState.KEPT)
    assert load(pair.path).config.serve.max_num_seqs == 4
    assert [f.code for f in load(pair.path).findings] == ["CFG_SWITCH_OVER"]


# --- the judgement alone -------------------------------------------------------------------------


def report(phase: Phase, **changes) -> RankReport:
    return RankReport(rank=0, node="a", pid=1, phase=phase, since=0.0, **changes)


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_loss_before_the_trial_is_not_its_own(tmp_path):
    loss = Loss(code="RANK_LOST", message="gone", rank=0, epoch=1, at=1.0)
    judged = trials.Trials(tmp_path)
    judged.begin(Trial(id="t", to=TWO, ready_seconds=60), loss)
    assert judged.judge(report(Phase.STARTING, last_loss=loss)) is None
    again = loss.model_copy(update={"epoch": 2})
    assert judged.judge(report(Phase.WAITING, last_loss=again)) == "RANK_LOST: gone"
    assert trials.Trials(tmp_path).running is not None


def test_a_torn_record_is_no_trial(tmp_path):
    (tmp_path / trials.NAME).write_text('{"id": "t"')
    assert trials.Trials(tmp_path).running is None


def test_a_disk_that_refuses_to_go_back_does_not_restart_the_pair_for_ever(tmp_path, monkeypatch):
    judged = trials.Trials(tmp_path)
    judged.begin(Trial(id="t", to=TWO, ready_seconds=60), None)
    write_switched(tmp_path, TWO)
    monkeypatch.setattr(trials, "write_switched", full)
    judged.undo("it crashed", epoch=2)
    assert judged.last.state is TrialState.KEPT
    assert "No space left" in judged.last.reason


def test_what_never_was_switched_is_back_without_a_write(tmp_path, monkeypatch):
    """As when the head died, or the disk was full, between the record and the switch itself."""
    judged = trials.Trials(tmp_path)
    judged.begin(Trial(id="t", to=TWO, ready_seconds=60), None)
    monkeypatch.setattr(trials, "write_switched", full)
    judged.undo("the head's supervisor ended in the middle of it", epoch=0)
    assert judged.last.state is TrialState.UNDONE


@pytest.mark.parametrize("place", ["rank.write_switch", "trial.replace_durably"])
def test_a_switch_that_cannot_be_kept_is_told_as_undone(tmp_path, monkeypatch, place):
    """What comes up is what ran before, with its settings of one run: no switch at all."""
    config = pair_config(tmp_path)
    head = supervisor(config, 0)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/override.yaml").write_text("serve: {max_num_seqs: 2}\n")
    monkeypatch.setattr(f"glm53ctl.supervise.{place}", full)
    order = Command(action="restart", switched=TWO, trial=Trial(id="t", to=TWO, ready_seconds=60))
    asyncio.run(head._carry_out(order))
    told = head.report().trial
    assert (told.id, told.state) == ("t", TrialState.UNDONE)
    assert "No space left on device" in told.reason
    assert current_override(config) == ("serve.max_num_seqs=2",)
    head._judge_trial()
    assert (head.reload, head.order) == (True, None)


def test_a_full_disk_does_not_end_a_trial_that_serves(tmp_path, monkeypatch):
    judged = trials.Trials(tmp_path)
    judged.begin(Trial(id="t", to=TWO, ready_seconds=60, proof_seconds=60), None)
    monkeypatch.setattr(trials, "replace_durably", full)
    assert judged.judge(report(Phase.READY)) is None
    assert judged.running.state is TrialState.PROVING


def test_status_shows_what_was_switched_and_why_it_went_back():
    undone = Trial(id="t", to=TWO, ready_seconds=60, state=TrialState.UNDONE, reason="it crashed")
    told = report(Phase.READY, switched="long", trial=undone)
    snapshot = assemble(pair_config(Path("unused")), {0: told}, now=0.0)
    page = Console(width=200, file=io.StringIO())
    page.print(render(snapshot))
    said = page.file.getvalue()
    assert "switched to" in said
    assert "to demo, serve.max_num_seqs=2, undone: it crashed" in said
    assert told.status_line() == "ready, epoch 0, switched to long"
