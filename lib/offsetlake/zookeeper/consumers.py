"""Reads the offsets of groups below `/consumers`.

| Znode | Content |
|---|---|
| `/consumers/GROUP/offsets/TOPIC/PARTITION` | the committed offset, as decimal digits |

Source: kafka.utils.ZkUtils of Kafka 0.8 to 2.x.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

import pyarrow as pa
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError

from offsetlake.errors import BadRequest
from offsetlake.zookeeper.active_consumers import ROOT, active_consumers
from offsetlake.zookeeper.client import read_many
from offsetlake.zookeeper.offset_values import offset_in

MAX_PARTITION = 2**31 - 1
OFFSETS = pa.schema(
    [
        ("group_id", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("new_offset", pa.int64()),
        ("version", pa.int32()),
        ("reason", pa.string()),
    ]
)
"""The offset of a znode, null if it is invalid, its version, and why the offset cannot be used."""

_BATCH_ROWS = 100_000
_PROGRESS_ROWS = 50_000
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")  # org.apache.kafka.common.internals.Topic
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")


class ZooKeeperOffsets(NamedTuple):
    """The offsets of groups, as OFFSETS, and a text for each znode that is not an offset of a partition."""

    rows: pa.Table
    problems: list[str]


def read_offsets(client: KazooClient, pattern: str, progress: Callable[[int], None]) -> ZooKeeperOffsets:
    """Read the offsets of the group with this name or, if there is none, of those that match the shell pattern.

    Args:
        client: The client.
        pattern: A group, or a shell pattern.
        progress: Called with the number of offsets that have been read, now and then.

    Raises:
        BadRequest: No group matches, or `/consumers` does not exist or cannot be read.
    """
    groups = _groups(client, pattern)
    active = active_consumers(client, groups)
    problems: list[str] = []
    topics = _children(client, (f"{ROOT}/{name}/offsets" for name in groups), problems)
    partitions = _children(client, topics, problems)
    batches, rows = [], []
    for count, row in enumerate(_rows(client, partitions, active, problems), start=1):
        rows.append(row)
        if len(rows) == _BATCH_ROWS:
            batches.append(_batch(rows))
            rows = []
        if count % _PROGRESS_ROWS == 0:
            progress(count)
    return ZooKeeperOffsets(pa.Table.from_batches([*batches, _batch(rows)]), problems)


class _Row(NamedTuple):
    group_id: str
    topic: str
    partition: int
    new_offset: int | None
    version: int | None
    reason: str | None


def _groups(client: KazooClient, pattern: str) -> list[str]:
    try:
        names = client.retry(client.get_children, ROOT)
    except NoNodeError as error:
        raise BadRequest(f"ZooKeeper has no znode {client.chroot}{ROOT}: check the chroot of the cluster.") from error
    except NoAuthError as error:
        raise BadRequest(
            f"Cannot read the znode {client.chroot}{ROOT}: its ACL forbids it; check --zookeeper-config."
        ) from error
    found = [pattern] if pattern in names else sorted(name for name in names if fnmatchcase(name, pattern))
    if not found:
        raise BadRequest(f"There is no group {pattern!r} below the znode {client.chroot}{ROOT}.")
    return found


def _children(client: KazooClient, paths: Iterable[str], problems: list[str]) -> Iterator[str]:
    for path, response in read_many(client, "get_children", paths):
        if isinstance(response, NoNodeError):
            continue  # the group has no offsets, or the znode was deleted meanwhile
        if isinstance(response, KazooException):
            problems.append(f"{path}: cannot be read ({type(response).__name__}); check its ACL and --zookeeper-config")
        else:
            yield from (f"{path}/{name}" for name in sorted(response))


def _rows(client: KazooClient, paths: Iterable[str], active: dict[str, str], problems: list[str]) -> Iterator[_Row]:
    for path, response in read_many(client, "get", _partitions(paths, problems)):
        _, _, group, _, topic, partition = path.split("/")
        if isinstance(response, NoNodeError):
            continue
        offset, version, reason = None, None, active.get(group)
        if isinstance(response, KazooException):
            reason = f"{path} cannot be read ({type(response).__name__}): check its ACL and --zookeeper-config"
        else:
            value, stat = response
            version = stat.version
            offset, problem = offset_in(value)
            reason = reason or _topic_problem(topic) or (problem and f"{path} {problem}")
        yield _Row(group, topic, int(partition), offset, version, reason)


def _partitions(paths: Iterable[str], problems: list[str]) -> Iterator[str]:
    """Yield the paths whose last part is the number of a partition."""
    for path in paths:
        name = path.rpartition("/")[2]
        if _PARTITION.fullmatch(name) and int(name) <= MAX_PARTITION:
            yield path
        else:  # Kafka 0.7 used BROKER-PARTITION, whose offsets were byte positions
            problems.append(f"{path}: {name!r} is not a partition number; set the offset with `offsetlake reset`")


def _topic_problem(topic: str) -> str | None:
    if _TOPIC.fullmatch(topic) and topic not in {".", ".."}:
        return None
    return f"{topic!r} is not a valid name of a topic: delete its znode"


def _batch(rows: list[_Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [()] * len(OFFSETS)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, OFFSETS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=OFFSETS)
