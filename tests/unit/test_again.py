"""What failed is run once more by itself, and only what chance may explain."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]

TESTS = """
import pathlib
import pytest

@pytest.mark.parametrize("number", range({failing}))
def test_first_time(number):
    seen = pathlib.Path(__file__).parent / f"seen{{number}}"
    before = seen.exists()
    seen.touch()
    assert before and {mends}

def test_good():
    with (pathlib.Path(__file__).parent / "good").open("a") as file:
        file.write("run\\n")
"""


def outcome(folder: Path, failing: int, mends: bool) -> tuple[int, str]:
    """Run tests of which the first so many fail once, or always; return exit status and output."""
    (folder / "test_some.py").write_text(TESTS.format(failing=failing, mends=mends))
    (folder / "other").mkdir()
    (folder / "other/conftest.py").touch()  # pytest leaves its hooks out where they are not asked
    (folder / "other/test_other.py").write_text("def test_other():\n    pass\n")
    command = [sys.executable, CHECKOUT / "tests/again.py", "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_one_that_passes_by_itself_is_named_and_the_others_run_once(tmp_path: Path) -> None:
    status, said = outcome(tmp_path, failing=1, mends=True)
    assert status == 0, said
    assert "to be mended:\n" in said
    assert "test_first_time[0]" in said.rpartition("to be mended:")[2]
    assert (tmp_path / "good").read_text() == "run\n"


def test_one_that_fails_again_has_failed(tmp_path: Path) -> None:
    status, said = outcome(tmp_path, failing=1, mends=False)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "to be mended" not in said


def test_many_failures_are_no_chance(tmp_path: Path) -> None:
    status, said = outcome(tmp_path, failing=4, mends=True)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "once more" not in said


def test_nothing_is_repeated_when_all_pass(tmp_path: Path) -> None:
    status, said = outcome(tmp_path, failing=0, mends=True)
    assert status == 0
    assert "once more" not in said
