"""A bench as proof: what the new profile reaches of what the ledger holds of the old one."""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from pydantic import ValidationError

from glm53ctl.bench.commands import parameters_of
from glm53ctl.bench.compare import compare
from glm53ctl.bench.ledger import NAME, read
from glm53ctl.bench.result import Result
from glm53ctl.config.schema import Config
from glm53ctl.config.sources import digest
from glm53ctl.errors import UserError


@dataclass(frozen=True)
class Proof:
    """A bench to run: its words after `glm53ctl bench`, and the share of each case to reach."""

    words: tuple[str, ...]
    min_ratio: float
    before: tuple[Result, ...]

    @classmethod
    def of(cls, command: str, min_ratio: float, config: Config) -> "Proof":
        """Take what the ledger holds of the running configuration as the measure."""
        try:
            words = tuple(shlex.split(command))
        except ValueError as error:
            raise UserError(
                "SWITCH_BENCH",
                f"--bench {command!r} is no command line ({error}).",
                "Write it as after `glm53ctl bench`: --bench 'decode --runs 5'.",
            ) from error
        kept = _results(config, words)
        if not kept:
            raise UserError(
                "SWITCH_NO_MEASURE",
                f"the ledger holds no `bench {command}` of what runs now, asked alike.",
                f"Measure it first: `glm53ctl bench {command}`.",
            )
        return cls(words, min_ratio, kept)

    def fault(self, options: Sequence[str]) -> str | None:
        """Measure the new configuration; return what falls short, or None.

        The bench is the command that an owner runs, so that its result is in the ledger as well.
        """
        program = [sys.executable, "-m", "glm53ctl", "bench", *self.words, *options, "--json"]
        done = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            return f"`bench {shlex.join(self.words)}` ended with status {done.returncode}"
        try:
            found = Result.model_validate_json(done.stdout)
        except ValidationError:
            return f"`bench {shlex.join(self.words)}` printed no result"
        return shortfall(self.before, (found,), self.min_ratio)


def _results(config: Config, words: Sequence[str]) -> tuple[Result, ...]:
    """Return what the same bench, asked with the same parameters, found of a configuration."""
    asked, wanted = parameters_of(words), digest(config)
    if asked is None:
        return ()
    return tuple(
        one
        for one in read(Path(config.paths.state_dir) / NAME)
        if (one.kind, one.parameters, one.identity.config_digest) == (words[0], asked, wanted)
    )


def shortfall(before: Sequence[Result], after: Sequence[Result], min_ratio: float) -> str | None:
    """Return the worst case below `min_ratio` of before, as a sentence; None when none is.

    A ratio is that of the middles, turned round where lower is better. A case that was 0 has none,
    and no case in common proves nothing.
    """
    lower = {case.name for result in after for case in result.cases if case.lower_is_better}
    ratios = {
        change.name: _reached(change.ratio, lower_is_better=change.name in lower)
        for change in compare(before, after)
        if change.ratio is not None
    }
    if not ratios:
        return "the bench has no case in common with what the ledger holds, but what was 0 there"
    name = min(ratios, key=lambda case: ratios[case])
    if ratios[name] >= min_ratio:
        return None
    return f"{name} reaches {ratios[name]:.2f} of what it was, {min_ratio:.2f} are wanted"


def _reached(ratio: float, *, lower_is_better: bool) -> float:
    if not lower_is_better:
        return ratio
    return 1 / ratio if ratio else inf
