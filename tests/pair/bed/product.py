"""The real product inside the hosts: its tools, its engine and its model, read-only.

The checkout may lie anywhere, also where units cannot see: PrivateTmp hides /tmp, ProtectHome a
home, and so the interpreter of a virtual environment if that is in a home. A virtual environment
cannot simply be mounted elsewhere either, for its scripts name their interpreter by its path, and
an interpreter of the distribution would be that of the hosts' own, newer one. So the hosts see
everything below `/opt/glm53`, with the few files that hold a path replaced by an overlay.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .run import BedError, run

PLACE = Path("/opt/glm53")
TOOL = PLACE / "tool"
ENGINE = PLACE / "engine"
SOURCE = PLACE / "source"
MODEL = PLACE / "model"
"""Where the hosts have them."""

LINKS = {Path("/usr/bin/glm53ctl"): TOOL / "bin/glm53ctl"}
"""What an installation would put into the hosts' PATH."""

_LARGEST_SCRIPT = 1 << 20
_ASK = (
    "import json, sys, sysconfig; v = sys.version_info; print(json.dumps("
    "[sys.base_prefix, sysconfig.get_path('stdlib'), f'python{v.major}.{v.minor}']))"
)


@dataclass(frozen=True)
class Interpreter:
    """A Python outside, and where the hosts have it."""

    prefix: Path
    stdlib: Path
    name: str
    place: Path

    @property
    def program(self) -> Path:
        """The interpreter, as the hosts see it."""
        return self.place / "bin" / self.name

    def binds(self) -> Iterator[tuple[Path, Path]]:
        """Yield what to mount where: a prefix of its own whole, of a distribution's the parts."""
        if self.prefix != Path("/usr"):
            yield self.prefix, self.place
            return
        yield self.prefix / "bin" / self.name, self.program
        yield self.stdlib, self.place / "lib" / self.name

    def links(self) -> dict[Path, Path]:
        """Return links for a shared libpython, which the program looks for at its old place."""
        found = self.prefix.glob(f"lib/lib{self.name}*.so.*")
        return {Path("/usr/lib", lib.name): self.place / "lib" / lib.name for lib in found}


@dataclass(frozen=True)
class Product:
    """What is shown to the hosts, from one checkout."""

    checkout: Path
    tool: Path
    engine: Path
    model: Path

    @classmethod
    def of(cls, checkout: Path, model: Path, engine: Path | None = None) -> "Product":
        """Return the product of a checkout after `make setup`, with a model made for it."""
        return cls(checkout, checkout / ".venv", engine or checkout / ".engine", model)

    def why_not(self) -> str | None:
        """Return what is missing, or None."""
        for path in (self.tool / "bin/glm53ctl", self.engine / "bin/vllm"):
            if not path.exists():
                return f"there is no {path}: run `make setup`"
        return None

    def interpreters(self) -> dict[Path, Interpreter]:
        """Return the interpreter of each environment, one for both where it is the same."""
        found: dict[Path, Interpreter] = {}
        by_prefix: dict[Path, Interpreter] = {}
        for environment in (self.tool, self.engine):
            prefix, stdlib, name = json.loads(run(environment / "bin/python", "-c", _ASK).stdout)
            place = PLACE / f"python{len(by_prefix) or ''}"
            mine = Interpreter(Path(prefix), Path(stdlib), name, place)
            found[environment] = by_prefix.setdefault(mine.prefix, mine)
        return found

    def nspawn_options(self, shims: Path) -> list[str]:
        """Return the mounts as options of systemd-nspawn; files that differ go to `shims`."""
        if reason := self.why_not():
            raise BedError(f"{reason}.")
        interpreters = self.interpreters()
        places = {self.tool: TOOL, self.engine: ENGINE}
        moves = {str(path): str(place) for path, place in places.items()}
        moves[str(self.checkout)] = str(SOURCE)
        binds = [(self.checkout / "glm53ctl", SOURCE / "glm53ctl"), (self.model, MODEL)]
        for interpreter in set(interpreters.values()):
            binds += interpreter.binds()
        options = [f"--bind-ro={_escaped(source)}:{place}" for source, place in binds]
        for environment, interpreter in interpreters.items():
            shim = shims / places[environment].name
            shutil.rmtree(shim, ignore_errors=True)
            _write_shim(environment, shim, interpreter, moves)
            layers = f"{_escaped(environment)}:{_escaped(shim)}"
            options.append(f"--overlay-ro={layers}:{places[environment]}")
        return options

    @property
    def folders(self) -> tuple[Path, ...]:
        """Mount points: systemd-nspawn does not make the parents of an overlay's."""
        return TOOL, ENGINE

    def links(self) -> dict[Path, Path]:
        """Return symbolic links that the hosts need, by where they lie."""
        links = dict(LINKS)
        for interpreter in self.interpreters().values():
            links |= interpreter.links()
        return links


def _write_shim(
    environment: Path, shim: Path, interpreter: Interpreter, moves: dict[str, str]
) -> None:
    """Write the files of an environment that must differ to work at another place."""
    (shim / "bin").mkdir(parents=True)
    (shim / "pyvenv.cfg").write_text(
        f"home = {interpreter.program.parent}\ninclude-system-site-packages = false\n"
    )
    editable = environment.glob("lib/python*/site-packages/__editable__*")
    for path in [*(environment / "bin").iterdir(), *editable]:
        copy = shim / path.relative_to(environment)
        if path.name.startswith("python") and path.is_symlink():
            # All names lead to one program, whichever of them led out of the environment.
            copy.symlink_to(interpreter.program)
        elif path.is_file() and path.stat().st_size < _LARGEST_SCRIPT:
            text = moved = path.read_bytes()
            for old, new in moves.items():
                moved = moved.replace(old.encode(), new.encode())
            if moved != text:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(moved)
                copy.chmod(path.stat().st_mode & 0o7777)


def _escaped(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace(":", "\\:")
