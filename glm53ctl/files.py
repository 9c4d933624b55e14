"""Files that are replaced as a whole: a reader finds the old text or the new one, never half."""

import os
from pathlib import Path


def replace_text(file: Path, text: str) -> None:
    """Replace a file that only one process writes. Raises OSError."""
    fresh = file.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, file)


def replace_durably(file: Path, text: str) -> None:
    """Replace a file, for several writers and through a power cut as well. Raises OSError.

    Its directory is made when it is missing.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.{os.getpid()}.new")
    with fresh.open("w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(fresh, file)
