"""Periods of one process end together, so that what is due wakes it once."""

import asyncio
from unittest.mock import AsyncMock, patch

import pytest

from glm53ctl.supervise.pace import pause


@pytest.mark.parametrize(
    ("now", "period", "seconds"),
    [(12.3, 0.5, 0.2), (12.3, 2.0, 1.7), (12.5, 0.5, 0.5), (0.0, 10.0, 10.0)],
)
def test_a_pause_ends_at_the_next_multiple(now, period, seconds):
    async def paused() -> float:
        with (
            patch.object(asyncio.get_running_loop(), "time", return_value=now),
            patch("asyncio.sleep", AsyncMock()) as slept,
        ):
            await pause(period)
        return slept.await_args.args[0]

    assert asyncio.run(paused()) == pytest.approx(seconds)
