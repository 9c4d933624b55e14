"""Every target's Python program can be loaded the way the Makefile starts it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
BROWSER = re.compile(r"^\S+: \$\(TOOL\)/playwright .*\n\t@\$\(TESTS\) -m (\S+)", re.MULTILINE)
"""Programs whose target installs the browser's driver first: `make setup` does not."""

_STARTS = re.compile(
    r"@(?P<runner>\$\(TESTS\)|\$\(TOOL\)/python) (?:-m (?P<module>\S+)|(?P<file>\S+\.py))"
)

STARTS = sorted(
    {
        (match["runner"] == "$(TESTS)", match["module"] or match["file"])
        for match in _STARTS.finditer((CHECKOUT / "Makefile").read_text())
    }
)


def test_the_makefile_is_read() -> None:
    assert (True, "tests.pair.smoke") in STARTS
    assert len(STARTS) > 8


@pytest.mark.parametrize(("with_tests", "program"), STARTS)
def test_a_program_of_the_makefile_loads(with_tests: bool, program: str) -> None:
    if program in BROWSER.findall((CHECKOUT / "Makefile").read_text()):
        pytest.importorskip("playwright", reason="its target installs more")
    load = (
        f"import runpy; runpy.run_path({program!r}, run_name='loaded')"
        if program.endswith(".py")
        else f"import runpy; runpy.run_module({program!r}, run_name='loaded')"
    )
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", load],
        cwd=CHECKOUT,
        env=bare | ({"PYTHONPATH": "tests"} if with_tests else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_overlay_is_installed_anew_after_a_change_of_any_of_its_files() -> None:
    """Also of data, such as the chat template; not of what Python and pip leave there."""
    show = "shown:; @printf '%s\\n' $(OVERLAY_SOURCES)"
    words = ["make", "--silent", f"--eval={show}", "shown"]
    done = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    left = {"__pycache__", "build"}
    ours = {
        str(path.relative_to(CHECKOUT))
        for path in (CHECKOUT / "overlay").rglob("*")
        if path.is_file()
        and not any(part in left or part.endswith(".egg-info") for part in path.parts)
    }
    assert any(name.endswith(".jinja") for name in ours)
    assert set(done.stdout.split()) == ours
