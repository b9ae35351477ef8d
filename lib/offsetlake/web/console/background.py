"""Answers about a whole lake, which take many seconds: computed in a process that leaves the CPUs to other pages."""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from glob import escape
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.lake.foreign.guard import open_verified
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.locate import LakeLocation
from offsetlake.lake.log_ends import newest_asked
from offsetlake.lake.sql.engine import limited_memory, use_little_memory
from offsetlake.queries import questions
from offsetlake.queries.audits import audit
from offsetlake.queries.history.as_of import groups_as_of
from offsetlake.queries.lag import NoOffset, behind, lag_by_group, lag_of_partitions, shown_status
from offsetlake.util.columns import encoded
from offsetlake.web.console import forked

COMMITTERS = "commit_rate"
"""The view with the groups that commit most often."""

MAX_COMMITTERS = 1000

_FEW, _MANY = (pa.dictionary(codes, pa.string()) for codes in (pa.int8(), pa.int32()))
"""The types of columns of a few different texts, and of many that are repeated: one or four bytes for each value."""

_NUMBERS = pa.dictionary(pa.int32(), pa.int64())
"""The type of a column of numbers that are repeated."""

_LISTED = {
    "group_id": pa.string(), "group_type": _FEW, "state": _FEW, "member_count": pa.int32(),
    "subscribed_topics": pa.list_(_MANY), "offsets": pa.int64(),
}  # fmt: skip
_LAG = {
    "group_id": pa.string(), "status": _MANY, "lag": pa.int64(), "lag_at_most": pa.int64(), "behind": _MANY,
    "partitions": pa.int32(), "not_ok": pa.int32(), "lag_unknown": pa.int32(), "no_commit": pa.int32(),
    "deleted_before_read": _NUMBERS, "topic": _MANY, "partition": pa.int32(), "asked_timestamp": _NUMBERS,
}  # fmt: skip

T = TypeVar("T")

_CODEC = "zstd"
_TOO_LARGE = "The answer needs more memory than a query may use: use the command below, with the option --group."


@dataclass(frozen=True, slots=True)
class Compressed(Generic[T]):
    """An answer in a tenth to a fifth of its memory, pickled by another process.

    | Field   | Description |
    |---------|-------------|
    | pickled | The answer without the content of its arrays, which is not copied when it is unpickled. |
    | buffers | The content of the arrays, compressed, and its size in bytes. |
    """

    pickled: bytes
    buffers: Sequence[tuple[bytes, int]]

    def answer(self) -> T:
        """Return the answer; its arrays are read-only."""
        buffers = (pa.decompress(data, size, _CODEC) for data, size in self.buffers)
        answer: T = pickle.loads(self.pickled, buffers=buffers)  # noqa: S301 - of a child process
        return answer


def computed(location: LakeLocation, compute: Callable[..., T], *arguments: object) -> Compressed[T]:
    """Return what a function of a module returns for a lake and some arguments; raise the OffsetlakeError it raises.

    Raises NotEnoughMemory if that needs too much memory.
    """
    request = {"lake": location, "compute": compute, "arguments": arguments}
    answer: Compressed[T] = forked.run_in_background(_answer, request, _TOO_LARGE, is_awaited=True)
    return answer


def _answer(request: forked.Request, sending: Connection) -> None:
    forked.answer(_compute, request, sending, limited_memory())


def _compute(lake: LakeLocation, compute: Callable[..., Any], arguments: tuple[object, ...]) -> Compressed[Any]:
    use_little_memory()
    parts: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(compute(open_verified(lake), *arguments), protocol=5, buffer_callback=parts.append)
    buffers = [part.raw() for part in parts]
    return Compressed(pickled, [(pa.compress(each, _CODEC, asbytes=True), each.nbytes) for each in buffers])


def listed_groups(lake: Lake) -> pa.Table:
    """Return the columns of `questions.groups` that the page of groups shows, in half the memory."""
    return encoded(questions.groups(lake, columns=[*_LISTED][:-1]), _LISTED)


def listed_groups_at(lake: Lake, instant_ms: int) -> pa.Table:
    """Return what `listed_groups` would have returned at an instant."""
    return encoded(groups_as_of(lake, instant_ms, columns=[*_LISTED][:-1]), _LISTED)


def lag_of_group(lake: Lake, group_id: str) -> pa.Table:
    """Return `lag_of_partitions` of a group, with the lag in time in the column `behind`; no rows if it has none."""
    if newest_asked(lake) is None:
        return pa.table({"group_id": pa.array([], pa.string())})
    try:
        rows = lag_of_partitions(lake, escape(group_id))
    except NoOffset:
        return pa.table({"group_id": pa.array([], pa.string())})
    return rows.append_column("behind", pa.array(behind(rows), pa.string()))


def with_lag(groups: pa.Table, lags: pa.Table) -> pa.Table:
    """Return groups with their lags, rows of `lag_for_people`, which are null where there are none.

    Further columns are `place`, that of the group among all, the worst first; and `most`, the lag for sorting: at most.
    """
    place = pc.index_in(groups["group_id"], value_set=lags["group_id"].combine_chunks())
    for name in ("status", "lag", "lag_at_most", "behind"):
        groups = groups.append_column(name, lags[name].take(place))
    groups = groups.append_column("most", pc.coalesce(groups["lag_at_most"], groups["lag"]))
    return groups.append_column("place", place)


def committers(lake: Lake) -> pa.Table:
    """Return the first MAX_COMMITTERS rows of the view COMMITTERS."""
    rows = audit(lake, COMMITTERS, limit=MAX_COMMITTERS)
    return pa.Table.from_batches(rows.to_batches(MAX_COMMITTERS), rows.schema)


def lag_for_people(lake: Lake) -> pa.Table:
    """Return columns of `lag_by_group` with the status for people, and the lag in time in the column `behind`.

    A lake without recorded log end offsets has no rows.
    """
    if newest_asked(lake) is None:
        return pa.table({"group_id": pa.array([], pa.string())})
    rows = lag_by_group(lake)
    rows = rows.append_column("behind", pa.array(behind(rows), pa.string()))
    rows = rows.set_column(rows.column_names.index("status"), "status", pa.array(shown_status(rows), pa.string()))
    for name in (name for name, kind in _LAG.items() if kind == _NUMBERS):  # no cast encodes numbers
        rows = rows.set_column(rows.column_names.index(name), name, rows[name].dictionary_encode())
    return encoded(rows.select([*_LAG]), _LAG)
