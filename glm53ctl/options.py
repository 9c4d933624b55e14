"""Options that several commands take, with one wording."""

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", envvar="GLM53CTL_CONFIG", help="Configuration file."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
