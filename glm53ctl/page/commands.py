"""`glm53ctl page`, and the page beside a pair in the foreground."""

import contextlib
import logging
import signal
from collections.abc import Iterator

from glm53ctl.config.schema import Config
from glm53ctl.config.sources import load
from glm53ctl.errors import UserError
from glm53ctl.facts.ports import can_listen, free_ports
from glm53ctl.options import ConfigOption
from glm53ctl.page.serve import PageServer
from glm53ctl.view.collect import Gatherer


def page_command(config: ConfigOption = None) -> None:
    """Serve the page of this host until Ctrl-C. Where the watchdog runs, it is there already."""

    def settings() -> Config:
        return load(config, rules=False).config

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server = PageServer(settings(), Gatherer(settings).view)
    server.start()
    try:
        server.bound.wait()
        if not server.urls:
            raise UserError(
                "PAGE_NOT_SERVED",
                f"the page cannot be served: {server.wrong}.",
                "Where the watchdog runs, it serves the page; or set page.host and page.port.",
            )
        server.ended.wait()
    finally:
        server.stop()


@contextlib.contextmanager
def page_beside(config: Config) -> Iterator[str]:
    """Serve the page beside a pair that runs in the foreground, on its port or on a free one.

    Yields its address; empty where it cannot be served, which harms nobody.
    """
    if not all(can_listen(host, config.page.port) for host in config.page.host):
        page = config.page.model_copy(update={"port": free_ports(1)[0]})
        config = config.model_copy(update={"page": page})
    server = PageServer(config, Gatherer(lambda: config).view)
    server.start()
    server.bound.wait()
    try:
        yield next(iter(server.urls.values()), "")
    finally:
        server.stop()
