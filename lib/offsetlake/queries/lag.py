"""The lag of every group, in records and in time, and its status, from history and recorded log end offsets.

All values are those of the newest ingest that recorded log end offsets: the commits and assignments read up to it,
compared with the log end offsets that it recorded.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest, NotInLake
from offsetlake.lake.files import active_files
from offsetlake.lake.lake import Lake
from offsetlake.lake.log_ends import ends_asked_by, newest_asked
from offsetlake.lake.runs import last_run, log_ends_source
from offsetlake.lake.unread import check_read
from offsetlake.queries.assignments import OWNER, Assignments
from offsetlake.queries.history.decided import decided_by_portion
from offsetlake.queries.in_doubt import unknown_offsets
from offsetlake.queries.lag_rows import NO_RECORD, lag_rows, severities, without_unknown, worst_first
from offsetlake.queries.recorded_ends import RecordedEnds
from offsetlake.queries.selection import log_partitions_like, name_or_pattern
from offsetlake.rules.lag.consumer_status import LagStatus
from offsetlake.rules.lag.windows import Windows, newest_commits, window_rows
from offsetlake.rules.reduction import KEY
from offsetlake.util.times import about, to_duration, to_iso

_LONGER_THAN_KNOWN = 2**63 - 1  # ms
_NOT_IN_GROUPS = ["committed_offset", "start_offset", "end_offset", "commit_timestamp", "commits", *OWNER]


class NoOffset(NotInLake):
    """No group or topic that the query names has an offset, or a member that reads it."""


def lag_of_partitions(
    lake: Lake, pattern: str | None = None, topic: str | None = None, now: int | None = None, *, owners: bool = True
) -> pa.Table:
    """Return the lag of each group in each partition that it has an offset of or that its members read, worst first.

    `now`, ms since the epoch, is the instant of the evaluation: what was read or recorded later is ignored. By default
    each partition is evaluated at the time when its log end offset was last recorded. Without `owners`, which takes
    less memory, the columns of members can be null.

    | column           | description |
    |------------------|-------------|
    | group_id, topic, partition | the key |
    | status           | one of STATUSES, by `offsetlake.rules.lag.consumer_status` |
    | why              | reason of the status UNKNOWN: a record of the offset cannot be decoded; too few commits; too |
    |                  | few observations of the log end, or none |
    | committed_offset | the newest committed offset that took effect; null if there is none |
    | end_offset       | log end offset; null if the last ingest could not learn it, see its notes |
    | lag              | end_offset minus the greater of committed_offset and start_offset; null if it is not known |
    | lag_ms           | time since the committed offset was the log end; null if longer ago than recorded |
    | lag_at_least_ms  | the same, or the time since log end offsets are recorded |
    | commit_timestamp | timestamp of the newest commit, ms |
    | commits          | number of commits that determine the status, at most 10 |
    | asked_timestamp  | when the log end offset was recorded, ms |
    | start_offset     | log start offset; null as end_offset |
    | lag_at_most      | lag, or end_offset minus start_offset where it depends on the consumer's reset policy |
    | deleted_before_read | number of offsets from committed_offset to start_offset, whose records were deleted |
    | member_id, client_id, client_host | the member that the partition is assigned to; null if there is none |

    The lag is not known with the statuses NO_COMMIT and BEYOND_END, where a consumer continues as its reset policy
    says, unless the partition has no records, and if the log end offset is not known.

    Raises BadRequest if no log end offsets are recorded, or if no such group or topic has an offset or a reader.
    """
    parts = [*_Lags.open(lake, now).portions(pattern, topic, owners=owners)]
    if not parts:
        raise _nothing_found(lake, pattern, topic)
    return worst_first(pa.concat_tables(parts), KEY)


class _Lags(NamedTuple):
    """Computes the lags at the newest ingest that recorded log end offsets, by `now` if it is not None."""

    lake: Lake
    run: int
    now: int | None
    current: pa.Table
    recorded: RecordedEnds
    assignments: Assignments
    unknown: pa.Table | None

    @classmethod
    def open(cls, lake: Lake, now: int | None) -> Self:
        """Read the log end offsets of that ingest; raise BadRequest if there is none."""
        run = newest_asked(lake) if now is None else newest_asked(lake, now)
        if run is None:
            raise _nothing_asked(lake, now)
        current = ends_asked_by(lake, run)
        recorded, assignments = RecordedEnds(lake, run), Assignments(lake, run, current)
        return cls(lake, run, now, current, recorded, assignments, unknown_offsets(lake))

    def portions(self, pattern: str | None, topic: str | None, *, owners: bool) -> Iterator[pa.Table]:
        """Return the rows of `lag_rows` of some log partitions at a time; portions without rows are omitted."""
        where = None if topic is None else pc.field("topic") == topic
        pattern = name_or_pattern(self.lake, pattern)
        within = None if pattern is None else log_partitions_like(self.lake, pattern)
        others = self.assignments.log_partitions()
        portions = decided_by_portion(self.lake, self.run, where, pattern, within, window_rows, others)

        def rows(portion: tuple[Sequence[int], Windows]) -> pa.Table | None:
            partitions, windows = portion
            assigned = self.assignments.of(partitions, pattern, topic, None if owners else windows.keys)
            if not (len(windows.counts) or assigned.num_rows):
                return None
            found = lag_rows(windows, assigned, self.current, self.recorded, self.now)
            return found if self.unknown is None else without_unknown(found, self.unknown)

        return filter(None, map(rows, map(_windows, portions)))  # keeps no records longer than needed


def _windows(portion: tuple[Sequence[int], pa.Table]) -> tuple[Sequence[int], Windows]:
    partitions, decided = portion
    return partitions, newest_commits(decided)


def lag_of_groups(partitions: pa.Table) -> pa.Table:
    """Return the lag of each group, the worst first, from the result of `lag_of_partitions`.

    | column     | description |
    |------------|-------------|
    | group_id   | the group |
    | status, why | those of its worst partition; one without a commit and without records counts only if all are such |
    | lag        | lag in records, summed over the partitions of which it is known; null if there is none |
    | lag_ms     | the longest lag in time of a partition; null if it is longer than log end offsets are recorded |
    | lag_at_least_ms | the same, or the time since log end offsets are recorded |
    | partitions | number of partitions it has offsets of or its members read |
    | not_ok     | number of them with an alarm: one of ALARMS, and records to read |
    | topic, partition | the worst partition |
    | lag_at_most | the sum of the partitions' lag_at_most; null if a log end offset is not known |
    | lag_unknown | number of partitions whose lag is not known and not part of lag |
    | no_commit   | number of partitions without a committed offset |
    | deleted_before_read | number of records that were deleted before they were read |
    | asked_timestamp | when the newest log end offset was recorded, ms: the lag is as of then |
    """
    return worst_first(_of_groups(partitions), ["group_id"])


def lag_by_group(lake: Lake, pattern: str | None = None) -> pa.Table:
    """Return `lag_of_groups` of all groups, or those like `pattern`, for some log partitions at a time, in less memory.

    Raises BadRequest as `lag_of_partitions`.
    """

    def of_portion(rows: pa.Table) -> pa.Table:
        return _of_groups(worst_first(rows.drop_columns(_NOT_IN_GROUPS), KEY))

    parts = [*map(of_portion, _Lags.open(lake, None).portions(pattern, None, owners=False))]
    if not parts:
        raise _nothing_found(lake, pattern)
    groups = pa.concat_tables(parts)
    if len(pc.unique(groups["group_id"])) < groups.num_rows:  # partitions were added to the topic of the log
        return lag_of_groups(lag_of_partitions(lake, pattern, owners=False))
    return worst_first(groups, ["group_id"])


def _of_groups(partitions: pa.Table) -> pa.Table:
    """Return the rows of `lag_of_groups`, with the severity instead of the status, in any order."""
    severity, lag = severities(partitions), partitions["lag"]
    beyond = pc.and_(pc.greater(lag, 0), pc.is_null(partitions["lag_ms"]))
    columns = {
        "group_id": partitions["group_id"],
        "severity": severity,
        "why": partitions["why"],
        "lag": lag,
        "lag_ms": pc.if_else(beyond, _LONGER_THAN_KNOWN, partitions["lag_ms"]),
        "lag_at_least_ms": partitions["lag_at_least_ms"],
        "not_ok": pc.greater(severity, LagStatus.UNKNOWN).cast(pa.int64()),
        "topic": partitions["topic"],
        "partition": partitions["partition"],
        "lag_at_most": partitions["lag_at_most"],
        "lag_unknown": pc.is_null(lag).cast(pa.int64()),
        "no_commit": pc.is_in(severity, pa.array([NO_RECORD, LagStatus.NO_COMMIT], pa.int64())).cast(pa.int64()),
        "deleted_before_read": partitions["deleted_before_read"],
        "asked_timestamp": partitions["asked_timestamp"],
    }
    with_nulls = pc.ScalarAggregateOptions(skip_nulls=False)
    of_groups = [
        # the reason of the worst partition is null if its status is known
        *(("severity", "max"), ("why", "first", with_nulls), ("lag", "sum"), ("lag_ms", "max")),
        *(("lag_at_least_ms", "max"), ("partition", "count"), ("not_ok", "sum"), ("topic", "first")),
        *(("partition", "first"), ("lag_at_most", "sum", with_nulls), ("lag_unknown", "sum"), ("no_commit", "sum")),
        *(("deleted_before_read", "sum"), ("asked_timestamp", "max")),
    ]
    names = [
        *("group_id", "severity", "why", "lag", "lag_ms", "lag_at_least_ms", "partitions", "not_ok", "topic"),
        *("partition", "lag_at_most", "lag_unknown", "no_commit", "deleted_before_read", "asked_timestamp"),
    ]
    groups = pa.table(columns).group_by("group_id", use_threads=False).aggregate(of_groups).rename_columns(names)
    known = pc.if_else(pc.equal(groups["lag_ms"], _LONGER_THAN_KNOWN), None, groups["lag_ms"])
    return groups.set_column(names.index("lag_ms"), "lag_ms", known)


def behind(lags: pa.Table) -> list[str | None]:
    """Return the lag in time of groups or partitions for people; `>2h` means at least two hours."""
    columns = (lags[name].to_pylist() for name in ("lag_ms", "lag_at_least_ms"))
    return [
        to_duration(about(exact)) if exact is not None else f">{to_duration(about(least))}" if least else None
        for exact, least in zip(*columns, strict=True)
    ]


def shown_lag(lag: int | None, lag_at_most: int | None, show: Callable[[int], str] = "{:,}".format) -> str:
    """Return the lag of a group or partition in records for people: `5`, `0 to 300`, `at least 5` or `unknown`."""
    if lag == lag_at_most:
        return "unknown" if lag is None else show(lag)
    if lag_at_most is None:
        return "unknown" if lag is None else f"at least {show(lag)}"
    return f"{show(lag or 0)} to {show(lag_at_most)}"


def shown_status(lags: pa.Table) -> list[str]:
    """Return the status of groups or partitions for people, with the reason if it is unknown."""
    both = zip(lags["status"].to_pylist(), lags["why"].to_pylist(), strict=True)
    return [status if why is None else f"unknown ({why})" for status, why in both]


def recorded_before(lake: Lake) -> str | None:
    """Return a sentence if later ingests read no log end offsets, so that lags are those of an earlier time."""
    run, newest = newest_asked(lake), last_run(lake, "ingest")
    if run is None or newest is None or newest.run_id <= run:
        return None
    asked = pc.max(ends_asked_by(lake, run)["asked_timestamp"]).as_py()
    at = "an earlier cycle" if asked is None else to_iso(asked)
    return f"The lag is as of {at}: cycles since then read no log end offsets, see `offsetlake runs`."


def _nothing_found(lake: Lake, pattern: str | None, topic: str | None = None) -> NoOffset:
    like = "" if pattern is None else f" like {pattern!r}"
    of_topic = "" if topic is None else f" of topic {topic!r}"
    check_read(lake, pattern)
    share = "; the lag of share groups: `offsetlake share`" if active_files(lake, "share_partitions") else ""
    return NoOffset(f"no group{like} has an offset{of_topic}, as far as the lake {lake.location} has read{share}")


def _nothing_asked(lake: Lake, now: int | None) -> BadRequest:
    first = lake.query("SELECT min(asked_timestamp) AS at FROM log_ends", "log_ends")["at"][0].as_py()
    if first is None or now is None:
        option, value = log_ends_source(lake)
        source = "a live cluster" if option == "--bootstrap" else "the log of a node while `offsetlake serve` runs"
        return BadRequest(
            f"the lake {lake.location} has no log end offsets of topics: only a cycle over {source} "
            f"records them, `offsetlake run {option} {value}`"
        )
    return BadRequest(f"log end offsets are recorded since {to_iso(first)}: {to_iso(now)} is before that")
