"""Families of metrics with their samples."""

from collections.abc import Iterable, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

Sample = tuple[Sequence[str], float]
"""The values of the labels, and the value of the metric."""


def counter(name: str, documentation: str, labels: Sequence[str], samples: Iterable[Sample]) -> Metric:
    """Return a counter with its samples."""
    family = CounterMetricFamily(name, documentation, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def gauge(name: str, documentation: str, labels: Sequence[str], samples: Iterable[Sample]) -> Metric:
    """Return a gauge with its samples."""
    family = GaugeMetricFamily(name, documentation, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family
