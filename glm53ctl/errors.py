"""The one exception that reaches a user: a sentence, a stable code and a way out."""

from dataclasses import dataclass

EXIT_BAD_INPUT = 2
"""Exit status for everything the caller can mend: arguments, files, settings."""

EXIT_NOT_READY = 3
"""Exit status of `status` and `ask` when the pair is not serving (as `systemctl is-active`)."""


@dataclass
class UserError(Exception):
    """Something the caller can mend.

    `code` is stable and searchable (`CFG_UNKNOWN_KEY`), `message` says what is wrong and where
    in one sentence, `fix` says what to do about it.
    """

    code: str
    message: str
    fix: str = ""
    exit_code: int = EXIT_BAD_INPUT

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" {self.fix}" if self.fix else "")
