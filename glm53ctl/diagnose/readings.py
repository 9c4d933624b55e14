"""Series of readings of a serving pair: is it at work, idle or wedged."""

import contextlib
import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass

from glm53ctl.diagnose.diagnosis import Diagnosis, diagnosis
from glm53ctl.findings import Severity

WORKING_WATTS = 30.0
"""Board power under which a busy GPU computes nothing: a kernel spins and waits for its peer."""

SERVING_COLUMNS = ("t", "running", "generation_tokens", "prompt_tokens")


@dataclass(frozen=True)
class Reading:
    """One reading: seconds, requests running, tokens counted, board power of each node in W."""

    t: float
    running: int
    generated: int
    prompted: int
    watts: tuple[float, ...]


def parse_readings(text: str) -> list[Reading]:
    """Read a CSV with the columns `t, running, generation_tokens, prompt_tokens, *_watt`.

    A row that is none, like the torn last one of a file that is still written, is left out.
    """
    readings = []
    for row in csv.DictReader(text.split()):
        with contextlib.suppress(ValueError, TypeError):
            readings.append(
                Reading(
                    float(row["t"]),
                    int(row["running"]),
                    int(row["generation_tokens"]),
                    int(row["prompt_tokens"]),
                    tuple(float(row[name]) for name in row if str(name).endswith("_watt")),
                )
            )
    return readings


def judge_serving(readings: Sequence[Reading]) -> Diagnosis | None:
    """Tell a wedge from a long prefill and from idleness; None without readings.

    Health and utilisation say nothing: a spinning kernel reads 96 % and /health answers 200.
    """
    if not readings:
        return None
    first, last = readings[0], readings[-1]
    if all(one.running == 0 for one in readings):
        return diagnosis("IDLE", Severity.OK, "no request is running.")
    seconds = last.t - first.t
    watts = [value for one in readings for value in one.watts if math.isfinite(value)]
    frozen = all(
        (one.generated, one.prompted) == (first.generated, first.prompted) for one in readings
    )
    always = all(one.running > 0 for one in readings)
    if frozen and always and seconds > 0 and watts and max(watts) < WORKING_WATTS:
        return diagnosis(
            "ENGINE_WEDGED",
            Severity.FAIL,
            f"requests are running and no token was counted for {seconds:.0f} s, at "
            f"{max(watts):.0f} W: the ranks wait for each other.",
            "Stop both ranks, then start both; one alone cannot rejoin.",
        )
    if frozen and always and seconds > 0 and not watts:
        return diagnosis(
            "ENGINE_WEDGED",
            Severity.WARN,
            f"requests are running and no token was counted for {seconds:.0f} s; without the GPUs' "
            "power, a long prefill looks like ranks that wait for each other.",
            "Look again in some minutes: a prefill ends.",
        )
    if frozen or last.generated - first.generated < seconds:
        drawn = f" at {max(watts):.0f} W" if watts else ""
        said = f"requests are running{drawn}: a long prefill is work."
        return diagnosis("PREFILL_BUSY", Severity.OK, said)
    return diagnosis("ENGINE_BUSY", Severity.OK, "requests are running and tokens are counted.")
