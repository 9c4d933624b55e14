"""The command line: `python -m tests.pair.bed`."""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .bed import CHECKOUT, STATE_VARIABLE, Bed
from .faults import FAULTS, HOST_NAMES, PORT_NAMES, Fault, host, port
from .layout import HEAD, PORTS
from .product import Product
from .run import BedError

_ABOUT = f"""\
Two systemd hosts, spark-head and spark-worker, joined by two rails and a LAN that can be broken.
Needs root and the Debian packages mmdebstrap and systemd-container; about a minute the first time.

  up, wait, hurt, look, and away:
    python -m tests.pair.bed up
    python -m tests.pair.bed exec worker systemctl --failed
    python -m tests.pair.bed mute worker rail1
    python -m tests.pair.bed journal worker -u glm53-rank1 -n 20
    python -m tests.pair.bed heal
    python -m tests.pair.bed down

HOST is head or worker, PORT is rail1, rail2 or lan (or the name in the host).
environment: {STATE_VARIABLE}         folder of the bed (default .bed in the checkout)
             GLM53_BED_MIRROR  Debian mirror (default: the one in the apt sources)
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.pair.bed",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True)
    verbs.add_parser("build", help="make the root file system, if it is not there")
    up = verbs.add_parser("up", help="boot both hosts, with the project's product in them")
    up.add_argument("--bare", action="store_true", help="without tools, engine and model")
    verbs.add_parser("status", help="show hosts and ports")
    verbs.add_parser("heal", help="undo every fault")
    down = verbs.add_parser("down", help="remove everything but the root file system")
    down.add_argument("--keep", action="store_true", help="keep the hosts' disks for the next up")
    for name, text in (
        ("exec", "run a command in a host (a shell without one)"),
        ("journal", "show a host's journal, also of a dead one; options are journalctl's"),
    ):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("host", choices=HOST_NAMES, metavar="HOST")
        verb.add_argument("words", nargs=argparse.REMAINDER, metavar="WORDS")
    fabric = verbs.add_parser("fabric", help="run a command of this machine as a client on the LAN")
    fabric.add_argument("words", nargs=argparse.REMAINDER, metavar="WORDS")
    for fault in FAULTS:
        verb = verbs.add_parser(fault.name, help=fault.help)
        if "host" in fault.takes:
            verb.add_argument("host", choices=HOST_NAMES, metavar="HOST")
        if "port" in fault.takes:
            verb.add_argument("port", choices=PORT_NAMES, metavar="PORT")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 1 and one sentence on what went wrong, 2 on wrong use."""
    arguments = _parser().parse_args(argv)
    try:
        return _act(Bed(), arguments)
    except BedError as error:
        print(f"bed: {error}", file=sys.stderr)
        return 1


def _act(bed: Bed, arguments: argparse.Namespace) -> int:
    match arguments.verb:
        case "build":
            with bed.lock():
                bed.build()
        case "up":
            with bed.lock():
                _up(bed, bare=arguments.bare)
        case "down":
            with bed.lock():
                bed.down(keep_disks=arguments.keep)
        case "status":
            _status(bed)
        case "heal":
            bed.heal()
        case "exec":
            words = arguments.words or ["bash", "-l"]
            return subprocess.call(host(bed, arguments.host).command(*words))
        case "journal":
            return subprocess.call(host(bed, arguments.host).journal_command(*arguments.words))
        case "fabric":
            words = arguments.words or [os.environ.get("SHELL", "sh")]
            if not shutil.which(words[0]):
                raise BedError(f"{words[0]} is not installed here.")
            with bed.network.inside():
                return subprocess.call(words)
        case verb:
            fault = next(fault for fault in FAULTS if fault.name == verb)
            _hurt(bed, fault, arguments)
    return 0


def _up(bed: Bed, *, bare: bool) -> None:
    product = None
    if not bare:
        product = Product.of(CHECKOUT, bed.state / "demo/model")
        if reason := product.why_not():
            raise BedError(f"{reason}.", "Or boot the hosts without it: `up --bare`.")
        _make_model(product.model)
    started = time.monotonic()
    bed.up(product)
    print(f"both hosts are up after {time.monotonic() - started:.1f} s")


def _make_model(place: Path) -> None:
    # The bed itself needs none of the product's packages; a model is made by the product.
    from glm53ctl.demo.model import make_model

    make_model(place)


def _hurt(bed: Bed, fault: Fault, arguments: argparse.Namespace) -> None:
    target = host(bed, arguments.host if "host" in fault.takes else HEAD.short)
    started = time.monotonic()
    fault.act(bed, target, port(arguments.port if "port" in fault.takes else PORTS[0].name))
    print(f"{fault.name}: {time.monotonic() - started:.2f} s")


def _status(bed: Bed) -> None:
    for member in bed.hosts.values():
        if not member.running:
            print(f"{member.name}: down")
            continue
        state = member.exec("systemctl", "is-system-running", check=False).stdout.strip()
        print(f"{member.name}: {state}")
        for line in member.output("ip", "-brief", "-4", "address").splitlines():
            if line.split()[0].partition("@")[0] in {p.name for p in PORTS}:
                print(f"  {line}")
