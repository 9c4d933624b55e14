from pathlib import Path

import pytest

from glm53ctl.diagnose import Exhibit, explain

LOGS = Path(__file__).parent / "logs"
"""Logs of two ranks of vLLM 0.32.0 on CPUs, whole or their last lines, with paths shortened."""


@pytest.fixture
def logs():
    return LOGS


@pytest.fixture
def codes_of():
    """Return the codes that a text, or several, make together."""

    def codes(*texts: str, now: str | None = None) -> list[str]:
        exhibits = [Exhibit.of(f"{place}.log", text) for place, text in enumerate(texts)]
        return [one.finding.code for one in explain(exhibits, now)]

    return codes
