"""The incident log: one format, several writers, a disk that fills up."""

import errno
import json
import os
import threading

import pytest

from glm53ctl.config.schema import Supervise
from glm53ctl.supervise import ledger
from glm53ctl.supervise.ledger import Incident, Ledger, append_incident, read_incidents
from glm53ctl.supervise.report import Loss
from glm53ctl.watchdog.exits import ending, record_exit

KILLED = {"SERVICE_RESULT": "signal", "EXIT_CODE": "killed", "EXIT_STATUS": "KILL"}


def incident(number: int = 0, text: str = "worker gone") -> Incident:
    return Incident(code="RANK_LOST", message=text, rank=1, epoch=number, at=1.0, seen_by="test")


def epochs(directory):
    return [found.epoch for found in read_incidents(directory)]


def test_what_is_appended_is_read(tmp_path):
    assert append_incident(tmp_path, incident())
    assert read_incidents(tmp_path) == [incident()]


def test_supervisor_watchdog_and_systemd_write_the_same_format(tmp_path):
    loss = Loss(code="RANK_LOST", message="worker gone", rank=1, epoch=3, at=1.0)
    Ledger(tmp_path, 1, Supervise()).record(loss)
    append_incident(tmp_path, incident())
    record_exit(tmp_path, 1, KILLED)
    lines = [json.loads(line) for line in (tmp_path / "incidents.jsonl").read_text().splitlines()]
    assert len(lines) == 3
    assert len({tuple(line) for line in lines}) == 1
    assert [line["seen_by"] for line in lines] == ["rank 1", "test", "systemd"]
    assert [line["own"] for line in lines] == [True, False, False]


def test_a_line_of_an_older_release_is_read(tmp_path):
    """`seen_by` was a number then."""
    old = incident().model_dump() | {"seen_by": 1}
    (tmp_path / "incidents.jsonl").write_text(json.dumps(old) + "\n")
    assert read_incidents(tmp_path) == [incident().model_copy(update={"seen_by": "rank 1"})]


def test_a_torn_line_takes_no_other_with_it(tmp_path):
    (tmp_path / "incidents.jsonl").write_text('{"code": "RANK_L')
    append_incident(tmp_path, incident(1))
    append_incident(tmp_path, incident(2))
    assert epochs(tmp_path) == [1, 2]


def test_a_full_disk_costs_the_record_and_nothing_else(tmp_path, monkeypatch, caplog):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    memory = Ledger(tmp_path, 1, Supervise(crash_limit=2))
    monkeypatch.setattr(ledger.os, "write", full)
    monkeypatch.setattr(ledger.os, "replace", full)
    for at in (1.0, 2.0):
        memory.record(Loss(code="RANK_LOST", message="worker gone", rank=1, epoch=1, at=at))
    assert memory.held  # the counters live on
    assert "No space left" in caplog.text


def test_a_write_that_is_cut_short_is_no_record(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(ledger.os, "write", lambda file, data: write(file, data[:10]))
    assert not append_incident(tmp_path, incident(1))
    monkeypatch.undo()
    assert append_incident(tmp_path, incident(2))
    assert epochs(tmp_path) == [2]


def test_a_directory_that_is_not_there_is_no_crash(tmp_path):
    assert not append_incident(tmp_path / "gone", incident())


def test_a_long_log_is_put_aside_and_still_read(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "ROTATE_BYTES", 1000)
    for number in range(12):
        append_incident(tmp_path, incident(number))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "incidents.1.jsonl",
        "incidents.jsonl",
    ]
    assert (tmp_path / "incidents.jsonl").stat().st_size < 1500
    kept = epochs(tmp_path)
    assert kept == list(range(kept[0], 12))
    assert len(kept) > 6


def test_many_writers_lose_nothing(tmp_path):
    threads = [
        threading.Thread(target=append_incident, args=(tmp_path, incident(number, "x" * 2000)))
        for number in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(epochs(tmp_path)) == list(range(16))


# --- systemd's word ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "code", "status", "words"),
    [
        ("signal", "killed", "KILL", "was killed (signal, killed KILL)"),
        ("watchdog", "dumped", "ABRT", "no longer fed systemd's watchdog"),
        ("timeout", "killed", "KILL", "took too long"),
        ("oom-kill", "killed", "KILL", "for want of memory"),
        ("exit-code", "exited", "1", "ended by itself (exit-code, exited 1)"),
        ("resources", "", "", "failed (resources)"),
    ],
)
def test_the_ending_is_said_in_words(result, code, status, words):
    said = ending({"SERVICE_RESULT": result, "EXIT_CODE": code, "EXIT_STATUS": status})
    assert words in said


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"SERVICE_RESULT": "success", "EXIT_CODE": "exited", "EXIT_STATUS": "0"},
        {"SERVICE_RESULT": "success", "EXIT_CODE": "killed", "EXIT_STATUS": "TERM"},
        # `glm53ctl down` before READY=1
        {"SERVICE_RESULT": "protocol", "EXIT_CODE": "exited", "EXIT_STATUS": "0"},
    ],
)
def test_success_is_no_incident(tmp_path, environ):
    record_exit(tmp_path, 0, environ)
    assert list(tmp_path.iterdir()) == []


def test_the_record_names_rank_and_epoch_and_counts_no_crash(tmp_path):
    Ledger(tmp_path, 1, Supervise()).begin_epoch(7, "boot-a")
    before = (tmp_path / "rank1.json").read_text()
    record_exit(tmp_path, 1, KILLED)
    (found,) = read_incidents(tmp_path)
    assert (found.code, found.rank, found.epoch) == ("SUPERVISOR_LOST", 1, 7)
    assert (tmp_path / "rank1.json").read_text() == before
