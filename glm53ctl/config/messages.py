"""Pydantic's errors as one clear sentence each: what is wrong, what was given, what is allowed."""

import difflib

from pydantic import JsonValue
from pydantic_core import ErrorDetails

from glm53ctl.config.catalog import Keys, allowed, dotted, fields_at, nearest
from glm53ctl.config.masks import shown

_FIX_NODES = (
    "List both machines under `nodes`, head first, with `name` and `address` (the fabric's)."
)


def unknown_key(path: str, suggestion: str | None) -> tuple[str, str]:
    """Return message and fix for a key that no setting has."""
    fix = f"Did you mean {suggestion}?" if suggestion else "Remove it."
    return f"There is no setting {path}.", fix


def is_section(path: str, value: JsonValue) -> str:
    """Return the message for a section that was given a single value."""
    return f"{path} is a section with settings below it, not the value {shown(path, value)}."


def _unknown_member(keys: Keys) -> tuple[str, str]:
    """Return message and fix for an unknown key in an item of a list (a node)."""
    close = difflib.get_close_matches(str(keys[-1]), fields_at(keys[:-1]), n=1)
    return unknown_key(dotted(keys), close[0] if close else nearest(str(keys[-1])))


def _given(keys: Keys, error: ErrorDetails) -> str:
    return f"{dotted(keys)} is {shown(dotted(keys), error['input'])}"


def sentence(keys: Keys, error: ErrorDetails) -> tuple[str, str, str]:
    """Return code, message and fix of one error that pydantic found at a place."""
    kind = error["type"]
    if kind == "missing":
        fix = _FIX_NODES if keys == ("nodes",) else f"Give {allowed(keys)}."
        return "CFG_MISSING", f"{dotted(keys)} is missing.", fix
    if kind == "extra_forbidden":
        return "CFG_UNKNOWN_KEY", *_unknown_member(keys)
    code = "CFG_TYPE" if kind.endswith(("_type", "_from_float", "_parsing")) else "CFG_RANGE"
    return code, f"{_given(keys, error)}; it must be {allowed(keys)}.", ""
