"""What every section of the configuration shares: strictness, and what is known of a knob."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo


@dataclass(frozen=True)
class Knob:
    """Facts about a setting beyond its type, kept beside it so that they exist once.

    `flag` is the `vllm serve` option that carries the value unchanged (a bool becomes a bare
    switch); settings that need more than that are rendered by `plan`. `vllm_recipe` and
    `tensorfold` are the names under which the two shell recipes keep the same setting.
    `node_local` settings may differ between the nodes and stay out of the config digest.
    """

    flag: str | None = None
    vllm_recipe: str | None = None
    tensorfold: str | None = None
    node_local: bool = False


class Section(BaseModel):
    """A group of settings. Unknown keys are errors; values never change after loading."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        allow_inf_nan=False,
    )


@dataclass(frozen=True)
class Setting:
    """One leaf of the schema: its dotted path, its section, its pydantic field and its knob."""

    path: str
    section: type[Section]
    field: FieldInfo
    knob: Knob

    @property
    def key(self) -> tuple[str, ...]:
        """The path as keys to follow through nested mappings."""
        return tuple(self.path.split("."))


def _section_of(annotation: Any) -> type[Section] | None:
    """Return the section class that an annotation names, looking through `X | None`."""
    options = (
        get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    )
    for option in options:
        if isinstance(option, type) and issubclass(option, Section):
            return option
    return None


def settings(section: type[Section], prefix: str = "") -> Iterator[Setting]:
    """Walk a section class and yield every leaf, in the order of definition.

    A list of sections (`nodes`) is one leaf: its items have no fixed path.
    """
    for name, field in section.model_fields.items():
        path = f"{prefix}{name}"
        inner = _section_of(field.annotation)
        if inner is not None:
            yield from settings(inner, f"{path}.")
            continue
        knob = next((m for m in field.metadata if isinstance(m, Knob)), Knob())
        yield Setting(path, section, field, knob)
