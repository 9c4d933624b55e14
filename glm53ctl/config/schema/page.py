"""What an owner looks at: the page and the metrics."""

from typing import Annotated

from pydantic import Field

from glm53ctl.config.schema.base import Knob, Section
from glm53ctl.config.schema.pair import Port


class Page(Section):
    """The read-only page of each node, and its metrics for Prometheus."""

    enabled: bool = True
    """Serve the page (`/`) and the metrics (`/metrics`) from the watchdog."""
    port: Port = 8890
    """Port they are served on."""
    host: Annotated[tuple[str, ...], Field(min_length=1, max_length=8), Knob(node_local=True)] = (
        "127.0.0.1",
    )
    """Addresses, or names of network devices, to serve them on. Nothing asks for a key there, so
    0.0.0.0 is no choice."""
    names: Annotated[tuple[str, ...], Field(max_length=16), Knob(node_local=True)] = ()
    """Further names under which a browser may ask for the page, such as spark-head.lan; known are
    localhost, the names of this host and of `nodes`, and the addresses themselves."""
