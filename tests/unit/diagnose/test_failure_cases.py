"""The recorded failures: every verdict is reached, and a wrong one is seen to be wrong."""

from pathlib import Path

import pytest
import yaml
from cases.__main__ import main
from cases.case import read_cases
from cases.judge import judge

CASES = Path(__file__).parents[2] / "cases"
ALL = [case for file in ("failures.yaml", "more.yaml") for case in read_cases(CASES / file)]


@pytest.mark.parametrize("case", ALL, ids=[case.id for case in ALL])
def test_the_product_concludes_what_the_case_expects(case):
    assert [str(one) for one in judge(case) if one.problem] == []


def test_no_case_is_lost_and_every_one_has_its_own_id():
    assert len({case.id for case in ALL}) == len(ALL) == 61


def write(path: Path, **expected) -> Path:
    said = {"variant": "-", "phase": "log", "code": "PORT_IN_USE", "severity": "fail", **expected}
    text = "### a.log\nOSError: [Errno 98] Address already in use\n"
    case = {"id": "T1", "title": "t", "input": text, "expected": [said]}
    path.write_text(yaml.safe_dump({"version": 1, "cases": [case]}))
    return path


@pytest.mark.parametrize(
    ("expected", "problem"),
    [
        ({"code": "MEM_FOREIGN"}, "not concluded (PORT_IN_USE fail)"),
        ({"severity": "warn"}, "not concluded (PORT_IN_USE fail)"),
        ({"mention": ["29521"]}, "does not mention 29521"),
        ({"must_not": ["doctor"]}, "says doctor, which is wrong here (PORT_IN_USE)"),
        ({"must_not": ["PORT_IN_USE"]}, "says PORT_IN_USE, which is wrong here (PORT_IN_USE)"),
    ],
)
def test_a_wrong_verdict_is_one_line(tmp_path, capsys, expected, problem):
    assert main([str(write(tmp_path / "cases.yaml", **expected))]) == 1
    code = expected.get("code", "PORT_IN_USE")
    assert capsys.readouterr().out == f"T1 - log {code}: {problem}\n0 passed, 1 failed\n"


def test_a_right_verdict_is_counted(tmp_path, capsys):
    assert main([str(write(tmp_path / "cases.yaml", mention=["EADDRINUSE"]))]) == 0
    assert capsys.readouterr().out == "1 passed, 0 failed\n"


@pytest.mark.parametrize("text", ["", "version: 2\ncases: []", "[", "version: 1", "- a"])
def test_a_file_of_something_else_is_refused(tmp_path, capsys, text):
    file = tmp_path / "cases.yaml"
    file.write_text(text)
    assert main([str(file)]) == 2
    assert "cases.yaml" in capsys.readouterr().err
