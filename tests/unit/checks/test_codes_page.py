"""docs/codes.md and the registry behind it: every code that anything reports has its meaning."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from glm53ctl import codes
from glm53ctl.checks import CHECKS

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "codes.md"

CODE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")
VARIABLES = (
    "glm53ctl/config/recipes",
    "glm53ctl/config/schema",
    "glm53ctl/config/rules/passthrough.py",
    "glm53ctl/plan/env.py",
    "glm53ctl/plan/inherit.py",
)
"""Where words of a code's shape are names of variables, but for those in a report."""
NAMES = {
    "CUDA_HOME",
    "GPU_MEM_UTIL",
    "MM_IMAGE_TOKENS",
    "MODEL_REVISION",
    "NCCL_IB_GID_INDEX",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
}
"""Variables that other files name, and that begin as a code does."""


def sources() -> dict[str, ast.Module]:
    """Return every module of the program and of the overlay by its path."""
    files = [*(ROOT / "glm53ctl").rglob("*.py"), *(ROOT / "overlay/glm53_overlay").rglob("*.py")]
    return {str(file.relative_to(ROOT)): ast.parse(file.read_text()) for file in sorted(files)}


def parameters(node: ast.AST) -> list[str]:
    """Return what a function, or a class made of fields or with an __init__, is called with."""
    if isinstance(node, ast.FunctionDef):
        return [word.arg for word in node.args.args if word.arg not in ("self", "cls")]
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                return parameters(inner)
        fields = [line.target for line in node.body if isinstance(line, ast.AnnAssign)]
        return [field.id for field in fields if isinstance(field, ast.Name)]
    return []


def reporters(modules: dict[str, ast.Module]) -> dict[str, set[int]]:
    """Return what is called with a `code`, and at which places."""
    # Errors of one kind, which have their fields from UserError.
    found: dict[str, set[int]] = defaultdict(set, {"ConfigError": {0}})
    for module in modules.values():
        for node in ast.walk(module):
            if "code" in (words := parameters(node)):
                found[node.name].add(words.index("code"))  # type: ignore[attr-defined]
    return found


def words(node: ast.AST) -> Iterator[str]:
    """Yield what in an expression looks like a code; a condition chooses between two."""
    for part in ast.walk(node):
        value = part.value if isinstance(part, ast.Constant) else None
        if isinstance(value, str) and CODE.fullmatch(value):
            yield value


def in_reports(modules: dict[str, ast.Module]) -> set[str]:
    """Return the codes that are written where a report is made."""
    places = reporters(modules)
    found = set()
    for module in modules.values():
        for call in (node for node in ast.walk(module) if isinstance(node, ast.Call)):
            name = getattr(call.func, "id", None) or getattr(call.func, "attr", "")
            given = [word.value for word in call.keywords if word.arg == "code"]
            given += [arg for at, arg in enumerate(call.args) if at in places.get(name, ())]
            found |= {code for one in given for code in words(one)}
    return found


def families(known: set[str]) -> set[str]:
    return {code.split("_")[0] for code in known if "_" in code}


def collected() -> set[str]:
    """Return every code of the sources: in a report, or in a table and named as other codes are."""
    modules = sources()
    found = in_reports(modules)
    ours = families(found | set(codes.MEANINGS))
    for path, module in modules.items():
        if not path.startswith(VARIABLES):
            found |= {word for word in words(module) if "_" in word and word.split("_")[0] in ours}
    return found - NAMES


def of_nix() -> set[str]:
    """Return the codes of assertions, warnings and of `deploy`."""
    files = [*(ROOT / "nix/modules").rglob("*.nix"), ROOT / "nix/apps.nix"]
    text = "".join(file.read_text() for file in files)
    said = re.findall(r"\b([A-Z]+(?:_[A-Z]+)+): ", text)
    said += re.findall(r'"((?:API|CFG|MEM|NET|PAIR|RANK)_[A-Z_]+)"', text)
    return set(said) - NAMES


def test_the_page_is_the_one_that_the_code_writes():
    assert PAGE.read_text() == codes.render(), "run python -m glm53ctl.codes"


def test_codes_are_collected_at_all():
    some = {"HELD", "PAIR_CONFIG", "MEM_REFUSING", "WEIGHTS_MISSING", "GUARD_KV", "REQ_EFFORT"}
    assert some <= collected()
    assert {"DEPLOY_REBOOT", "CFG_MISSING", "RANK_UNKNOWN"} <= of_nix()


def test_every_code_has_a_meaning():
    assert (collected() | of_nix()) - codes.MEANINGS.keys() == set()


def test_every_meaning_is_of_a_code_that_something_reports():
    assert codes.MEANINGS.keys() - collected() - of_nix() == set()


def test_everything_that_can_be_found_has_a_meaning():
    assert codes.finders().keys() - codes.MEANINGS.keys() == set()


def test_meanings_are_sentences_and_told_once():
    meanings = list(codes.MEANINGS.values())
    assert all(text.endswith(".") for text in meanings)
    assert len(set(meanings)) == len(meanings)


def test_checks_have_names_of_their_own_and_say_what_they_are_about():
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert all(check.says.endswith(".") and check.codes for check in CHECKS)
