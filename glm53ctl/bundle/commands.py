"""`glm53ctl support-bundle`: parse, call, print."""

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from glm53ctl.errors import UserError
from glm53ctl.options import ConfigOption

if TYPE_CHECKING:
    from collections.abc import Mapping

# The rest is imported where it is used: other commands shall not pay for it.


def bundle_command(
    file: Annotated[
        Path | None, typer.Argument(help="A .tar.gz; left out, glm53-support-DATE.tar.gz here.")
    ] = None,
    config: ConfigOption = None,
    rank: Annotated[
        int | None, typer.Option("--rank", min=0, max=3, help="Rank of this host.")
    ] = None,
    lines: Annotated[int, typer.Option(min=1, help="Lines of each log.")] = 2000,
) -> None:
    """Pack what a stranger needs to help: without keys, prompts, addresses and names."""
    target = file or Path(time.strftime("glm53-support-%Y%m%d-%H%M%S.tar.gz"))
    members = _members(config, rank, lines)
    try:
        pack(target, members)
    except OSError as error:
        raise UserError(
            "FILE_REFUSED", f"{target}: {error.strerror}.", "Name another place."
        ) from error
    print(f"{target}: {len(members)} files. Look through it before you send it.")


def _members(config: Path | None, rank: int | None, lines: int) -> "dict[str, str]":
    from glm53ctl.bundle import collect
    from glm53ctl.config.sources import DEFAULT_FILE, ConfigError, load
    from glm53ctl.facts.here import require_rank

    try:
        loaded = load(config, rules=False)
    except ConfigError as error:  # which may be why somebody asks for help
        text = ""
        with suppress(OSError):
            text = (config or DEFAULT_FILE).read_text(encoding="utf-8", errors="replace")
        return collect.collect_unconfigured(error, lines, collect.redactor_of_text(text))
    here = require_rank(loaded.config, rank)
    return collect.collect(loaded, here, lines, collect.redactor_of(loaded.config))


def pack(target: Path, members: "Mapping[str, str]") -> None:
    """Write texts as a .tar.gz that only this user may read. Raises OSError.

    Owners and times are not this host's.
    """
    import io
    import os
    import tarfile

    file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.fchmod(file, 0o600)  # one that was there keeps its mode
    with os.fdopen(file, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, text in members.items():
            data = text.encode()
            entry = tarfile.TarInfo(f"glm53-support/{name}")
            entry.size, entry.mode = len(data), 0o600
            archive.addfile(entry, io.BytesIO(data))
