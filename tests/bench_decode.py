"""The vLLM recipe's decode bench under its own command line.

python3 tests/bench_decode.py --phase structured --structured --runs 5 --max-tokens 400 \
    --skip-coherence --out /tmp/glm53-structured.json

`glm53ctl bench decode` measures the same and keeps it; this is for those who have the recipe's
line in their fingers or scripts. `--phase` is a label, as it was there. A key, where the server
asks for one, is taken from GLM53_BENCH_KEY.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from glm53ctl.bench import measure
from glm53ctl.bench.client import Server
from glm53ctl.errors import EXIT_NOT_READY, UserError


def at_least(fewest: int) -> Callable[[str], int]:
    """Return argparse's type of a whole number that is not below `fewest`."""

    def number(word: str) -> int:
        if int(word) < fewest:
            raise argparse.ArgumentTypeError(f"{word} is too few, {fewest} at least")
        return int(word)

    return number


def main() -> int:
    """Measure and write the cases; 1 when an answer was not sane, 3 when none came or no more."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--phase", default="decode", help="label of the results")
    parser.add_argument("--structured", action="store_true", help="count; otherwise prose")
    parser.add_argument("--runs", type=at_least(1), default=5)
    parser.add_argument("--max-tokens", type=at_least(2), default=400)
    parser.add_argument("--skip-coherence", action="store_true")
    parser.add_argument("--concurrency", type=at_least(1), action="append")
    parser.add_argument("--url", default="http://127.0.0.1:8888")
    parser.add_argument("--model", default="GLM-5.3-Flash-EXL3")
    parser.add_argument("--out", type=Path)
    said = parser.parse_args()
    try:
        measured = asyncio.run(
            measure.decode(
                Server(
                    said.url.rstrip("/").removesuffix("/v1"),
                    said.model,
                    os.environ.get("GLM53_BENCH_KEY"),
                ),
                ["structured" if said.structured else "prose"],
                said.concurrency or [1],
                said.runs,
                said.max_tokens,
                lambda line: print(line, file=sys.stderr),
                coherence=not said.skip_coherence,
            )
        )
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    cases = [case.model_dump(mode="json") for case in measured.cases]
    result = {"phase": said.phase, "cases": cases, "faults": measured.faults}
    text = json.dumps(result, indent=1)
    if said.out is not None:
        said.out.write_text(text + "\n", encoding="utf-8")
    print(text)
    if measured.cut:
        print(measured.cut, file=sys.stderr)
        return EXIT_NOT_READY
    return 1 if measured.faults else 0


if __name__ == "__main__":
    sys.exit(main())
