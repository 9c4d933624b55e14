"""What of an import may stay: values that the schema takes and the rules allow."""

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from glm53ctl.config.layers import Layer, Origin, Said, of_profile
from glm53ctl.config.recipes import names
from glm53ctl.config.recipes.work import Note, Verdict, Work
from glm53ctl.config.rules import violations
from glm53ctl.config.schema import Config
from glm53ctl.config.validation import validate
from glm53ctl.findings import Severity

_BARE: Mapping[str, JsonValue] = {
    "nodes": [
        {"name": "spark-head", "address": "10.0.0.1"},
        {"name": "spark-worker", "address": "10.0.0.2"},
    ],
    "licenses.accept": ["ShapleyMCG-1.0", "CC-BY-NC-ND-4.0"],
}
"""What a configuration needs beside an import to be judged; accepting is left to the user."""


def _judge(
    work: Work, values: Mapping[str, JsonValue]
) -> Iterator[tuple[tuple[str, ...], Verdict, str]]:
    """Yield the settings that cannot stay together with the reason: wrong values, then rules."""
    origin = Origin(Layer.FILE, "")
    said = {path: Said(value, origin) for path, value in {**_BARE, **values}.items()}
    result = validate({**of_profile(names.PROFILE_OF[work.recipe]), **said})
    if not isinstance(result, Config):
        for finding in result:
            place = finding.where.split()[-1] if finding.where else ""
            path = next((p for p in values if f"{place}.".startswith(f"{p}.")), "")
            yield (path,), Verdict.INVALID, finding.message
        return
    for rule, what in violations(result, frozenset(work.credentials)):
        if rule.severity is Severity.FAIL:
            yield rule.about(what), Verdict.FORBIDDEN, f"{what}: {rule.reason}"


def why_not(work: Work, path: str, value: JsonValue) -> tuple[Verdict, str] | None:
    """Return why one setting cannot stand beside what was taken, None when it can."""
    beside = {known: one.value for known, one in work.taken.items()}
    found = _judge(work, {**beside, path: value})
    return next(((verdict, why) for paths, verdict, why in found if path in paths), None)


def keep_what_stands(work: Work) -> None:
    """Drop settings until none is wrong or forbidden, and note each with the reason."""
    while found := list(_judge(work, {p: one.value for p, one in work.taken.items()})):
        dropped = False
        for paths, verdict, reason in found:
            path = next((path for path in paths if path in work.taken), None)
            if path is None:
                continue
            one = work.taken.pop(path)
            work.notes.append(Note(one.line, one.key, verdict, reason))
            dropped = True
        if not dropped:
            return
