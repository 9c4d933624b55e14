"""Settings to a configuration: types, bounds, and the place that said what is wrong."""

import json
from collections.abc import Mapping

from pydantic import JsonValue, ValidationError
from pydantic_core import ErrorDetails

from glm53ctl.config import messages
from glm53ctl.config.catalog import Keys, dotted, leaf_of
from glm53ctl.config.document import fail
from glm53ctl.config.layers import DEFAULT, Said
from glm53ctl.config.schema import Config
from glm53ctl.findings import Finding


def nested(leaves: Mapping[str, Said]) -> dict[str, JsonValue]:
    """Return settings as the nested values that the schema validates."""
    tree: dict[str, JsonValue] = {}
    for path, said in leaves.items():
        *sections, last = path.split(".")
        place = tree
        for section in sections:
            place = place.setdefault(section, {})  # type: ignore[assignment]
        place[last] = said.value
    return tree


def _where(keys: Keys, leaves: Mapping[str, Said]) -> str:
    """Return the place that said a value, as exactly as it is known."""
    leaf = leaf_of(keys)
    if leaf is None or leaf not in leaves:
        return dotted(keys)
    said = leaves[leaf]
    depths = range(len(keys), 0, -1)
    origin = next((said.inner[keys[:n]] for n in depths if keys[:n] in said.inner), said.origin)
    return origin.where(dotted(keys))


def validate(leaves: Mapping[str, Said]) -> Config | list[Finding]:
    """Return the configuration that settings make, or everything that is wrong with them.

    JSON in strict mode is exactly what YAML can say: true is not 1, and "4" is not 4.
    """
    try:
        return Config.model_validate_json(json.dumps(nested(leaves)), strict=True)
    except ValidationError as error:
        found = error.errors()
    # A list with a broken item also counts as too short: only the item itself is worth a line.
    places = [problem["loc"] for problem in found]
    causes = [p for p in found if not any(_lies_in(place, p["loc"]) for place in places)]
    return [_finding(problem["loc"], problem, leaves) for problem in causes]


def _lies_in(keys: Keys, outer: Keys) -> bool:
    return len(keys) > len(outer) and keys[: len(outer)] == outer


def _finding(keys: Keys, problem: ErrorDetails, leaves: Mapping[str, Said]) -> Finding:
    code, message, fix = messages.sentence(keys, problem)
    return fail(code, _where(keys, leaves), message, fix)


def judge_rules(
    config: Config, leaves: Mapping[str, Said], credentials: frozenset[str]
) -> list[Finding]:
    """Return what the rules say, each at the place that said the value."""
    from glm53ctl.config.rules import violations  # with the plan: who only looks judges nothing

    found = []
    for rule, what in violations(config, credentials):
        about = rule.about(what)
        said = [path for path in about if path in leaves]
        path = said[0] if said else about[0]
        origin = leaves[path].origin if said else DEFAULT
        found.append(rule.finding(what, origin.where(path)))
    return found
