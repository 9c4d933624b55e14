"""Pauses that double."""

_MOST_DOUBLINGS = 64
"""Far past any maximum, and still a float."""


def doubled(first: float, longest: float, times: int) -> float:
    """Return the pause before the next try after `times` failures in a row: none before the first.

    It doubles from `first` to `longest`, in the unit of both.
    """
    if times <= 0:
        return 0.0
    doublings = min(times - 1, _MOST_DOUBLINGS)
    return float(min(first * 2.0**doublings, longest))
