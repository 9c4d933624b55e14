"""What a failed try says of the next one, without a transfer: the tries fail as they are told."""

import errno
import threading
from collections.abc import Iterator

import pytest
from weight_world import COMMIT, MIRROR, QUICK, Ears

from glm53ctl.errors import UserError
from glm53ctl.findings import Finding, Severity
from glm53ctl.weights.hub import HubSource
from glm53ctl.weights.patience import Patience, SourceError
from glm53ctl.weights.transfer import HttpRefusedError, TransferError

DAMAGED = TransferError(
    Finding(code="FETCH_WRONG_BYTES", severity=Severity.WARN, message="the digest is another.")
)
BAD_TOKEN = HttpRefusedError(401, {"X-Error-Message": "Invalid credentials"})
TOO_OFTEN = HttpRefusedError(429, {"Retry-After": "300"})


class Tries:
    """An action that fails with each error in turn and then works."""

    def __init__(self, *errors: Exception) -> None:
        self.errors: Iterator[Exception] = iter(errors)
        self.made = 0

    def __call__(self) -> str:
        self.made += 1
        for error in self.errors:
            raise error
        return "done"


def persist(tmp_path, tries, attempts=3, *, gained=lambda: False, stopped=False, token=None):
    """Return what comes of the tries, against a Hub that is never asked anything."""
    halt = threading.Event()
    if stopped:
        halt.set()
    patience = Patience(QUICK, tmp_path, Ears())
    source = HubSource(MIRROR, COMMIT, token)
    return patience.until_done(source, tries, gained, halt, attempts)


def test_a_source_is_given_up_after_so_many_failures(tmp_path):
    tries = Tries(*[ConnectionResetError()] * 9)
    with pytest.raises(SourceError) as given_up:
        persist(tmp_path, tries)
    assert given_up.value.finding.code == "FETCH_FAILED"
    assert tries.made == 3


def test_whatever_brings_a_byte_is_no_failure(tmp_path):
    assert persist(tmp_path, Tries(*[ConnectionResetError()] * 9), gained=lambda: True) == "done"


def test_silence_is_not_counted(tmp_path):
    assert persist(tmp_path, Tries(*[TimeoutError()] * 9)) == "done"


def test_damaged_bytes_are_asked_for_once_more(tmp_path):
    assert persist(tmp_path, Tries(DAMAGED)) == "done"
    tries = Tries(DAMAGED, DAMAGED, DAMAGED)
    with pytest.raises(SourceError):
        persist(tmp_path, tries, attempts=9)
    assert tries.made == 2


def test_a_try_without_the_bad_token_is_another_one(tmp_path):
    assert persist(tmp_path, Tries(BAD_TOKEN), attempts=1, token="hf_expired") == "done"
    with pytest.raises(SourceError):  # there is none to leave out
        persist(tmp_path, Tries(BAD_TOKEN), attempts=1)


def test_a_stop_ends_the_longest_pause(tmp_path):
    with pytest.raises(SourceError) as given_up:
        persist(tmp_path, Tries(TOO_OFTEN), stopped=True)
    assert given_up.value.finding.code == "FETCH_RATE_LIMITED"


@pytest.mark.parametrize("headers", [{"Retry-After": "0"}, {"ratelimit": '"api";r=0;t=0'}])
def test_a_rate_limit_that_asks_for_no_pause_gets_one(tmp_path, monkeypatch, headers):
    pauses = []
    monkeypatch.setattr(threading.Event, "wait", lambda _, seconds: pauses.append(seconds))
    assert persist(tmp_path, Tries(*[HttpRefusedError(429, headers)] * 3)) == "done"
    assert len(pauses) == 3
    assert min(pauses) >= QUICK.backoff_seconds


def test_a_full_disk_is_the_operators(tmp_path):
    tries = Tries(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(UserError):
        persist(tmp_path, tries)
    assert tries.made == 1
