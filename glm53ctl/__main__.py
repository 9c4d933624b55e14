"""The program's entry, also in the form in which it starts its own ranks: `python -m glm53ctl`."""

import gc
import os
from typing import NoReturn


def main() -> NoReturn:
    """Load the program without what only costs time, and run it."""
    gc.disable()  # what is imported stays: to look for garbage in it is in vain
    # Pydantic would search all installed packages for plugins of its own; we use none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from glm53ctl.cli import main as run

    gc.freeze()
    gc.enable()
    run()


if __name__ == "__main__":
    main()
