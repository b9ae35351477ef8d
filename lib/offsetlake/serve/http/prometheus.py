"""What a serving process counts of itself, as Prometheus asks for it; read off its parts when it is asked."""

from collections.abc import Iterable, Iterator, Sequence

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from offsetlake.serve.auth.acl import Access
from offsetlake.serve.components import ServerComponents
from offsetlake.serve.metrics.durations import SECONDS, Histogram
from offsetlake.serve.protocol.api_keys import VERSIONS

_APIS = {
    api: load_request_schema(api, versions[0]).__name__.removesuffix("Request") for api, versions in VERSIONS.items()
}
MAX_THROTTLED_GROUPS = 20  # a label for each
MAX_LABEL_BYTES = 255
_Sample = tuple[Sequence[str], float]


def registry(parts: ServerComponents) -> CollectorRegistry:
    """Give what is told of a serving process and of its Python."""
    made = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=made)
    made.register(ServingCollector(parts))
    return made


class ServingCollector(Collector):
    """Reads the parts of a serving process."""

    def __init__(self, parts: ServerComponents) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        """Give all there is to tell; of the snapshot nothing until it is loaded."""
        yield from self._state()
        yield from self._requests()
        yield from self._writes()
        if not self._parts.store.loading:
            yield from self._snapshot()

    def _state(self) -> Iterator[Metric]:
        store, broken = self._parts.store, self._parts.writes.broken is not None
        yield GaugeMetricFamily("offsetlake_ready", "1 once the log is loaded, 0 before.", not store.loading)
        yield GaugeMetricFamily(
            "offsetlake_log_broken", "1 once the disk failed to say that it has a write: restart the server.", broken
        )
        connections = len(self._parts.security.connections)
        yield GaugeMetricFamily(
            "offsetlake_connections", "Open connections, of Kafka's protocol and HTTP.", connections
        )
        refused = self._parts.security.connections.refused
        yield _counter("offsetlake_refused_connections", "Connections over the limits.", [], [([], refused)])

    def _requests(self) -> Iterator[Metric]:
        durations = HistogramMetricFamily(
            "offsetlake_request_duration_seconds",
            "Time from a request of Kafka's protocol being read to its answer.",
            labels=["api"],
        )
        received: list[_Sample] = []
        sent: list[_Sample] = []
        for api, traffic in self._parts.traffic or ():
            name = [_APIS[api]]
            durations.add_metric(name, _buckets(traffic.answered), traffic.answered.total)
            received.append((name, traffic.received))
            sent.append((name, traffic.sent))
        yield durations
        yield _counter("offsetlake_request_bytes", "Bytes of answered requests.", ["api"], received)
        yield _counter("offsetlake_response_bytes", "Bytes of answers.", ["api"], sent)
        errors = [([_APIS[api], ErrorCode(code).name.upper()], number) for (api, code), number in self._errors()]
        throttled = 0 if self._parts.quota is None else self._parts.quota.throttled
        yield _counter("offsetlake_throttled_commits", "Commits over the quota of their group.", [], [([], throttled)])
        yield _counter("offsetlake_errors", "Error codes in answers, by Kafka's names.", ["api", "error"], errors)

    def _errors(self) -> list[tuple[tuple[int, int], int]]:
        return sorted(self._parts.errors().items())

    def _writes(self) -> Iterator[Metric]:
        store, syncs = self._parts.store, self._parts.writes.syncs
        yield _counter("offsetlake_committed_offsets", "Offsets committed.", [], [([], store.committed)])
        yield _counter("offsetlake_deleted_offsets", "Tombstones of offsets written.", [], [([], store.deleted)])
        yield HistogramMetricFamily(
            "offsetlake_sync_duration_seconds",
            "Time the disk took to say that it has what was written.",
            _buckets(syncs),
            syncs.total,
        )

    def _snapshot(self) -> Iterator[Metric]:
        store, base = self._parts.store, self._parts.store.base
        layers = [(["fresh"], len(store.fresh)), (["frozen"], len(store.frozen))]
        yield _gauge("offsetlake_overlay_groups", "Groups that changed since the snapshot.", ["layer"], layers)
        ends = self._parts.appender.ends().items()
        behind = sum(end - base.position.get(of, 0) for of, end in ends if isinstance(of, int))
        yield GaugeMetricFamily("offsetlake_tail_log_offsets", "Log offsets behind the snapshot.", behind)
        yield GaugeMetricFamily("offsetlake_load_duration_seconds", "Time it took to load the log.", store.load_seconds)
        yield GaugeMetricFamily(
            "offsetlake_snapshot_version", "Delta version of the table offsets that the snapshot is of.", base.version
        )
        yield GaugeMetricFamily(
            "offsetlake_snapshot_timestamp_seconds", "When the snapshot was made, since the epoch.", base.made / 1000
        )
        yield GaugeMetricFamily("offsetlake_snapshot_offsets", "Offsets in the snapshot.", len(base))
        yield GaugeMetricFamily("offsetlake_snapshot_groups", "Groups in the snapshot.", len(base.groups))
        yield GaugeMetricFamily("offsetlake_snapshot_bytes", "Size of the snapshot.", base.size)
        taken = [(["taken"], store.folds), (["failed"], store.thaws)]
        yield _counter("offsetlake_snapshots", "Snapshots taken over, and that failed to be.", ["outcome"], taken)


class ThrottledGroupsCollector(Collector):
    """Reads which of the groups that were throttled most often a principal may read."""

    def __init__(self, parts: ServerComponents, access: Access) -> None:
        self._parts, self._access = parts, access

    def collect(self) -> Iterator[Metric]:
        """Return at most MAX_THROTTLED_GROUPS samples; a group with a long name is in the total only."""
        throttled = () if self._parts.quota is None else self._parts.quota.worst(MAX_THROTTLED_GROUPS)
        groups = [
            ([name.decode(errors="replace")], number)
            for name, number in throttled
            if len(name) <= MAX_LABEL_BYTES and self._access.sees(name)
        ]
        yield _counter(
            "offsetlake_group_throttled_commits",
            "Commits over the quota of their group, for the groups with the most.",
            ["group"],
            groups,
        )


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    found, reached = [], 0
    for bound, count in zip((*SECONDS, "+Inf"), histogram.counts, strict=True):
        reached += count
        found.append((str(bound), float(reached)))
    return found


def _counter(name: str, says: str, labels: Sequence[str], samples: Iterable[_Sample]) -> Metric:
    family = CounterMetricFamily(name, says, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def _gauge(name: str, says: str, labels: Sequence[str], samples: Iterable[_Sample]) -> Metric:
    family = GaugeMetricFamily(name, says, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family
