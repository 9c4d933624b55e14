"""`make pair-soak`: random faults in a row, by a seed; the service returns each time.

A quarter of the faults hit while the pair is still starting after the one before. The run ends at
the first time that the service does not return, or is HELD; the record says which fault it was.
Each run is added to soak.json.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .faults import FAULTS, Fault
from .measure import Client
from .serving import ServingPair
from .side import START_SECONDS
from .table import machine, product_bed

RECORD = Path(__file__).with_name("soak.json")
EARLY = 0.25
"""Share of the faults that do not wait until the pair serves."""
CALM_SECONDS = 10.0
"""Longest pause between service and the next fault."""


@dataclass
class Soak:
    """One run."""

    pair: ServingPair
    dice: random.Random
    done: list[dict[str, Any]] = field(default_factory=list)

    def run(self, count: int, until: float) -> str:
        """Do `count` faults; return why it ended: "all returned", or what did not."""
        pool = [fault for fault in FAULTS if fault.follows != "refuse"]
        self.pair.until_ready()
        while len(self.done) < count:
            if time.monotonic() > until:
                return "out of time"
            fault = self.dice.choice(pool)
            at = time.monotonic()
            try:
                fault.hurt(self.pair)
            except AssertionError:  # what it would hurt is not there while the pair starts
                continue
            self._pause(self.dice.uniform(0, CALM_SECONDS))
            fault.mend(self.pair)
            early = self.dice.random() < EARLY
            if not early and (trouble := self._returns()):
                return f"after {fault.name}: {trouble}"
            self._note(fault, early, time.monotonic() - at)
        return self._returns() or "all returned"

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.1)

    def _returns(self) -> str | None:
        """Wait for service; return what is wrong if it does not come."""
        limit = time.monotonic() + START_SECONDS
        while time.monotonic() < limit:
            state = self.pair.snapshot()
            if state.state == "held":
                return self.pair.said()
            if state.ready and self.pair.serves():
                return None
            time.sleep(0.5)
        return self.pair.said()

    def _note(self, fault: Fault, early: bool, seconds: float) -> None:
        self.done.append({"fault": fault.name, "waited": not early, "seconds": round(seconds, 1)})
        print(f"{len(self.done):4} {fault.name:20} {seconds:6.1f} s", flush=True)


def main(arguments: list[str]) -> int:
    """Run, and add the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=600.0)
    chosen = parser.parse_args(arguments)
    with product_bed() as (bed, settings), tempfile.TemporaryDirectory() as folder:
        pair = ServingPair(bed, Path(folder), settings)
        pair.install()
        bed.reboot(*pair.hosts)
        soak = Soak(pair, random.Random(chosen.seed))  # noqa: S311 - a seed, no secret
        with Client(pair) as client:
            outcome = soak.run(chosen.faults, time.monotonic() + chosen.minutes * 60)
        evidence = "" if outcome in ("all returned", "out of time") else pair.evidence()
    record = {
        "seed": chosen.seed,
        "faults": len(soak.done),
        "outcome": outcome,
        "longest_silence_s": round(client.longest, 1),
        "machine": machine(),
        "done": soak.done,
    }
    known = json.loads(RECORD.read_text()) if RECORD.exists() else []
    RECORD.write_text(json.dumps([*known, record], indent=1) + "\n")
    print(evidence)
    print(f"{len(soak.done)} faults, seed {chosen.seed}: {outcome}")
    return 0 if not evidence else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
