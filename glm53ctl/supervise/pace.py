"""Waits that end together: what is due in one process wakes it once, not once for each.

A wakeup costs a resting daemon more than what it then does. So all periods are counted from the
same zero, that of the loop's clock: what comes each half second and what comes each two seconds
fall on one moment.
"""

import asyncio


def until_next(period: float) -> float:
    """Return the seconds until the next multiple of `period` on the loop's clock, never 0."""
    return period - asyncio.get_running_loop().time() % period


async def pause(period: float) -> None:
    """Wait until the next multiple of `period`."""
    await asyncio.sleep(until_next(period))
