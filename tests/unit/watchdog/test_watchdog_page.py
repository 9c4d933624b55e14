"""The page beside the watch: there while it watches, and no part of what can end it."""

import socket
import sys
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest
from looks import report
from test_watchdog_daemon import Scene, scene
from waiting import wait_for

from glm53ctl.config.schema import Page

__all__ = ["scene"]  # the fixture


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def got(port: int, path: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False, timeout=30)


def answers(port: int) -> bool:
    try:
        return got(port, "/healthz").status_code == 200
    except httpx.TransportError:
        return False


def watches(scene: Scene) -> None:
    """See it look several times."""
    wanted = scene.agent.looks + 5
    scene.play(until=lambda: scene.agent.looks >= wanted and scene.report)


def test_the_page_is_there_while_it_watches_and_gone_with_it(scene):
    port = free_port()
    scene.settings["page"] = Page(port=port)
    scene.says = report()

    def shown() -> dict | None:
        told = got(port, "/api/view").json() if answers(port) else {"view": None}
        return told if told["view"] is not None else None

    # Not on the loop: the pair's stand-in answers there, and a view needs its answer.
    with ThreadPoolExecutor(1) as browser:
        asked: list[Future[dict | None]] = []

        def seen() -> bool:
            if not asked or (asked[-1].done() and asked[-1].result() is None):
                asked.append(browser.submit(shown))
            return asked[-1].done() and asked[-1].result() is not None

        scene.play(until=seen)
    told = asked[-1].result()
    assert told is not None
    assert told["headline"]["sentence"]
    wait_for(lambda: not answers(port), "the page to be gone")


def test_a_port_in_use_does_not_disturb_it(scene, caplog):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        scene.settings["page"] = Page(port=taken.getsockname()[1])
        watches(scene)
    wait_for(lambda: "the page is not served" in caplog.text, "the word of the page's thread")


@pytest.mark.parametrize("missing", ["uvicorn", "glm53ctl.page.app"])
def test_a_page_that_cannot_even_be_loaded_does_not_disturb_it(scene, caplog, monkeypatch, missing):
    for name in [name for name in sys.modules if name.startswith("glm53ctl.page")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    scene.settings["page"] = Page(port=free_port())
    watches(scene)
    assert "the page is not served" in caplog.text


def test_it_can_be_switched_off(scene):
    port = free_port()
    scene.settings["page"] = Page(enabled=False, port=port)
    watches(scene)
    assert not answers(port)
