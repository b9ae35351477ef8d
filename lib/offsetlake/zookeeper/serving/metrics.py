"""The metrics of commits to ZooKeeper."""

from collections.abc import Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from offsetlake.serve.metrics.families import counter, gauge
from offsetlake.zookeeper.serving.progress import ZooKeeperProgress


def zookeeper_metrics(progress: ZooKeeperProgress) -> Iterator[Metric]:
    """Yield the metrics."""
    if progress.is_available is not None:
        yield GaugeMetricFamily(
            "offsetlake_zookeeper_available", "1 if ZooKeeper responded the last time, 0 if not.", progress.is_available
        )
    yield counter("offsetlake_zookeeper_written_offsets", "Znodes written or deleted.", [], [([], progress.written)])
    offsets = [
        (["waiting"], progress.waiting),
        (["refused"], progress.refused),
        (["changed_by_others"], progress.different),
    ]
    yield gauge(
        "offsetlake_zookeeper_different_offsets",
        "Offsets that differ between the log and ZooKeeper, by reason.",
        ["reason"],
        offsets,
    )
    yield GaugeMetricFamily(
        "offsetlake_zookeeper_largest_difference",
        "The largest difference between offsets in the log and those that others have set in ZooKeeper, in records.",
        progress.largest_difference,
    )
    yield GaugeMetricFamily(
        "offsetlake_zookeeper_seconds_behind",
        "Age of the oldest change that is not in ZooKeeper yet, 0 if there is none.",
        progress.seconds_behind,
    )
