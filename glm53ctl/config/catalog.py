"""The schema as a flat catalogue: paths, types in words, names in the environment, near misses."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, MinLen
from pydantic.fields import FieldInfo

from glm53ctl.config.schema import Config, Section, Setting, settings

Keys = tuple[str | int, ...]
"""A place in nested values: section and field names, list positions."""

LEAVES: Mapping[str, Setting] = {setting.path: setting for setting in settings(Config)}
"""Every setting by its dotted path."""

SECTIONS: frozenset[str] = frozenset(
    ".".join(setting.key[:depth])
    for setting in LEAVES.values()
    for depth in range(1, len(setting.key))
)
"""Every path that groups settings."""

ENV_PREFIX = "GLM53_"


def env_name(path: str) -> str:
    """Return the environment variable of a setting (`serve.port` -> `GLM53_SERVE__PORT`)."""
    return ENV_PREFIX + path.replace(".", "__").upper()


ENV_NAMES: Mapping[str, str] = {env_name(path): path for path in LEAVES}
"""Settings by their environment variable."""


def dotted(keys: Keys) -> str:
    """Return keys as a path for people (`nodes.1.address`)."""
    return ".".join(map(str, keys))


def leaf_of(keys: Keys) -> str | None:
    """Return the setting that a place lies in (`nodes.1.address` lies in `nodes`)."""
    paths = (dotted(keys[:depth]) for depth in range(1, len(keys) + 1))
    return next((path for path in paths if path in LEAVES), None)


# --- types ---------------------------------------------------------------------------------------


def _options(annotation: Any) -> tuple[Any, ...]:
    """Return what a type may be, without None."""
    if get_origin(annotation) in (Union, UnionType):
        return tuple(option for option in get_args(annotation) if option is not type(None))
    return (annotation,)


def _inside(annotation: Any, key: str | int) -> tuple[Any, FieldInfo | None]:
    """Return the type of one member of a section, list or mapping."""
    for option in _options(annotation):
        if isinstance(option, type) and issubclass(option, Section):
            field = option.model_fields.get(str(key))
            return (field.annotation, field) if field else (None, None)
        if get_origin(option) is tuple:
            return get_args(option)[0], None
        if get_origin(option) is dict:
            return get_args(option)[1], None
    return None, None


def _type_at(keys: Keys) -> tuple[Any, FieldInfo | None]:
    annotation: Any = Config
    field: FieldInfo | None = None
    for key in keys:
        annotation, field = _inside(annotation, key)
    return annotation, field


def takes_text(keys: Keys) -> bool:
    """Say whether a place takes text only: `on` or `007` there is no switch and no number."""
    annotation, _ = _type_at(keys)
    return annotation is not None and all(
        option in (str, IPv4Address) or get_origin(option) is Literal
        for option in _options(annotation)
    )


def takes_null(keys: Keys) -> bool:
    """Say whether a place may be left empty on purpose."""
    annotation, _ = _type_at(keys)
    return type(None) in get_args(annotation)


def takes_bool(keys: Keys) -> bool:
    """Say whether a place is a switch."""
    return bool in _options(_type_at(keys)[0])


def fields_at(keys: Keys) -> list[str]:
    """Return the field names of the section at a place, list items included."""
    for option in _options(_type_at(keys)[0]):
        if isinstance(option, type) and issubclass(option, Section):
            return list(option.model_fields)
    return []


_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    IPv4Address: "an IPv4 address",
}


def _limited(words: str, bounds: Iterable[str]) -> str:
    return ", ".join([words, *bounds]).replace(", from", " from")


def _words(annotation: Any) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:  # an item of a list with limits of its own
        fields = (field for field in args[1:] if isinstance(field, FieldInfo))
        return _limited(_words(args[0]), (bound for field in fields for bound in _bounds(field)))
    if origin is Literal:
        return "one of " + ", ".join(map(str, args)) if len(args) > 1 else str(args[0])
    if origin is tuple:
        item = args[0]
        if isinstance(item, type) and issubclass(item, Section):
            return f"a list of mappings with {', '.join(item.model_fields)}"
        return f"a list ({_words(item)})"
    if origin is dict:
        return "a mapping of names to text"
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return f"a mapping with {', '.join(annotation.model_fields)}"
    return _WORDS.get(annotation, "a value")


def _bounds(field: FieldInfo) -> Iterator[str]:
    """Yield the limits of a field in words."""
    limits: dict[type, Any] = {type(limit): limit for limit in field.metadata}
    low, more, high = (limits.get(kind) for kind in (Ge, Gt, Le))
    if low and high:
        yield f"from {low.ge} to {high.le}"
    elif low:
        yield f"{low.ge} or more"
    elif more:
        yield f"more than {more.gt}" + (f" and at most {high.le}" if high else "")
    if MinLen in limits:
        yield "not empty"
    if field.examples:
        yield f"like {field.examples[0]}"


def allowed(keys: Keys) -> str:
    """Return in words what a place may hold (`a whole number from 1 to 256`)."""
    annotation, field = _type_at(keys)
    words = " or ".join(_words(option) for option in _options(annotation))
    if field is not None:
        words = _limited(words, _bounds(field))
    return words + (" (or null)" if takes_null(keys) else "")


# --- near misses ---------------------------------------------------------------------------------


def _snake(name: str) -> str:
    """Return `maxModelLen` and `max-model-len` as `max_model_len`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()


def _last(path: str) -> str:
    return path.rsplit(".", 1)[-1]


def recipe_paths() -> dict[str, str]:
    """Return settings by the names that the two shell recipes give them."""
    return {
        name: path
        for path, setting in LEAVES.items()
        for name in (setting.knob.vllm_recipe, setting.knob.tensorfold)
        if name and "." not in name
    }


def nearest(path: str) -> str | None:
    """Return the known path that an unknown one most likely means, across all sections."""
    if renamed := recipe_paths().get(_last(path).upper().replace("-", "_")):
        return renamed
    wanted = ".".join(map(_snake, path.split(".")))
    known = [*LEAVES, *sorted(SECTIONS)]
    namesakes = [candidate for candidate in known if _last(candidate) == _last(wanted)]
    if namesakes:
        close = difflib.get_close_matches(wanted, namesakes, n=1, cutoff=0.0)
        return close[0] if close else namesakes[0]
    if longer := [candidate for candidate in LEAVES if candidate.startswith(wanted)]:
        return longer[0]
    if close := difflib.get_close_matches(wanted, known, n=1, cutoff=0.75):
        return close[0]
    by_last = {_last(candidate): candidate for candidate in reversed(known)}
    close = difflib.get_close_matches(_last(wanted), list(by_last), n=1, cutoff=0.75)
    return by_last[close[0]] if close else None
