"""All requests but the two hot ones: which there are, and what answers them. kio's schemas read and write them."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from offsetlake.serve import schemas, wire
from offsetlake.serve.cluster_apis import ClusterApis
from offsetlake.serve.commit_rules import COORDINATOR_LOAD_IN_PROGRESS
from offsetlake.serve.connection import Answer
from offsetlake.serve.deletions import Deletions, LogPartition
from offsetlake.serve.group_apis import GroupApis
from offsetlake.serve.group_list import list_groups
from offsetlake.serve.offset_commit import VERSIONS as COMMIT_VERSIONS
from offsetlake.serve.offset_fetch import VERSIONS as FETCH_VERSIONS
from offsetlake.serve.schemas import Values
from offsetlake.serve.store import Store
from offsetlake.serve.topics import Topics
from offsetlake.serve.writes import Writes

FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 1, 2, 3, 8, 9, 10
DESCRIBE_GROUPS, LIST_GROUPS, API_VERSIONS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 18, 42, 47
DESCRIBE_CLUSTER, CONSUMER_GROUP_DESCRIBE, DESCRIBE_TOPIC_PARTITIONS = 60, 69, 75
UNSUPPORTED_VERSION = 35

VERSIONS = {
    FETCH: range(4, 19),
    LIST_OFFSETS: range(1, 12),
    METADATA: range(14),
    OFFSET_COMMIT: COMMIT_VERSIONS,
    OFFSET_FETCH: FETCH_VERSIONS,
    FIND_COORDINATOR: range(7),
    DESCRIBE_GROUPS: range(7),
    LIST_GROUPS: range(6),
    API_VERSIONS: range(5),
    DELETE_GROUPS: range(3),
    OFFSET_DELETE: range(1),
    DESCRIBE_CLUSTER: range(3),
    CONSUMER_GROUP_DESCRIBE: range(2),
    DESCRIBE_TOPIC_PARTITIONS: range(1),
}
"""Versions by API, as a 4.2 broker has them (facts 6.1)."""

_AtOnce = Callable[[Any, int], Values]
_Later = Callable[[Any, Callable[[Values], None]], None]


class Admin:
    """Answers what tools and clients ask beside offsets; `errors` counts APIs with error codes."""

    def __init__(
        self, store: Store, topics: Topics, writes: Writes, log_partition: LogPartition, cluster_id: str
    ) -> None:
        self._store, self._cluster = store, ClusterApis(store, topics, cluster_id)
        self.errors: Counter[tuple[int, int]] = Counter()
        groups, deletions = GroupApis(store, topics), Deletions(store, topics, writes, log_partition)
        self._at_once: dict[int, _AtOnce] = {
            FETCH: self._cluster.fetch,
            LIST_OFFSETS: self._cluster.list_offsets,
            METADATA: self._cluster.metadata,
            FIND_COORDINATOR: self._cluster.find_coordinator,
            DESCRIBE_GROUPS: groups.describe_groups,
            API_VERSIONS: _api_versions,
            DESCRIBE_CLUSTER: self._cluster.describe_cluster,
            CONSUMER_GROUP_DESCRIBE: groups.consumer_group_describe,
            DESCRIBE_TOPIC_PARTITIONS: self._cluster.describe_topic_partitions,
        }
        self._later: dict[int, _Later] = {
            DELETE_GROUPS: deletions.delete_groups,
            OFFSET_DELETE: deletions.delete_offsets,
        }

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that clients are told to connect to."""
        return self._cluster.address

    @address.setter
    def address(self, address: tuple[str, int]) -> None:
        self._cluster.address = address

    def take(self, frame: bytes, header: wire.Header, answer: Answer) -> None:
        """Take a request; as `offsetlake.serve.connection.Requests` has it."""
        api, version = header.api, header.version
        if version not in VERSIONS.get(api, ()):
            if api != API_VERSIONS:
                raise wire.Malformed(f"api {api} of version {version}")
            answer(self._written(api, 0, {"error_code": UNSUPPORTED_VERSION, "api_keys": [_ranges(api)]}))
            return
        request = schemas.read(frame, header)
        if api == LIST_GROUPS:
            if self._store.loading:
                self.errors[api, COORDINATOR_LOAD_IN_PROGRESS] += 1
            answer(list_groups(self._store, request, version))
        elif api in self._at_once:
            answer(self._written(api, version, self._at_once[api](request, version)))
        else:
            self._later[api](request, lambda values: answer(self._written(api, version, values)))

    def _written(self, api: int, version: int, values: Values) -> bytes:
        self.errors.update((api, code) for code in _error_codes(values))
        return schemas.write(api, version, values)


def _error_codes(values: Values) -> Iterator[int]:
    for name, value in values.items():
        if name == "error_code" and value:
            yield value
        elif isinstance(value, Mapping):
            yield from _error_codes(value)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Mapping):
                    yield from _error_codes(each)


def _api_versions(_request: Any, _version: int) -> Values:
    return {"api_keys": [_ranges(api) for api in VERSIONS]}


def _ranges(api: int) -> Values:
    return {"api_key": api, "min_version": VERSIONS[api].start, "max_version": VERSIONS[api].stop - 1}
