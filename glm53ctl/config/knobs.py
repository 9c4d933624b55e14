"""Writes docs/configuration.md from the schema, the profiles and the rules.

`python -m glm53ctl.config.knobs [FILE]`
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from glm53ctl.config.catalog import LEAVES, allowed, env_name
from glm53ctl.config.docstrings import description
from glm53ctl.config.explain import one_line
from glm53ctl.config.identity import flat
from glm53ctl.config.profiles import PROFILES
from glm53ctl.config.recipes.names import FAMILIES, NO_COUNTERPART
from glm53ctl.config.rules import RULES
from glm53ctl.config.schema import Config, Node, Section, Setting, settings
from glm53ctl.findings import Severity

TARGET = Path("docs/configuration.md")

_INTRO = f"""\
# Configuration

Written by `python -m glm53ctl.config.knobs`; a test keeps it equal to the code.

## Where values come from

The first of these that says a setting decides:

1. the command line: `--set serve.max_model_len=4096`
2. the one-run override: `override.yaml` in `paths.run_dir`, written by `glm53ctl restart --set`
3. the switch: `switched.json` in `paths.state_dir`, written by `glm53ctl switch`, as long as the
   file and the environment name the profile that they named then
4. the environment: `GLM53_` and the path in capitals, sections joined by two underscores
   (`{env_name("serve.max_model_len")}=4096`, `{env_name("dense")}=fp8`)
5. the file: `/etc/glm53/config.yaml`, or the one named on the command line
6. the profile: `profile: vllm-recipe` unless another is named
7. the default

A value on the command line or in the environment is written as YAML: a number, `true`, `null`,
a list `[a, b]`, a mapping `{{A: b}}`. A list or mapping replaces the one below it as a whole.
`glm53ctl config show --explain` prints each value with the place that said it.

The file is plain YAML without anchors, aliases, tags and dates. A key may stand once. Unknown
keys are errors. A secret never stands in it: settings name the file that holds it.

Settings marked *node* may differ between the nodes. All others must be equal, and the nodes
compare them before every start.
"""

_COLUMNS = ("setting", "value", "default", "what it does", "vLLM flag", "vLLM recipe", "TensorFold")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[str]:
    yield _row(head)
    yield "|" + "---|" * len(head)
    yield from map(_row, rows)


def _code(text: str | None) -> str:
    return f"`{text}`" if text else ""


def _default(setting: Setting) -> str:
    if setting.field.is_required():
        return "required"
    value = setting.field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "left out"
    return _code(one_line(list(value) if isinstance(value, tuple) else value))


def _setting(setting: Setting, keys: tuple[str | int, ...]) -> list[str]:
    knob = setting.knob
    mark = " *node*" if knob.node_local else ""
    return [
        f"`{setting.path}`{mark}",
        allowed(keys),
        _default(setting),
        description(setting),
        _code(knob.flag),
        _code(knob.vllm_recipe),
        _code(knob.tensorfold),
    ]


def _section_of(annotation: Any) -> Any:
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else [annotation]
    return next((o for o in options if isinstance(o, type) and issubclass(o, Section)), None)


def _about(section: str) -> str:
    """Return what a section is for, from its class."""
    found: Any = Config
    for name in section.split("."):
        found = _section_of(found.model_fields[name].annotation)
    return (found.__doc__ or "").split("\n\n")[0]


def _sections() -> Iterator[str]:
    yield "## Settings\n"
    yield from _table(_COLUMNS, (_setting(s, s.key) for s in LEAVES.values() if len(s.key) == 1))
    yield "\n### nodes\n\n" + (Node.__doc__ or "") + "\n"
    yield from _table(_COLUMNS, (_setting(s, ("nodes", 0, *s.key)) for s in settings(Node)))
    nested = (s for s in LEAVES.values() if len(s.key) > 1)
    for section, members in groupby(nested, key=lambda s: ".".join(s.key[:-1])):
        yield f"\n### {section}\n\n{_about(section)}\n"
        yield from _table(_COLUMNS, (_setting(s, s.key) for s in members))


def _profiles() -> Iterator[str]:
    yield "\n## Profiles\n"
    trees = {name: dict(flat("", dict(tree))) for name, tree in PROFILES.items()}
    paths = dict.fromkeys(path for tree in trees.values() for path in tree)
    rows = (
        [
            _code(path.lstrip(".")),
            *(_code(one_line(tree[path])) if path in tree else "" for tree in trees.values()),
        ]
        for path in paths
    )
    yield from _table(["setting", *map(_code, trees)], rows)


def _rules() -> Iterator[str]:
    yield "\n## What is refused, and why\n"
    words = {Severity.FAIL: "refused", Severity.WARN: "warning", Severity.OK: "on record"}
    rows = (
        [
            _code(rule.name),
            ", ".join(map(_code, rule.paths)),
            words[rule.severity],
            _code(rule.code),
            rule.reason,
            rule.fix,
        ]
        for rule in RULES
    )
    yield from _table(["rule", "settings", "verdict", "code", "why", "what to do"], rows)


def _without_counterpart() -> Iterator[str]:
    yield "\n## Names of the recipes without a setting here\n"
    families = ((f"{start}*", why) for start, why in FAMILIES)
    rows = ([_code(name), why] for name, why in [*sorted(NO_COUNTERPART.items()), *families])
    yield from _table(["name", "why, or what takes its place"], rows)


def render() -> str:
    """Return the whole page."""
    parts = (_sections(), _profiles(), _rules(), _without_counterpart())
    return _INTRO + "\n" + "\n".join(line for part in parts for line in part) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Write the page to the given file or to its place in the repository."""
    target = Path(arguments[0]) if arguments else TARGET
    target.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
