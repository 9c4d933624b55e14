"""What a worker does without the head's word, and the service manager without a limit."""

from types import SimpleNamespace

import pytest
from pairs import pair_config, report

from glm53ctl.supervise.epoch import Epoch
from glm53ctl.supervise.notify import Notifier
from glm53ctl.supervise.report import Loss, Phase


@pytest.mark.parametrize(
    ("phase", "epoch", "ready"),
    [(Phase.READY, 7, True), (Phase.READY, 6, False), (Phase.STARTING, 7, False)],
)
def test_ready_is_in_the_beat_as_well(tmp_path, phase, epoch, ready):
    """The message goes with its connection, which the worker gives up after seconds of silence."""
    link = SimpleNamespace(peers={0: SimpleNamespace(report=report(0, phase, epoch=epoch))})
    made = Epoch(pair_config(tmp_path), 1, 7, link, None, {}, None, {})
    assert made.is_ready() is ready


LOSS = Loss(code="ENGINE_WEDGED", message="m", rank=0, epoch=7, at=0.0)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (report(0, Phase.READY, epoch=7), None),
        (report(0, Phase.ENDING, epoch=7), None),  # it may be draining, and needs both halves
        (report(0, Phase.WAITING, epoch=6), None),  # not begun there yet
        (report(0, Phase.WAITING, epoch=7), "RANK_LOST"),
        (report(0, Phase.WAITING, epoch=7, last_loss=LOSS), "ENGINE_WEDGED"),
        (
            report(0, Phase.HELD, epoch=7, last_loss=LOSS.model_copy(update={"epoch": 3})),
            "RANK_LOST",
        ),
        (report(0, Phase.STARTING, epoch=8), "RANK_LOST"),
    ],
)
def test_the_end_is_in_the_beat_as_well(tmp_path, said, code):
    peer = SimpleNamespace(report=said, lost=lambda *_: None)
    link = SimpleNamespace(peers={0: peer})
    tracker = SimpleNamespace(stage=None)
    made = Epoch(pair_config(tmp_path), 1, 7, link, None, {}, tracker, {0: "run-0"})
    loss = made.peer_loss()
    assert (loss.code if loss is not None else None) == code


def test_a_status_of_several_lines_is_one_word_to_systemd():
    """It reads up to the first line's end, and takes the next line for another message."""
    said = []
    notifier = Notifier()
    notifier._systemd = SimpleNamespace(notify=said.append)
    notifier.status("blocked: CFG_UNKNOWN_KEY: serve.max_num_sqs\nREADY=1\n")
    assert said == ["STATUS=blocked: CFG_UNKNOWN_KEY: serve.max_num_sqs READY=1"]


def test_a_limit_that_is_over_still_extends_the_start():
    """A negative time is no word to systemd: the unit of a waiting worker would time out."""
    said = []
    notifier = Notifier()
    notifier._systemd = SimpleNamespace(notify=said.append)
    notifier.extend(-100.0)
    notifier.extend(10.0)
    assert said == ["EXTEND_TIMEOUT_USEC=30000000", "EXTEND_TIMEOUT_USEC=40000000"]
