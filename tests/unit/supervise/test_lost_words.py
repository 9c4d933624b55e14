"""What a worker does without the head's word, and the service manager without a limit."""

from types import SimpleNamespace

import pytest
from pairs import pair_config, report

from glm53ctl.supervise.epoch import Epoch
from glm53ctl.supervise.notify import Notifier
from glm53ctl.supervise.report import Phase


@pytest.mark.parametrize(
    ("phase", "epoch", "ready"),
    [(Phase.READY, 7, True), (Phase.READY, 6, False), (Phase.STARTING, 7, False)],
)
def test_ready_is_in_the_beat_as_well(tmp_path, phase, epoch, ready):
    """The message goes with its connection, which the worker gives up after seconds of silence."""
    link = SimpleNamespace(peers={0: SimpleNamespace(report=report(0, phase, epoch=epoch))})
    made = Epoch(pair_config(tmp_path), 1, 7, link, None, {}, None, {})
    assert made.is_ready() is ready


def test_a_limit_that_is_over_still_extends_the_start():
    """A negative time is no word to systemd: the unit of a waiting worker would time out."""
    said = []
    notifier = Notifier()
    notifier._systemd = SimpleNamespace(notify=said.append)
    notifier.extend(-100.0)
    notifier.extend(10.0)
    assert said == ["EXTEND_TIMEOUT_USEC=30000000", "EXTEND_TIMEOUT_USEC=40000000"]
