"""The locked wheels as an owner meets them first: `vllm serve --help` answers, and knows our flags.

What the parser makes of them is in test_plan_argv.py.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from glm53ctl.config.schema import Config
from glm53ctl.plan import plan_rank
from glm53ctl.plan.render import argument_lines

ROOT = Path(__file__).parents[2]
ENGINE = Path(os.environ.get("GLM53_ENGINE") or ROOT / ".engine").absolute()

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not (ENGINE / "bin/vllm").exists(), reason=f"no engine at {ENGINE}"),
]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return every flag that the help names; it imports all of vLLM to do so."""
    home = tmp_path_factory.mktemp("home")
    done = subprocess.run(
        [str(ENGINE / "bin/vllm"), "serve", "--help=all"],
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", done.stdout))


@pytest.mark.parametrize("rank", [0, 1])
def test_the_help_knows_every_flag_of_a_rank(rank: int, told: set[str], tmp_path: Path) -> None:
    config = Config.model_validate(
        {
            "profile": "demo",
            "nodes": [{"name": f"n{n}", "address": f"10.0.0.{n + 1}"} for n in range(2)],
            "engine": {"prefix": str(ENGINE), "platform": "cpu"},
            "paths": {"state_dir": str(tmp_path)},
        }
    )
    flags = {line[0] for line in argument_lines(plan_rank(config, rank).argv)}
    flags = {flag.partition("=")[0] for flag in flags if flag.startswith("--")}
    assert len(flags) > 10
    assert flags - told == set()
