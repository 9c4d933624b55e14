"""Drives Chromium over the page with recorded views: pictures, and checks of what a browser sees.

`make page-shots`, or `python -m page.shots [--out FOLDER]`. Needs a Chromium (Debian: `apt install
chromium fonts-inter`). Ends with one JSON line; exit status 1 when a check fails.
"""

import argparse
import json
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from axe_playwright_python.sync_playwright import Axe
from page.views import STATES
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from glm53ctl.page.addresses import listen
from glm53ctl.page.app import make_app
from glm53ctl.page.progress import Starts
from glm53ctl.page.stream import HISTORY_SECONDS, Stream
from glm53ctl.page.told import Point, tell

SIZES = {390: 844, 1440: 900}
THEMES = ("light", "dark")
COLOURS = 256
"""Enough for a page of greys; the files go into the documentation."""
LIVE = "#link[data-tone=ok]"
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


@dataclass
class Verdict:
    """What was looked at, and what was found wrong."""

    pictures: int = 0
    checks: int = 0
    wrong: list[str] = field(default_factory=list)

    def check(self, good: bool, what: str) -> None:
        self.checks += 1
        if not good:
            self.wrong.append(what)
            print(f"WRONG {what}", file=sys.stderr)


def shrink(picture: Path) -> None:
    """Keep a picture small; the few colours of states are as good as the many greys."""
    drawn = Image.open(picture).convert("RGB")
    drawn.quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(picture, optimize=True)


@contextmanager
def served(state: str) -> Iterator[str]:
    """Serve one recorded state, with ten minutes behind it; yield its address."""
    make = STATES[state]
    length = int(HISTORY_SECONDS)
    starts, past = Starts(), deque[Point]()
    for second in range(-length, 0):
        view = make(second)
        past.append(tell(view, starts.feed(view)).point)
    listening = listen("127.0.0.1", 0)
    began = time.monotonic()
    stream = Stream(lambda: make(int(time.monotonic() - began)), past, starts)
    app = make_app(stream, {"127.0.0.1"})
    config = uvicorn.Config(
        app, lifespan="off", ws="none", log_level="critical", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def opened(
    browser: Browser, url: str, verdict: Verdict, what: str, **options: Any
) -> Iterator[Page]:
    """Open the page and wait for its first view; complain of errors and of foreign requests."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.on("console", lambda m: verdict.check(m.type != "error", f"{what}: console: {m.text}"))
    page.on("pageerror", lambda error: verdict.check(False, f"{what}: {error}"))
    page.on(
        "request",
        lambda one: verdict.check(one.url.startswith(url), f"{what}: asks {one.url}"),
    )
    page.goto(f"{url}/")
    page.wait_for_selector(LIVE)
    yield page
    context.close()


def look(browser: Browser, url: str, state: str, out: Path, verdict: Verdict) -> None:
    """Take the pictures of one state and check what must hold in each."""
    for width, height in SIZES.items():
        for theme in THEMES:
            what = f"{state}-{width}-{theme}"
            options: dict[str, Any] = {
                "viewport": {"width": width, "height": height},
                "color_scheme": theme,
                "is_mobile": width < 500,
                "has_touch": width < 500,
            }
            with opened(browser, url, verdict, what, **options) as page:
                picture = out / f"{what}.png"
                page.screenshot(path=picture, full_page=True)
                shrink(picture)
                verdict.pictures += 1
                wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                verdict.check(wide <= 0, f"{what}: {wide} px wider than the screen")
            # axe is put into the page, which the page's own policy forbids.
            with opened(browser, url, verdict, what, bypass_csp=True, **options) as page:
                for found in Axe().run(page, options=RULES).response["violations"]:
                    nodes = "; ".join(" ".join(map(str, n["target"])) for n in found["nodes"])
                    verdict.check(False, f"{what}: {found['id']}: {nodes}")
                verdict.check(True, f"{what}: accessible")


def use_keyboard(browser: Browser, url: str, verdict: Verdict) -> None:
    """Go through the page with the Tab key: everything is reached, seen and used."""
    with opened(browser, url, verdict, "keyboard", reduced_motion="reduce") as page:
        focusable = page.evaluate(
            "document.querySelectorAll('a[href], button, summary, [tabindex=\"0\"]').length"
        )
        seen: list[str] = []
        for _ in range(focusable):
            page.keyboard.press("Tab")
            seen.append(
                page.evaluate(
                    "(e => e.tagName + '#' + e.id + '.' + e.className + e.textContent.slice(0, 20))"
                    "(document.activeElement)"
                )
            )
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            verdict.check(outline == "solid", f"keyboard: no focus to see on {seen[-1]}")
        verdict.check(len(set(seen)) == focusable, f"keyboard: {seen} of {focusable}")
        page.focus("#theme")
        page.keyboard.press("Enter")
        verdict.check(page.evaluate("document.documentElement.dataset.theme") == "light", "theme")
        page.reload()
        verdict.check(page.evaluate("document.documentElement.dataset.theme") == "light", "kept")
        page.focus(".skip")
        page.keyboard.press("Enter")
        verdict.check(page.evaluate("document.activeElement.id") == "main", "skip link")
        moving = page.evaluate(
            "getComputedStyle(document.getElementById('main')).transitionDuration"
        )
        verdict.check(moving == "0s", f"keyboard: it moves for {moving}")


def stay_put(browser: Browser, url: str, verdict: Verdict) -> None:
    """A view a second must not take away what the reader opened, chose or focused."""
    with opened(browser, url, verdict, "redraw") as page:
        page.click("summary")
        page.focus("summary")
        for _ in range(2):
            shown = page.text_content("#link")
            page.wait_for_selector(f"#link:not(:text-is('{shown}'))")
        state = page.evaluate(
            "[document.querySelector('details').open, document.activeElement.tagName]"
        )
        verdict.check(state == [True, "SUMMARY"], f"redraw: {state}")


def lose(browser: Browser, verdict: Verdict) -> None:
    """When the watchdog goes away the page says so, and no state has a colour any more."""
    context = browser.new_context()
    page = context.new_page()
    with served("ready") as url:
        page.goto(url)
        page.wait_for_selector(LIVE)
    page.wait_for_selector("#link[data-tone=bad]:has-text('no word since')")
    verdict.check("stale" in page.evaluate("document.documentElement.className"), "stale")
    context.close()


def chromium() -> str:
    """Return where the browser is."""
    for name in ("chromium", "chromium-browser"):
        if found := shutil.which(name):
            return found
    raise SystemExit("There is no Chromium (Debian: apt install chromium fonts-inter).")


def main(arguments: list[str]) -> int:
    """Take all pictures and run all checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(".page-shots"))
    parser.add_argument("--state", choices=STATES, action="append", help="only this one")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    verdict = Verdict()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium())
        for state in options.state or STATES:
            with served(state) as url:
                look(browser, url, state, options.out, verdict)
                if state == "held":
                    use_keyboard(browser, url, verdict)
                    stay_put(browser, url, verdict)
        lose(browser, verdict)
        browser.close()
    print(json.dumps(asdict(verdict)))
    return 1 if verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
