"""The metrics of a serving process, collected from its components when Prometheus scrapes them."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache

from kio.index import UnknownEntity, load_request_schema
from kio.schema.errors import ErrorCode
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from offsetlake.auth.acl import Access
from offsetlake.serve.core import Core
from offsetlake.serve.metrics.durations import SECONDS, Histogram
from offsetlake.serve.metrics.families import counter, gauge

_MAX_VERSIONS = 20  # of one API
MAX_THROTTLED_GROUPS = 20
"""Groups with a label of their own."""

_Sample = tuple[Sequence[str], float]


@cache
def _api_name(api: int) -> str:
    """Return Kafka's name of an API that this process answers or forwards."""
    for version in range(_MAX_VERSIONS):
        with suppress(UnknownEntity):
            return load_request_schema(api, version).__name__.removesuffix("Request")
    return str(api)


def registry(core: Core) -> CollectorRegistry:
    """Return a registry with the metrics of a serving process and of its Python interpreter."""
    collectors = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=collectors)
    collectors.register(ServingCollector(core))
    return collectors


class ServingCollector(Collector):
    """Collects the metrics of a serving process."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; those of the snapshot once it is loaded."""
        yield from self._state()
        yield from self._requests()
        yield from self._writes()
        for feature in self._core.features:
            yield from feature.metrics()
        if not self._core.store.loading:
            yield from self._snapshot()

    def _state(self) -> Iterator[Metric]:
        store, broken = self._core.store, self._core.writes.broken is not None
        yield GaugeMetricFamily("offsetlake_ready", "1 once the log is loaded, 0 before.", not store.loading)
        yield GaugeMetricFamily(
            "offsetlake_log_broken", "1 after a failed write to the log: restart the server.", broken
        )
        connections = len(self._core.security.connections)
        yield GaugeMetricFamily(
            "offsetlake_connections", "Open connections, over Kafka's protocol and HTTP.", connections
        )
        refused = self._core.security.connections.refused
        yield counter(
            "offsetlake_refused_connections", "Connections refused because of a connection limit.", [], [([], refused)]
        )

    def _requests(self) -> Iterator[Metric]:
        durations = HistogramMetricFamily(
            "offsetlake_request_duration_seconds",
            "Duration of requests over Kafka's protocol, from the request to its answer.",
            labels=["api"],
        )
        received: list[_Sample] = []
        sent: list[_Sample] = []
        for api, traffic in self._core.traffic or ():
            name = [_api_name(api)]
            durations.add_metric(name, _buckets(traffic.durations), traffic.durations.total)
            received.append((name, traffic.received))
            sent.append((name, traffic.sent))
        yield durations
        yield counter("offsetlake_request_bytes", "Size of answered requests in bytes.", ["api"], received)
        yield counter("offsetlake_response_bytes", "Size of answers in bytes.", ["api"], sent)
        errors = [([_api_name(api), ErrorCode(code).name.upper()], number) for (api, code), number in self._errors()]
        throttled = 0 if self._core.quota is None else self._core.quota.throttled
        yield counter(
            "offsetlake_throttled_commits", "Commits that exceeded the quota of their group.", [], [([], throttled)]
        )
        yield counter(
            "offsetlake_errors",
            "Errors in answers, by API and Kafka's name of the error code.",
            ["api", "error"],
            errors,
        )

    def _errors(self) -> list[tuple[tuple[int, int], int]]:
        return sorted(self._core.errors().items())

    def _writes(self) -> Iterator[Metric]:
        store, syncs = self._core.store, self._core.writes.syncs
        yield counter("offsetlake_committed_offsets", "Offsets committed.", [], [([], store.committed)])
        yield counter("offsetlake_deleted_offsets", "Offsets deleted.", [], [([], store.deleted)])
        yield HistogramMetricFamily(
            "offsetlake_sync_duration_seconds",
            "Duration of syncs of the log (fdatasync).",
            _buckets(syncs),
            syncs.total,
        )

    def _snapshot(self) -> Iterator[Metric]:
        store, snapshot = self._core.store, self._core.store.snapshot
        layers = [
            (["memtable"], len(store.memtable)),
            (["immutable_memtable"], len(store.immutable_memtable)),
        ]
        yield gauge("offsetlake_overlay_groups", "Groups with changes since the snapshot, by layer.", ["layer"], layers)
        ends = self._core.appender.ends().items()
        log_offsets = sum(end - snapshot.position.get(number, 0) for number, end in ends if isinstance(number, int))
        yield GaugeMetricFamily(
            "offsetlake_tail_log_offsets", "Log offsets after the end of the snapshot.", log_offsets
        )
        yield GaugeMetricFamily(
            "offsetlake_load_duration_seconds", "Duration of loading the log at the start.", store.load_seconds
        )
        yield GaugeMetricFamily(
            "offsetlake_snapshot_version", "Version of the Delta table offsets in the snapshot.", snapshot.version
        )
        yield GaugeMetricFamily(
            "offsetlake_snapshot_timestamp_seconds",
            "Unix time when the snapshot was built.",
            snapshot.created_ms / 1000,
        )
        yield GaugeMetricFamily("offsetlake_snapshot_offsets", "Offsets in the snapshot.", len(snapshot))
        yield GaugeMetricFamily("offsetlake_snapshot_groups", "Groups in the snapshot.", len(snapshot.groups))
        yield GaugeMetricFamily(
            "offsetlake_snapshot_unknown_groups",
            "Groups of which a record cannot be decoded; nothing of them is deleted.",
            len(snapshot.unknown),
        )
        yield GaugeMetricFamily(
            "offsetlake_log_partitions_not_read",
            "Log partitions that the folder of the log lacks; requests of their groups fail.",
            sum(map(len, snapshot.not_read.values())),
        )
        yield GaugeMetricFamily(
            "offsetlake_log_partitions_incomplete",
            "Log partitions whose records the folder of the log lacks in part.",
            len(snapshot.missing),
        )
        yield GaugeMetricFamily("offsetlake_snapshot_bytes", "Size of the snapshot in bytes.", snapshot.size)
        outcomes = [(["refreshed"], store.refreshes), (["failed"], store.failed_refreshes)]
        yield counter("offsetlake_snapshots", "Snapshot refreshes, by outcome.", ["outcome"], outcomes)


class ThrottledGroupsCollector(Collector):
    """Collects the groups that were throttled most often, of those that a client may read."""

    def __init__(self, core: Core, access: Access) -> None:
        self._core, self._access = core, access

    def collect(self) -> Iterator[Metric]:
        """Yield at most MAX_THROTTLED_GROUPS samples; groups with long names are counted in the total only."""
        throttled = () if self._core.quota is None else self._core.quota.most_throttled(MAX_THROTTLED_GROUPS)
        groups = [([name.decode(errors="replace")], number) for name, number in throttled if self._access.sees(name)]
        yield counter(
            "offsetlake_group_throttled_commits",
            "Commits that exceeded the quota of their group, for the groups with the most of them.",
            ["group"],
            groups,
        )


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    buckets, cumulated = [], 0
    for bound, count in zip((*SECONDS, "+Inf"), histogram.counts, strict=True):
        cumulated += count
        buckets.append((str(bound), float(cumulated)))
    return buckets
