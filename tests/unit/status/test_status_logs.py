"""What the engine said, from the files of its epochs."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pictures import config

from glm53ctl.errors import UserError
from glm53ctl.status import logs

DEADLINE = 30.0


class Logs:
    """The logs of one host."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "state/logs"
        self.config = config(str(root))

    def path(self, epoch: int, rank: int = 0) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"rank{rank}-{epoch:06d}.log"

    def write(self, epoch: int, text: str, rank: int = 0) -> None:
        with self.path(epoch, rank).open("a") as file:
            file.write(text)

    def read(self, rank: int = 0, lines: int = 100) -> list[str]:
        return list(logs.read_log(self.config, rank, lines, follow=False))

    def follow(self, lines: int = 100) -> Iterator[str]:
        return logs.read_log(self.config, 0, lines, follow=True)

    def refusal(self, rank: int = 0) -> UserError:
        with pytest.raises(UserError) as caught:
            self.read(rank)
        return caught.value


@pytest.fixture
def kept(tmp_path) -> Logs:
    return Logs(tmp_path)


@pytest.fixture
def meanwhile(monkeypatch):
    """Let a test say what happens while the follower waits, one step a wait; then it gives up."""

    def plan(*steps):
        waiting = list(steps)
        limit = time.monotonic() + DEADLINE

        def wait(_seconds: float) -> None:
            assert time.monotonic() < limit, "the follower waits for ever"
            if not waiting:
                raise KeyboardInterrupt
            waiting.pop(0)()

        monkeypatch.setattr(logs.time, "sleep", wait)

    return plan


def followed(lines: Iterator[str]) -> list[str]:
    """Return the lines until the one who follows has seen enough."""
    seen = []
    try:
        for line in lines:  # not list(): the interrupt must not cost what came before
            seen.append(line)
    except KeyboardInterrupt:
        return seen
    raise AssertionError("the follower stopped by itself")


def test_the_newest_epoch_is_read(kept):
    kept.write(9, "nine\n")
    kept.write(10, "ten\n")
    assert kept.read() == ["ten"]


def test_each_rank_has_its_own_logs(kept):
    kept.write(3, "head\n")
    kept.write(4, "worker\n", rank=1)
    assert kept.read(0) == ["head"]
    assert kept.read(1) == ["worker"]


@pytest.mark.parametrize(("asked", "got"), [(0, []), (1, ["3"]), (2, ["2", "3"]), (9, list("123"))])
def test_as_many_of_the_last_lines_come_as_were_asked_for(kept, asked, got):
    kept.write(1, "1\n2\n3\n")
    assert kept.read(lines=asked) == got


def test_a_line_without_an_end_and_bytes_that_are_no_text_are_read(kept):
    kept.path(1).write_bytes(b"caf\xe9\nlast")
    assert kept.read() == ["caf\ufffd", "last"]


def test_without_a_log_the_reason_and_the_way_out_are_said(kept):
    error = kept.refusal()
    assert error.code == "LOG_NONE"
    assert str(kept.folder) in error.message
    assert error.fix


def test_the_supervisor_s_own_log_is_not_the_engine_s(kept):
    kept.path(1).with_name("supervisor0.log").write_text("x\n")
    assert kept.refusal().code == "LOG_NONE"


def test_a_rank_that_no_node_has_is_a_mistake_and_not_a_missing_log(kept):
    assert kept.refusal(rank=2).code == "RANK_UNKNOWN"


def test_a_log_that_cannot_be_read_is_no_traceback(kept):
    kept.path(1).mkdir(parents=True)
    error = kept.refusal()
    assert error.code == "LOG_UNREADABLE"
    assert str(kept.path(1)) in error.message


def test_who_follows_gets_the_last_lines_and_then_all_that_comes(kept, meanwhile):
    kept.write(1, "1\n2\n3\n")
    meanwhile(lambda: kept.write(1, "4\n5\n"), lambda: None, lambda: kept.write(1, "6\n"))
    assert followed(kept.follow(lines=1)) == ["3", "4", "5", "6"]


def test_a_line_that_is_still_being_written_comes_whole(kept, meanwhile):
    kept.write(1, "one\nlo")
    meanwhile(
        lambda: kept.write(1, "ad"), lambda: kept.write(1, "ing 1"), lambda: kept.write(1, "/4\n2")
    )
    assert followed(kept.follow()) == ["one", "loading 1/4"]


def test_following_goes_on_in_the_file_of_a_new_epoch(kept, meanwhile):
    kept.write(1, "one\n")
    meanwhile(
        lambda: (kept.write(1, "last words\n"), kept.write(2, "two\nthree\n")),
        lambda: kept.write(2, "four\n"),
        lambda: kept.write(3, ""),
        lambda: kept.write(3, "five\n"),
    )
    assert followed(kept.follow(lines=0)) == ["last words", "two", "three", "four", "five"]


def test_the_last_words_of_an_epoch_come_although_their_line_never_ended(kept, meanwhile):
    kept.write(1, "one\n")
    meanwhile(lambda: kept.write(1, "Segmentation fa"), lambda: kept.write(2, "two\n"))
    assert followed(kept.follow()) == ["one", "Segmentation fa", "two"]


def test_a_log_that_is_removed_is_waited_for_again(kept, meanwhile):
    kept.write(1, "one\n")
    meanwhile(lambda: kept.path(1).unlink(), lambda: None, lambda: kept.write(2, "two\n"))
    assert followed(kept.follow()) == ["one", "two"]


@pytest.mark.parametrize("before", [1, 2])
def test_following_goes_on_when_the_log_begins_anew(kept, meanwhile, before):
    """As the supervisor does it at a size: the old one is put aside, then there is none, then one.

    The log of an epoch before is no news meanwhile.
    """
    kept.write(1, "one\n")
    kept.write(before, "two\n")
    aside = kept.path(before).with_suffix(".log.1")
    meanwhile(
        lambda: kept.write(before, "last\n"),
        lambda: (kept.write(before, "words\n"), kept.path(before).rename(aside)),
        lambda: kept.write(before, "three\n"),
        lambda: kept.write(before, "four\n"),
    )
    assert followed(kept.follow())[-5:] == ["two", "last", "words", "three", "four"]
