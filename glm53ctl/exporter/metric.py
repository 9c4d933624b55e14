"""What a metric is: a name, words for people, and where in the view its values are."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from glm53ctl.view.model import PairView

Sample = tuple[tuple[str, ...], float | None]
"""Values of the labels, in their order, and the value; None is left out of the exposition."""


@dataclass(frozen=True)
class Metric:
    """One family. A counter's name ends in `_total`; every name says its unit where it has one."""

    name: str
    help: str
    values: Callable[[PairView], Iterator[Sample]]
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter"] = "gauge"
