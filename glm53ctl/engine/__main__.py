"""`python -m glm53ctl.engine PREFIX [PYTHON]`: what `make setup` runs."""

import sys
from pathlib import Path

from glm53ctl.engine.install import install
from glm53ctl.errors import EXIT_BAD_INPUT, UserError


def main(arguments: list[str]) -> int:
    """Install the engine and return the exit status."""
    if len(arguments) not in (1, 2):
        print("usage: python -m glm53ctl.engine PREFIX [PYTHON]", file=sys.stderr)
        return EXIT_BAD_INPUT
    prefix, *python = arguments
    try:
        install(Path(prefix), python=python[0] if python else None, report=_say)
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped; the same command takes it up again", file=sys.stderr)
        return 130
    return 0


def _say(line: str) -> None:
    print(f"engine: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
