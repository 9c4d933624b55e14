"""The profile that `glm53ctl switch` chose, as a node keeps it over reboots.

It outranks the file, and only as long as the file says what it said then: a profile that the owner
writes into the file later, by `nixos-rebuild` above all, is the newer word and wins.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from glm53ctl.config.schema import Config
from glm53ctl.files import replace_durably

NAME = "switched.json"
"""File in `paths.state_dir`, equal on all nodes: the head hands it on."""


class Switched(BaseModel):
    """Settings as `path=value` words, and the profile of the file that they replace.

    Without settings the file holds as it is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    instead_of: str = ""
    settings: tuple[str, ...] = ()

    def holds(self, config: Config) -> bool:
        """Say whether a configuration is what was switched to, and not a newer one."""
        return f'profile="{config.profile}"' in self.settings

    def __str__(self) -> str:
        words = [word.removeprefix("profile=").strip('"') for word in self.settings]
        return ", ".join(words) or "the configured profile"


def read_switched(state_dir: Path) -> Switched:
    """Return what is kept; nothing when there is no file. Raises OSError, ValueError."""
    try:
        return Switched.model_validate_json((state_dir / NAME).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return Switched()
    except ValidationError as error:
        raise ValueError(f"it is not what `switch` writes: {error.errors()[0]['msg']}") from error


def write_switched(state_dir: Path, switched: Switched) -> None:
    """Keep it, through a power cut as well. Raises OSError."""
    if switched.settings:
        replace_durably(state_dir / NAME, switched.model_dump_json() + "\n")
    else:
        (state_dir / NAME).unlink(missing_ok=True)
