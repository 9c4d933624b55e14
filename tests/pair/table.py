"""`make pair-table`: every fault on both sides, again and again, into results.json and a page.

Each round has the faults in another random order, which its number decides: one pair lives through
all of them, so that this is a soak as well. A run goes on where an earlier one ended: each
measurement is written down at once, and what has its repeats already is left out. `--minutes` ends
it in time. Page and picture are made of results.json alone.
"""

import argparse
import contextlib
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from glm53ctl.config.schema import Config
from glm53ctl.demo.run import DemoFiles

from .bed import CHECKOUT, Bed, BedError, Product
from .faults import BY_NAME, FAULTS, Fault
from .measure import CLIENT_SECONDS, MEND_SECONDS, SERVE_SECONDS, measure
from .picture import draw
from .plain import PlainPair
from .serving import HASTE, ServingPair, demo_settings, running
from .side import Side

RESULTS = Path(__file__).with_name("results.json")
PAGE = CHECKOUT / "docs/reliability.md"
PICTURE = PAGE.with_suffix(".svg")
SIDES: tuple[type[Side], ...] = (ServingPair, PlainPair)
REPEATS = 5
FIELDS = ("detect_s", "stopped_s", "serving_s")


# --- results -------------------------------------------------------------------------------------


def read() -> dict[str, Any]:
    """Return what has been measured so far."""
    if RESULTS.exists():
        found: dict[str, Any] = json.loads(RESULTS.read_text())
        return found
    return {"machines": [], "faults": []}


def entry(results: dict[str, Any], fault: str, side: str) -> dict[str, Any]:
    """Return the entry of a fault on a side, made if it is missing."""
    for known in results["faults"]:
        if (known["fault"], known["side"]) == (fault, side):
            return known  # type: ignore[no-any-return]
    made = {"fault": fault, "side": side, **dict.fromkeys(FIELDS), "repeats": 0, "runs": []}
    results["faults"].append(made)
    return made


def add(results: dict[str, Any], fault: str, side: str, run: dict[str, Any]) -> None:
    """Add a measurement; medians follow."""
    known = entry(results, fault, side)
    known["runs"].append(run)
    known["repeats"] = len(known["runs"])
    for field in FIELDS:
        known[field] = middle([run[field] for run in known["runs"]])
    fresh = RESULTS.with_suffix(".new")
    fresh.write_text(json.dumps(results, indent=1) + "\n")
    fresh.replace(RESULTS)


def middle(values: list[float | None]) -> float | None:
    """Return the median, where None is later than every number."""
    found = median(float("inf") if value is None else value for value in values)
    return None if found == float("inf") else round(found, 2)


def machine() -> dict[str, str]:
    """Say where and on what the figures were measured."""
    commit = _git("rev-parse", "--short", "HEAD")
    # What is measured is written down meanwhile.
    others = (f":!{file.relative_to(CHECKOUT)}" for file in (RESULTS, PAGE, PICTURE))
    changed = _git("status", "--porcelain", "--", ".", *others)
    model = next(
        (x.split(":")[1].strip() for x in Path("/proc/cpuinfo").read_text().splitlines()
         if x.startswith("model name")), platform.machine(),
    )  # fmt: skip
    return {
        "commit": f"{commit}{' and changes' if changed else ''}",
        "cpu": f"{os.cpu_count()} cores {model}",
        "kernel": platform.release(),
        "load": f"{os.getloadavg()[2]:.1f}",
    }


def _git(*words: str) -> str:
    command = ["git", "-C", str(CHECKOUT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


# --- measuring -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """What a run is to measure."""

    faults: tuple[Fault, ...]
    sides: tuple[type[Side], ...]
    repeats: int
    until: float

    def missing(self, results: dict[str, Any], side: type[Side]) -> Iterator[Fault]:
        """Yield the faults that a side still lacks, round by round, until the time is over."""
        for round_number in range(1, self.repeats + 1):
            order = random.Random(round_number).sample(self.faults, len(self.faults))  # noqa: S311
            for fault in order:
                if side is PlainPair and not fault.plain:
                    continue
                if time.monotonic() > self.until:
                    return
                if entry(results, fault.name, side.name)["repeats"] < round_number:
                    yield fault


def run(wanted: Wanted) -> None:
    """Measure what is missing."""
    results = read()
    here = machine()
    results["machines"] = [*[m for m in results["machines"] if m != here], here]
    with product_bed() as (bed, settings), tempfile.TemporaryDirectory() as folder:
        for kind in wanted.sides:
            place = Path(folder) / kind.name
            place.mkdir()
            _measure_side(kind(bed, place, settings), wanted, results)


@contextlib.contextmanager
def product_bed() -> Iterator[tuple[Bed, dict[str, Any]]]:
    """Boot the bed with the product of this checkout; yield it and the demo's configuration."""
    bed = Bed()
    files = DemoFiles(bed.state / "demo")
    product = Product.of(CHECKOUT, files.model)
    if reason := product.why_not():
        raise BedError(f"{reason}.")
    with running(bed, product):
        yield bed, demo_settings(files, product)


def _measure_side(side: Side, wanted: Wanted, results: dict[str, Any]) -> None:
    side.install()
    side.bed.reboot(*side.hosts)
    for fault in wanted.missing(results, type(side)):
        try:
            seen = measure(side, fault).as_json()
        except AssertionError as error:  # a side that even a hand cannot bring back
            print(f"{side.name} {fault.name}: {error}\n{side.evidence()}", file=sys.stderr)
            raise
        add(results, fault.name, side.name, seen)
        print(f"{time.strftime('%H:%M:%S')} {side.name:6} {fault.name:20} {seen}", flush=True)
    side.remove()


# --- the page ------------------------------------------------------------------------------------

_HEAD = """\
# What a fault costs

Two systemd hosts on one machine (`tests/pair`), joined by two 9000-byte rails, with the real CPU
engine and the demo model: every fault was done to the pair as the units of `services/` keep it
("glm53"), and to two `vllm serve` units with `Restart=on-failure` ("plain"), with the same engine,
model and flags. A client asks for a token each second throughout. Seconds, as medians of so many
repeats as the last column says (glm53, plain). `-`: not measured, or there is nothing to see.

- *noticed*: until the side itself says that something is wrong (`glm53ctl status`; for plain units
  `systemctl is-active` and `/health`)
- *stopped*: until no process of either engine is left on the hosts that are alive
- *serving*: until a client gets the right answer again, counted from the fault, or from when the
  world has mended what it mends (power, cables, the right file), which it does {mend:.0f} s later
  at most. 0: no request failed. "never": not within some {serve:.0f} s, or no unit is left that
  would start it.

A start of the CPU engine takes most of *serving* and is the same for both sides. What a Spark's
takes is unproven on GB10.

Rounds would mostly wait for some settings. These are the rounds', in brackets an owner's:
{haste}.
An owner's pair takes that much longer where one of them decides. Above all it notices silence, as
after a loss of power, in 90 s and not in 5, because requests survive a cable that is out for less
(`tests/pair/test_service.py`): the four breaks of a rail below would cost it what they cost the
plain units. Where memory runs out it ends both engines at its floor, though the program that eats
the memory is made the kernel's first victim here, and plain engines may outlive it. Without the
main process of its worker a plain pair serves on (0), by an orphan that no unit knows.

![What both sides make of the same faults](reliability.svg)

| fault | noticed: glm53 | plain | stopped: glm53 | plain | serving: glm53 | plain | repeats |
|---|---|---|---|---|---|---|---|
"""
_SAID = """
## What status says

| fault | `glm53ctl status` |
|---|---|
"""
_FOOT = """
Not in the table: a jump of the clock by an hour. Two hosts on one kernel share its clock; the rules
of the supervisor that count time are deaf to it, which a unit test shows
(`tests/unit/supervise/test_clock.py`).

Measured on:

| commit | processor | kernel | load before |
|---|---|---|---|
"""


def page(results: dict[str, Any]) -> str:
    """Return the page that shows the results."""
    text = _HEAD.format(mend=MEND_SECONDS, serve=SERVE_SECONDS, haste=_haste())
    said = _SAID
    for fault in FAULTS:
        ours, plain = (entry(results, fault.name, side.name) for side in SIDES)
        if not ours["runs"]:
            continue
        cells = [_cell(known, field, fault) for field in FIELDS for known in (ours, plain)]
        repeats = f"{ours['repeats']}, {plain['repeats']}" if fault.plain else str(ours["repeats"])
        text += f"| {fault.phrase} | {' | '.join(cells)} | {repeats} |\n"
        said += f"| {fault.phrase} | {ours['runs'][-1]['said'].replace('|', '/')} |\n"
    text += _soak(results) + said + _FOOT
    for one in results["machines"]:
        text += f"| {one['commit']} | {one['cpu']} | {one['kernel']} | {one['load']} |\n"
    return text


def _haste() -> str:
    """Name the settings that differ from an owner's, with what an owner has."""
    owners = Config.model_construct()  # the defaults alone
    return ", ".join(
        f"`{section}.{key}` {value:g} ({getattr(getattr(owners, section), key):g})"
        for section, settings in HASTE.items()
        for key, value in settings.items()
    )


def _soak(results: dict[str, Any]) -> str:
    """Return how often the product returned, over all faults that were done to it."""
    runs = [
        (BY_NAME[known["fault"]], run)
        for known in results["faults"]
        if known["side"] == ServingPair.name
        for run in known["runs"]
    ]
    lost = [(fault, run) for fault, run in runs if run["serving_s"] is None]
    back = len(runs) - len(lost)
    longest = max((run["silence_s"] for _, run in runs), default=0.0)
    text = (
        f"\nIn rounds of a random order, seeded with the round's number, glm53 took {len(runs)}"
        f" faults, and served again by itself, or once the world was mended, {back} times."
        f" No client waited longer than {longest:.1f} s for an answer or an error.\n"
    )
    for fault, run in lost:
        text += f"\nNot back within {SERVE_SECONDS:.0f} s: {fault.phrase}{_why(run)}.\n"
    return text


def _why(run: dict[str, Any]) -> str:
    """Return what was found out later about a run, written into the results by hand."""
    return f" ({run['note']})" if "note" in run else ""


def _cell(known: dict[str, Any], field: str, fault: Fault) -> str:
    if not known["runs"] or (not fault.survivors and field != "serving_s"):
        return "-"
    if fault.follows == "serve" and field != "serving_s":
        return "-" if known[field] is None else f"{known[field]:.1f}"
    return "never" if known[field] is None else f"{known[field]:.{field != 'serving_s':d}f}"


def main(arguments: list[str]) -> int:
    """Measure what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--fault", action="append", choices=sorted(BY_NAME), help="only these")
    parser.add_argument("--side", action="append", choices=[side.name for side in SIDES])
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--page", action="store_true", help="measure nothing")
    chosen = parser.parse_args(arguments)
    if not chosen.page:
        run(
            Wanted(
                tuple(BY_NAME[name] for name in chosen.fault) if chosen.fault else FAULTS,
                tuple(s for s in SIDES if not chosen.side or s.name in chosen.side),
                chosen.repeats,
                time.monotonic() + chosen.minutes * 60,
            )
        )
    results = read()
    PAGE.write_text(page(results))
    draw(results, PICTURE)
    print(f"see {PAGE.relative_to(CHECKOUT)}; client's patience {CLIENT_SECONDS:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
