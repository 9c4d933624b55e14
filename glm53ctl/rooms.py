"""Commands of other rooms, imported when they are asked for: `status` shall not pay for `bench`."""

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup


@dataclass(frozen=True)
class Room:
    """Where a command is: `module:name` of a typer app, or of the function of one command."""

    place: str
    hidden: bool = False

    def command(self, name: str) -> Any:
        """Import it and return what typer makes of it, which has no public type."""
        module, _, attribute = self.place.partition(":")
        found = getattr(import_module(module), attribute)
        outer = typer.Typer(add_completion=False)
        outer.callback()(lambda: None)  # or typer makes one command of a program that has one
        if isinstance(found, typer.Typer):
            outer.add_typer(found, name=name)
        else:
            outer.command(name, hidden=self.hidden)(found)
        program: Any = typer.main.get_command(outer)
        return program.commands[name]


ROOMS = {
    "bench": Room("glm53ctl.bench.commands:app"),
    "doctor": Room("glm53ctl.checks.commands:app"),
    "explain": Room("glm53ctl.diagnose.commands:explain_command"),
    "page": Room("glm53ctl.page.commands:page_command"),
    "prepare": Room("glm53ctl.prepare:prepare_command", hidden=True),
    "reclaim": Room("glm53ctl.prepare:reclaim_command", hidden=True),
    "support-bundle": Room("glm53ctl.bundle.commands:bundle_command"),
    "switch": Room("glm53ctl.switch.commands:switch_command"),
    "weights": Room("glm53ctl.weights.commands:app"),
}


class _Commands(MutableMapping[str, Any]):
    """Commands by name; those of a room are made when they are looked at."""

    def __init__(self, made: MutableMapping[str, Any]) -> None:
        self._made = dict(made)

    def __getitem__(self, name: str) -> Any:
        if name not in self._made and name in ROOMS:
            self._made[name] = ROOMS[name].command(name)
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._made, *ROOMS)))

    def __len__(self) -> int:
        return len(self._made.keys() | ROOMS.keys())


class Program(TyperGroup):
    """The program's own commands, and those of the rooms."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands(self.commands)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all, without importing any."""
        return list(self.commands)
