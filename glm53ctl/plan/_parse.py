"""Run vLLM's own argument parser. Executed by path, by the engine's Python; imports only vLLM.

Reads `{"argv": [...]}` on standard input and answers with one JSON object on standard output:
`{"version": ..., "values": {...}}` or `{"version": ..., "refusal": "vLLM's sentence"}`.
"""

import importlib
import json
import os
import sys
from typing import Any, NoReturn

HOMES = (
    "vllm.entrypoints.common.cli_args",  # 0.33.0
    "vllm.entrypoints.launchers.cli_args",  # 0.32.0
)
"""Modules that hold `make_arg_parser`, newest first."""


class RefusalError(Exception):
    """What the parser says instead of leaving the process."""


def _refuse(status: int = 0, message: str | None = None) -> NoReturn:
    raise RefusalError((message or f"exit {status}").strip())


def _cli_args() -> Any:
    for name in HOMES:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in (name, name.rpartition(".")[0]):
                raise
    raise ModuleNotFoundError(f"no argument parser in {', '.join(HOMES)}")


def parse(argv: list[str]) -> dict[str, object]:
    """Return the values that `vllm ARGV` would start with, or raise what vLLM raises."""
    cli_args = _cli_args()
    # Only importable where vLLM is.
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser: Any = FlexibleArgumentParser(prog="vllm")
    serve = parser.add_subparsers(dest="subparser").add_parser("serve", prog="vllm serve")
    cli_args.make_arg_parser(serve)
    for each in (parser, serve):
        each.exit = _refuse
        each.print_usage = lambda file=None: None
    values = parser.parse_args(argv)
    cli_args.validate_parsed_serve_args(values)
    return dict(vars(values))


def main() -> None:
    """Answer one question."""
    # vLLM logs to standard output: keep that for the answer alone.
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    argv = json.load(sys.stdin)["argv"]
    from vllm.version import __version__ as version

    try:
        result: dict[str, object] = {"values": parse(argv)}
    except (RefusalError, ValueError, TypeError) as error:
        result = {"refusal": str(error)}
    with answer:
        json.dump({"version": version, **result}, answer, default=str)


if __name__ == "__main__":
    main()
