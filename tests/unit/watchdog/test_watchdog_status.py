"""What `status` says of the watchdog, and of a pair without a supervisor."""

import time

import pytest
from looks import config
from unit.status.pictures import loss, report, shown

from glm53ctl.findings import Finding, Severity
from glm53ctl.status.snapshot import assemble, gather
from glm53ctl.supervise.ledger import Incident, append_incident
from glm53ctl.supervise.report import Phase
from glm53ctl.watchdog.report import Refusal, WatchdogReport, write_report


def watching(**more):
    return WatchdogReport(pid=1, beat=time.monotonic(), **({"watches": (0,)} | more))


def gave_up(severity=Severity.FAIL):
    return Finding(code="WATCHDOG_GAVE_UP", severity=severity, message="after 5.", fix="Mend it.")


def picture(*ranks, watchdog=None, recorded=()):
    return assemble(config(), {r.rank: r for r in ranks}, 1_000_000.0, watchdog, recorded)


def test_no_watchdog_is_no_line():
    assert "watchdog" not in shown(picture(report(0), report(1)))


def test_what_it_watches_is_shown():
    text = shown(picture(report(0), report(1), watchdog=watching(memory_available_gib=9.25)))
    (line,) = (line for line in text.splitlines() if "watchdog" in line)
    assert " ".join(line.split()) == "watchdog watches rank 0; 9.2 GiB of memory left"


def test_new_work_that_is_to_be_refused_is_said():
    text = shown(picture(report(0), report(1), watchdog=watching(refuses=Refusal(reason="low"))))
    assert "new work is to be refused" in text


def test_why_it_gave_up_and_what_to_do_is_shown_when_no_supervisor_is_left():
    seen = picture(watchdog=watching(findings=(gave_up(),)), recorded=[loss(5.0)])
    assert (seen.state, seen.next_step) == ("down", "Mend it.")
    assert seen.last_loss.at == 5.0
    assert "WATCHDOG_GAVE_UP" in shown(seen)


@pytest.mark.parametrize("ranks", [(), (report(0, Phase.STOPPED), report(1, Phase.STOPPED))])
def test_a_warning_of_the_watchdog_does_not_hide_how_to_start(ranks):
    watchdog = watching(findings=(gave_up(Severity.WARN),))
    assert "systemctl start" in picture(*ranks, watchdog=watchdog).next_step


def test_status_reads_report_and_incidents_of_this_host(tmp_path):
    settings = config(str(tmp_path))
    for name in ("run", "state"):
        (tmp_path / name).mkdir()
    write_report(tmp_path / "run", watching(findings=(gave_up(),)))
    for at, commanded in ((5.0, False), (6.0, True)):
        lost = Incident(**loss(at).model_dump() | {"commanded": commanded})
        append_incident(tmp_path / "state", lost)
    seen = gather(settings)
    assert [f.code for f in seen.findings] == ["WATCHDOG_GAVE_UP"]
    assert seen.last_loss.at == 5.0
