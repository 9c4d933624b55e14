"""Where the secrets of a service are: what systemd gave this process, or will give its unit."""

from collections.abc import Mapping
from pathlib import Path

NAMES = ("api-key", "pair-token", "hf-token")
OF_HEAD = frozenset({"api-key"})
"""Those that only the head needs, since only the head listens: a worker is not asked for them."""
STORE = Path("/etc/credstore")
SEALED = Path("/etc/credstore.encrypted")
"""Where `systemd-creds encrypt` leaves them. Only a unit that is told to can read these."""
PREFIX = "glm53."
"""The units load `glm53.api-key` from the store as `api-key`: see services/."""


def stored(name: str, store: Path = STORE) -> Path:
    """Return where an operator puts a credential."""
    return store / f"{PREFIX}{name}"


def find(name: str, environ: Mapping[str, str], store: Path = STORE) -> Path | None:
    """Return the file of a credential; None when there is none, or none that this user may see.

    In a unit it is in the directory that systemd made for it. A command in an operator's shell has
    no such directory and looks where the unit's come from.
    """
    directory = environ.get("CREDENTIALS_DIRECTORY")
    path = Path(directory, name) if directory else stored(name, store)
    try:
        return path if path.exists() else None
    except OSError:
        return None


def is_given(
    name: str, environ: Mapping[str, str], store: Path = STORE, sealed: Path = SEALED
) -> bool:
    """Say whether a unit gets a credential: unlike `find`, also of one that no command can read."""
    in_unit = "CREDENTIALS_DIRECTORY" in environ
    return find(name, environ, store) is not None or (
        not in_unit and find(name, {}, sealed) is not None
    )
