"""The outside eye of a node."""

from typing import Annotated

from pydantic import Field

from glm53ctl.config.schema.base import Knob, Section
from glm53ctl.config.schema.supervise import Seconds


class Watchdog(Section):
    """`glm53-watchdog.service`: it acts where the supervisor of this node cannot."""

    enabled: bool = True
    """Watch this node."""
    silent_seconds: Seconds = 120.0
    """How long a running supervisor may give no answer before its unit is restarted. Longer than
    its WatchdogSec, with which systemd comes first."""
    probe_seconds: Seconds = 60.0
    """Pause between two questions to an idle pair (head)."""
    probe_deadline_seconds: Seconds = 45.0
    """How long an answer may take while no counter of the engine moves."""
    probe_failures: Annotated[int, Field(ge=1, le=100)] = 3
    """Questions in a row without a right answer that end the epoch."""
    busy_watts: Annotated[float, Field(gt=0, le=2000)] = 30.0
    """A GPU that draws this much is at work: no wedge. A wedged GB10 was seen at 16 to 27 W."""
    warn_gib: Annotated[float, Field(ge=0, le=64)] = 4.0
    """Warn when less than this is available above `memory.floor_gib`."""
    refuse_gib: Annotated[float, Field(ge=0, le=64)] = 2.0
    """Refuse new work when less than this is available above `memory.floor_gib`."""
    stalled_percent: Annotated[float, Field(gt=0, le=100)] = 40.0
    """Stop the pair also above the floor, once new work is refused, when everything waited for
    memory for this share of ten seconds (PSI, full)."""
    backoff_seconds: Seconds = 60.0
    """Pause after the first interference; doubles with each further one."""
    restart_limit: Annotated[int, Field(ge=1, le=100)] = 5
    """Interferences without `supervise.stable_seconds` of service between them, after which the
    watchdog gives up."""
    bus_python: Annotated[str, Knob(node_local=True)] = "/usr/bin/python3"
    """Interpreter with gi and pydbus, for D-Bus; the distribution's, not the product's own."""
