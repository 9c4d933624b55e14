"""The pair's metrics for Prometheus, as they stand in docs/metrics.md."""

from glm53ctl.exporter.render import CONTENT_TYPE, PairCollector, render

__all__ = ["CONTENT_TYPE", "PairCollector", "render"]
