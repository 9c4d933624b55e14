"""Values of the recipes that need more than a new name."""

import re
import shlex
from collections.abc import Callable, Mapping
from typing import cast

from pydantic import JsonValue

from glm53ctl.config import argv
from glm53ctl.config.catalog import LEAVES, takes_bool, takes_text
from glm53ctl.config.recipes import names
from glm53ctl.config.recipes.judge import why_not
from glm53ctl.config.recipes.shell import Assigned
from glm53ctl.config.recipes.work import Note, Taken, Verdict, Work, number

Handler = Callable[[Work, Assigned], None]

EMPTY = "it is empty, so the default stays"


def _switch(text: str) -> JsonValue:
    """Return a shell switch as a bool; anything else stays text and is judged by the schema."""
    return {"1": True, "true": True, "0": False, "false": False}.get(text.lower(), text)


def _value(path: str, text: str) -> JsonValue:
    """Return a variable's text as the value that its setting takes: a shell's, so no YAML."""
    keys = LEAVES[path].key
    if takes_bool(keys):
        return _switch(text)
    return text if takes_text(keys) else number(text)


def same(work: Work, variable: Assigned, path: str) -> None:
    """Take a value that its setting carries unchanged, but for names of values."""
    if not variable.value:
        work.note(variable, Verdict.NO_COUNTERPART, EMPTY)
        return
    words = names.WORDS.get(variable.name, {})
    value = _value(path, words.get(variable.value.lower(), variable.value))
    if variable.name in names.INVERTED and isinstance(value, bool):
        value = not value
    work.take(variable, path, value)


def _limit_mm(work: Work, variable: Assigned) -> None:
    """Read LIMIT_MM; a shell has removed the quotes of its JSON unless they were quoted."""
    for medium, path in (("image", "media.images"), ("video", "media.videos")):
        if found := re.search(rf"\b{medium}\b\W*(\d+)", variable.value):
            work.take(variable, path, int(found[1]))


def _context(work: Work, variable: Assigned) -> None:
    if variable.value == "0":
        reason = "vLLM has no largest window that fits: serve.max_model_len says one"
        work.note(variable, Verdict.NO_COUNTERPART, reason)
        return
    same(work, variable, "serve.max_model_len")


def _tokens_of(method: str) -> Handler:
    """Return the handler of a number of drafted tokens that counts for one method only."""

    def handle(work: Work, variable: Assigned) -> None:
        if work.taken.get("spec.method", Taken("dflash", 0, "")).value != method:
            work.note(variable, Verdict.NO_COUNTERPART, f"it counts only when {method} drafts")
            return
        same(work, variable, "spec.tokens")

    return handle


_DENSE_GROUPS = {"kda": "kda", "mla": "mla", "shared": "shared", "dense": "mlp"}
"""The recipe's names of the groups, and ours."""
_DENSE_WHOLE = {"all": "fp8", "on": "fp8", "1": "fp8"} | dict.fromkeys(
    ("off", "none", "no", "0"), "bf16"
)
"""The recipe's words for all groups and for none."""
_DENSE_WORDS = f"write all, off, or some of {', '.join(_DENSE_GROUPS)} with commas between them"


def _dense_fp8(work: Work, variable: Assigned) -> None:
    words = {word for word in map(str.strip, variable.value.lower().split(",")) if word}
    if not words:
        work.note(variable, Verdict.NO_COUNTERPART, EMPTY)
    elif len(words) == 1 and words <= _DENSE_WHOLE.keys():
        work.take(variable, "dense", _DENSE_WHOLE[words.pop()])
    elif words <= _DENSE_GROUPS.keys():
        for word in sorted(words):
            work.take(variable, f"dense_groups.{_DENSE_GROUPS[word]}", "fp8")
    else:
        work.note(variable, Verdict.INVALID, f"it names a group that is none: {_DENSE_WORDS}")


def _ablit_direction(work: Work, variable: Assigned) -> None:
    """Take the path of a vector; the recipe also knows directions by name."""
    if variable.value and not variable.value.endswith(".safetensors"):
        reason = (
            "no direction is shipped: export the recipe's vector to a .safetensors file and give "
            "its path in ablit.direction"
        )
        work.note(variable, Verdict.NO_COUNTERPART, reason)
        return
    same(work, variable, "ablit.direction")


def _thinking(work: Work, variable: Assigned) -> None:
    if _switch(variable.value) is False:
        work.take(variable, "thinking.default_effort", "none")
        return
    work.note(variable, Verdict.NO_COUNTERPART, "the model thinks unless told not to")


_PREFIX_CACHING = {"--enable-prefix-caching": True, "--no-enable-prefix-caching": False}
"""A flag that no setting carries unchanged, as the plan says it either way."""


def _extra_args(work: Work, variable: Assigned) -> None:
    """Take arguments one by one, so that one forbidden one does not cost the others.

    The recipe's shell splits the value at blanks and removes no quotes from it, so JSON keeps its
    own.
    """
    words = variable.value.split()
    by_flag = {s.knob.flag: path for path, s in LEAVES.items() if s.knob.flag}
    kept: list[JsonValue] = []
    for flag in argv.flags(words):
        path = by_flag.get(flag.name)
        if flag.name in _PREFIX_CACHING:
            work.take(variable, "serve.prefix_caching", _PREFIX_CACHING[flag.name])
        elif path and len(flag.values) <= 1:
            text = flag.values[0] if flag.values else "1"
            value = _value(path, text)
            if broken := why_not(work, path, value):
                work.note(variable, *broken)
            else:
                work.take(variable, path, value)
        elif broken := why_not(work, "engine.extra_args", list(flag.words)):
            work.note(variable, *broken)
        else:
            kept += flag.words
    if kept:
        work.take(variable, "engine.extra_args", kept)


_CG_ESTIMATE = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"


def _cg_estimate(work: Work, variable: Assigned) -> None:
    """Take the switch as the variable of vLLM that it is in the recipe."""
    if _switch(variable.value) is False:
        work.take(variable, "engine.extra_env", {_CG_ESTIMATE: "0"})
    else:
        work.note(variable, Verdict.NO_COUNTERPART, f"vLLM's default; {_CG_ESTIMATE} changes it")


def _extra_env(work: Work, variable: Assigned) -> None:
    """Take NAME=VALUE words one by one, beside what another line of the recipe made."""
    try:
        words = shlex.split(variable.value)
    except ValueError:
        work.note(variable, Verdict.INVALID, "its quotes do not match")
        return
    kept: dict[str, JsonValue] = {}
    for place, word in enumerate(words, 1):
        name, equals, value = word.partition("=")
        if not equals:
            reason = f"word {place} is no NAME=VALUE: write it so, blanks between the words"
            work.note(variable, Verdict.INVALID, reason)
            continue
        one: dict[str, JsonValue] = {name: value}
        if broken := why_not(work, "engine.extra_env", one):
            work.note(variable, *broken)
        else:
            kept |= one
    if not kept:
        return
    if earlier := work.taken.get("engine.extra_env"):
        work.notes.append(
            Note(earlier.line, earlier.key, Verdict.TAKEN, "part of engine.extra_env")
        )
        kept = {**cast("dict[str, JsonValue]", earlier.value), **kept}
    work.take(variable, "engine.extra_env", kept)


JUDGED_WORD_BY_WORD = frozenset({"EXTRA_ARGS", "GLM53_EXTRA_ENV"})
"""Lists whose words are judged one by one, beside everything else that was taken."""

HANDLERS: Mapping[str, Handler] = {
    "ABLIT_DIRECTION": _ablit_direction,
    "CG_ESTIMATE": _cg_estimate,
    "CONTEXT": _context,
    "DFLASH_TOKENS": _tokens_of("dflash"),
    "EXTRA_ARGS": _extra_args,
    "GLM53_DENSE_FP8": _dense_fp8,
    "GLM53_EXTRA_ENV": _extra_env,
    "LIMIT_MM": _limit_mm,
    "MTP_TOKENS": _tokens_of("mtp"),
    "THINKING": _thinking,
}
"""Names whose value needs more than a new name."""
