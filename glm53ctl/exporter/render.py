"""A view as a Prometheus exposition."""

from collections.abc import Callable, Iterator

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from glm53ctl.exporter.metric import Metric
from glm53ctl.exporter.table import METRICS
from glm53ctl.view.model import PairView

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
Family = GaugeMetricFamily | CounterMetricFamily


def _family(metric: Metric) -> Family:
    made = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return made(metric.name, metric.help, labels=metric.labels)


class PairCollector(Collector):
    """Tells a registry what `view` returns at each scrape."""

    def __init__(self, view: Callable[[], PairView]) -> None:
        self._view = view

    def describe(self) -> Iterator[Family]:
        """Yield the families without looking at the pair, for the registry to know their names."""
        yield from map(_family, METRICS)

    def collect(self) -> Iterator[Family]:
        """Yield every family; one without samples where nothing is known."""
        view = self._view()
        for metric in METRICS:
            family = _family(metric)
            for labels, value in metric.values(view):
                if value is not None:
                    family.add_metric(labels, value)
            yield family


def render(view: PairView) -> bytes:
    """Return the exposition of a view, in the text format of CONTENT_TYPE."""
    registry = CollectorRegistry()
    registry.register(PairCollector(lambda: view))
    return generate_latest(registry)
