"""The metrics of the metadata of the cluster."""

from collections.abc import Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from offsetlake.node.metadata.cluster import Cluster


def cluster_metrics(cluster: Cluster) -> Iterator[Metric]:
    """Yield the metrics."""
    yield GaugeMetricFamily(
        "offsetlake_cluster_available",
        "1 if the metadata of the cluster could be read the last time, 0 if not.",
        cluster.available,
    )
    if cluster.age_seconds is not None:
        yield GaugeMetricFamily(
            "offsetlake_cluster_metadata_age_seconds", "Time since the metadata was last read.", cluster.age_seconds
        )
    yield GaugeMetricFamily("offsetlake_cluster_brokers", "Brokers in the metadata.", len(cluster.image.brokers))
    yield GaugeMetricFamily("offsetlake_cluster_partitions", "Partitions in the metadata.", len(cluster.image))
