"""The names in a lake, to search while typing: groups, topics, principals and client ids; and what a client did."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from offsetlake.lake.files import active_files
from offsetlake.lake.history.group_places import every_group
from offsetlake.lake.history.history_files import file_batches
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import SMALL, quoted
from offsetlake.queries.history.as_of import offsets_as_of

KINDS = ("group", "topic", "principal", "client")
_NAMES = {
    "offset_commits": {"topic": "topic"},
    "audit_events": {"principal": "principal", "client_id": "client"},
    "group_members": {"client_id": "client"},
}
"""By table, the kind of name in each column; `group_places` reads the groups."""

_MEMBERSHIP = ("group_id", "member_id", "client_host", "subscribed_topics")
_ORDER = "group_id, member_id"
_MAX_MEMBERS = 100_000  # which take about 50 MB while they are sorted
_ROWS_A_GROUP = 1 << 11

Bytes = npt.NDArray[np.uint8]


@dataclass(slots=True)
class Names:
    """Finds names in history and among the members of groups; each file is read once, because files do not change.

    The groups are those of `group_places`, which the pages of groups need, too.

    Memory grows with the number of distinct names. If a file was removed, all are read again, because history may have
    been dropped.
    """

    _read: set[tuple[str, str]] = field(default_factory=set)
    _names: dict[str, set[str]] = field(default_factory=dict)
    _searched: dict[str, pa.Array] = field(default_factory=dict)

    def update(self, lake: Lake) -> None:
        """Read the files that are new since the last call."""
        tables = [table for table in _NAMES if table in lake.tables()]
        files = {(table, file["path"]) for table in tables for file in active_files(lake, table)}
        if not self._read <= files or not self._searched:
            self._read, self._names = set(), {kind: set() for kind in KINDS if kind != "group"}
        for table, path in files - self._read:
            for kind, values in _names_of(lake, table, path):
                self._names[kind].update(values)
        if files != self._read or not self._searched:
            self._searched = {kind: pa.array(names, pa.string()) for kind, names in self._names.items()}
        self._searched["group"] = every_group(lake)
        self._read = files

    def find(self, kind: str, text: str, limit: int, is_visible: Callable[[str], bool]) -> list[str]:
        """Return names that contain a text, in any case; those that begin with it first, then shorter ones."""
        names = self._searched[kind]
        found = names.filter(pc.match_substring(names, text, ignore_case=True)).to_pylist()
        low = text.lower()
        found.sort(key=lambda name: (not name.lower().startswith(low), len(name), name))
        chosen: list[str] = []
        for name in found:
            if len(chosen) == limit:
                break
            if is_visible(name):
                chosen.append(name)
        return chosen


def _names_of(lake: Lake, table: str, path: str) -> Iterator[tuple[str, list[str]]]:
    columns, newest = _NAMES[table], dict[str, pa.Array]()
    for batch in file_batches(lake, table, path, [*columns]):
        for column, kind in columns.items():
            values = batch[column]
            names = values.dictionary if pa.types.is_dictionary(values.type) else pc.unique(values).drop_null()
            if column not in newest or not names.equals(
                newest[column]
            ):  # successive row groups often have the same dictionary
                yield kind, names.to_pylist()
            newest[column] = names


def events_by(
    lake: Lake, principal: str, client_id: str, limit: int, since_ms: int | None = None, until_ms: int | None = None
) -> pa.Table:
    """Return the newest audit events of a principal or client id in a period, rows of `audit_events`.

    Empty texts are any; the ends of the period belong to it, and None is no end.
    """
    wanted = {"principal": principal, "client_id": client_id}
    conditions = [f"{column} = {quoted(value)}" for column, value in wanted.items() if value] or ["false"]
    ends = ((">=", since_ms), ("<=", until_ms))
    conditions += [f"log_timestamp {operator} {end}" for operator, end in ends if end is not None]
    where = " AND ".join(conditions)
    order = "ORDER BY log_timestamp DESC NULLS LAST, log_partition, log_offset DESC"
    return lake.query(f"SELECT * FROM audit_events WHERE {where} {order} LIMIT {limit}", "audit_events")  # noqa: S608


def members_by_client(lake: Lake) -> Bytes | None:
    """Return what `memberships` needs of all members: a Parquet file sorted by client id; None if they are many.

    The table has a file for each log partition, and the members with a client id can be in all of them.
    """
    if lake.count("group_members") > _MAX_MEMBERS:
        return None
    columns = ", ".join(_MEMBERSHIP)
    engine = lake.engine(["group_members"], {}, settings=SMALL)
    rows = engine.stream(f"SELECT client_id, {columns} FROM group_members ORDER BY client_id, {_ORDER}")  # noqa: S608
    file = pa.BufferOutputStream()
    with pq.ParquetWriter(file, rows.schema, compression="zstd") as writer:
        for batch in rows:
            writer.write_batch(batch, _ROWS_A_GROUP)
    return np.frombuffer(file.getvalue(), np.uint8)


def memberships(lake: Lake, client_id: str, limit: int, members: Bytes | None = None) -> pa.Table:
    """Return the members with a client id: group_id, member_id, client_host, subscribed_topics; by group.

    `members` is what `members_by_client` returned; without it, the table is read.
    """
    if members is not None:
        file = pa.BufferReader(pa.py_buffer(members))
        return pq.read_table(file, columns=[*_MEMBERSHIP], filters=pc.field("client_id") == client_id).slice(0, limit)
    where = f"WHERE client_id = {quoted(client_id)} ORDER BY {_ORDER} LIMIT {limit}"
    return lake.query(f"SELECT {', '.join(_MEMBERSHIP)} FROM group_members {where}", "group_members")  # noqa: S608


def committed_to(lake: Lake, topic: str, limit: int, instant_ms: int | None = None) -> pa.Table:
    """Return how many offsets each group has of a topic, and the newest commit: group_id, offsets, commit_timestamp.

    They are those of an instant (ms since the epoch), or the newest ones. Raises BadRequest as `offsets_as_of`.
    """
    if instant_ms is not None:
        offsets = offsets_as_of(lake, instant_ms, topic=topic)
        counted = offsets.group_by("group_id").aggregate([("partition", "count"), ("commit_timestamp", "max")])
        counted = counted.select(["group_id", "partition_count", "commit_timestamp_max"])
        return counted.rename_columns(["group_id", "offsets", "commit_timestamp"]).sort_by("group_id").slice(0, limit)
    columns = "group_id, count(*) AS offsets, max(commit_timestamp) AS commit_timestamp"
    where = f"WHERE topic = {quoted(topic)} GROUP BY group_id ORDER BY group_id LIMIT {limit}"
    return lake.query(f"SELECT {columns} FROM offsets {where}", "offsets")  # noqa: S608
