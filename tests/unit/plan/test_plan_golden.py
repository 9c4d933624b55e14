"""The whole plan of every profile, as a person would read it.

After a wanted change: `GLM53_UPDATE_GOLDEN=1 pytest tests/unit/plan/test_plan_golden.py`, then
read the difference before committing it.
"""

import os
from pathlib import Path

import pytest
from plan_configs import config, with_dflash

from glm53ctl.plan import as_text, plan_pair

GOLDEN = Path(__file__).with_name("golden")
CASES = {
    "vllm-recipe": config("vllm-recipe"),
    "vllm-recipe-dflash": with_dflash(),
    "long": config("long"),
    "demo": config("demo", nodes=[{"name": f"demo-{n}", "address": "127.0.0.1"} for n in (0, 1)]),
}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("case", list(CASES))
def test_plan_is_as_written_down(case: str, rank: int) -> None:
    text = as_text(plan_pair(CASES[case])[rank])
    path = GOLDEN / f"{case}-rank{rank}.txt"
    if os.environ.get("GLM53_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), f"{path.name}: see the head of this file"
