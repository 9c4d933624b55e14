"""What another rank is owed: orders that it has not confirmed yet.

A word goes with its connection, and either side gives a connection up after seconds of silence. So
an order is kept until the other rank says that it has it, and said again over each new connection.
This outlives the link, which is made anew whenever the configuration is read anew.
"""

import math
from dataclasses import dataclass, field

from glm53ctl.supervise.wire import Command, Leave, Message, Taken

REACH_SECONDS = 15.0
"""How long after its last word a rank is counted on to come back; then orders do without it."""


@dataclass
class Post:
    """The orders that one other rank has to confirm, by their ids, and when it was last heard."""

    owed: dict[str, Command] = field(default_factory=dict)
    run_id: str = ""
    heard_at: float = -math.inf

    def in_reach(self, now: float) -> bool:
        """Say whether the rank will hear an order: it is there, or was a moment ago."""
        return now - self.heard_at < REACH_SECONDS

    def meet(self, run_id: str, now: float) -> None:
        """Note a fresh connection. Orders for a run that ended long ago are none for the next."""
        if run_id != self.run_id and not self.in_reach(now):
            self.owed.clear()
        self.run_id, self.heard_at = run_id, now

    def hear(self, message: Message, now: float) -> None:
        """Note a word of the rank."""
        self.heard_at = now
        if isinstance(message, Taken):
            self.owed.pop(message.id, None)
        elif isinstance(message, Leave) and not message.returns:
            self.heard_at = -math.inf
