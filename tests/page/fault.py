"""The page over the demo's real pair through a fault: loading, ready, held, and ready again.

`python -m page.fault [--out FOLDER] [--engine PREFIX] [--dir FOLDER]`. One engine start, one kill,
one start more; minutes. Ends as `page.shots` does.
"""

import argparse
import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path

import httpx
from page.shots import Verdict, chromium, look, opened
from playwright.sync_api import Browser, Page, sync_playwright

from glm53ctl.demo.run import DemoFiles, ask, prepare
from glm53ctl.page.commands import page_beside
from glm53ctl.supervise.local import LocalPair
from glm53ctl.supervise.orders import give_order

START_SECONDS = 900.0
QUESTION = "What do two ranks share?"


def wait_for_word(page: Page, word: str) -> None:
    page.wait_for_selector(f"#word:text-is('{word}')", timeout=1000 * START_SECONDS)


def kill_engine(url: str, rank: int) -> None:
    """Kill the engine of a rank, as a fault would."""
    view = httpx.get(f"{url}/api/view", trust_env=False).json()["view"]
    os.kill(view["snapshot"]["ranks"][rank]["engine"]["pid"], signal.SIGKILL)


def follow(browser: Browser, url: str, pair: LocalPair, verdict: Verdict, out: Path) -> None:
    """Look at the page while the pair starts, serves, is hit, waits for its owner and serves."""
    with opened(browser, url, verdict, "pair") as page:
        pair.start()
        page.wait_for_selector(".stages [aria-current]", timeout=1000 * START_SECONDS)
        look(browser, url, "pair-loading", out, verdict)
        wait_for_word(page, "ready")
        for _ in range(3):
            ask(pair.config, QUESTION, 64)
        look(browser, url, "pair-ready", out, verdict)
        kill_engine(url, 1)
        wait_for_word(page, "held")
        look(browser, url, "pair-held", out, verdict)
        shown = page.text_content("#incidents") or ""
        verdict.check("rank 1" in shown, f"held: the incident is not shown: {shown}")
        give_order(pair.config, "resume")
        wait_for_word(page, "starting")
        wait_for_word(page, "ready")
        verdict.check(page.title().startswith("ready"), "ready again")


def main(arguments: list[str]) -> int:
    """Follow the pair through all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(".page-shots"))
    parser.add_argument("--engine", type=Path, default=Path(".engine"))
    parser.add_argument("--dir", type=Path, default=Path(".demo"))
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    files, verdict = DemoFiles(options.dir), Verdict()
    settings = prepare(files, options.engine, print, lambda _: None)
    os.environ["GLM53_SUPERVISE__CRASH_LIMIT"] = "1"  # the first crash holds the pair
    pair = LocalPair(settings, ["--config", str(files.config.resolve())])
    with page_beside(settings) as address:
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium())
                follow(browser, address.rstrip("/"), pair, verdict, options.out)
                browser.close()
        finally:
            left = pair.stop()  # all that descends from this program: the browser is gone by now
    verdict.check(left == 0, f"{left} processes are left behind")
    print(json.dumps(asdict(verdict)))
    return 1 if verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
