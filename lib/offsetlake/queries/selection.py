"""Selects the groups that a question names, and raises NotInLake for names that history does not contain."""

from collections.abc import Collection, Mapping
from glob import escape
from typing import overload

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest, NotInLake
from offsetlake.lake.files import has_files
from offsetlake.lake.history.group_places import group_places
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.engine import quoted
from offsetlake.lake.unread import check_read
from offsetlake.queries.similar_names import similar_group, similar_topic
from offsetlake.rules import policy

STATES = (
    "Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady", "Dead",
    "Unknown",
)  # fmt: skip
_WILDCARDS = frozenset("*?[")


def check_state(state: str | None) -> None:
    """Raise BadRequest for a state that no group can be in."""
    if state is not None and state not in STATES:
        raise BadRequest(f"no group can be in state {state!r}; states are {', '.join(STATES)}")


@overload
def name_or_pattern(lake: Lake, text: str) -> str: ...
@overload
def name_or_pattern(lake: Lake, text: str | None) -> str | None: ...
def name_or_pattern(lake: Lake, text: str | None) -> str | None:
    """Return the shell pattern for what names groups in every command: the name of one group, or a shell pattern.

    A text such as `svc[1]` is the name of a group if the state tables or the history contain a group with this name.
    """
    if text is None or text == "*" or not _WILDCARDS & {*text}:
        return text
    tables = ("groups", "offsets", "offset_commits", "group_records")
    found = " UNION ALL ".join(f"SELECT group_id FROM {table} WHERE group_id = {quoted(text)}" for table in tables)  # noqa: S608
    is_name = lake.query(f"SELECT * FROM ({found}) LIMIT 1", *tables).num_rows  # noqa: S608
    return escape(text) if is_name else text


def like(rows: pa.Table, pattern: str | None) -> pa.Table:
    """Return the rows whose group_id matches the pattern, all rows without a pattern."""
    return rows if pattern is None else rows.filter(pa.array(policy.like(rows["group_id"], pattern)))


def known_groups(lake: Lake, pattern: str) -> list[str]:
    """Return the groups that history has a record of and that match the pattern; raise NotInLake if there is none."""
    tables = ["offset_commits", "group_records", "groups"]  # some groups have only records that cannot be decoded
    parts = [f"SELECT group_id FROM {table}" for table in tables]  # noqa: S608
    if has_files(lake, "unresolved_records"):
        tables.append("unresolved_records")
        parts.append("SELECT group_id FROM unresolved_records WHERE scope = 'offset'")
    known = lake.query(f"SELECT DISTINCT group_id FROM ({' UNION ALL '.join(parts)})", *tables)  # noqa: S608
    found: list[str] = like(known, name_or_pattern(lake, pattern))["group_id"].to_pylist()
    if not found:
        check_read(lake, pattern)
        raise NotInLake(
            f"no group like {pattern!r} is in history, as far as the lake {lake.location} has read its log.",
            lambda: similar_group(lake, pattern),
        )
    return found


def log_partitions_of(lake: Lake, groups: Collection[str]) -> list[int]:
    """Return the log partitions with records of groups: one each, unless partitions were added to the log topic."""
    return group_places(lake, groups, f"group_id IN ({', '.join(map(quoted, groups)) or 'NULL'})")


def log_partitions_like(lake: Lake, pattern: str) -> list[int]:
    """Return the log partitions with records of groups that match a pattern."""
    tables = ("offset_commits", "group_records", "groups")
    every = " UNION ALL ".join(f"SELECT group_id, log_partition FROM {table}" for table in tables)  # noqa: S608
    known = lake.query(f"SELECT DISTINCT group_id, log_partition FROM ({every})", *tables)  # noqa: S608
    known = like(known, name_or_pattern(lake, pattern))
    partitions: list[int] = pc.unique(known["log_partition"]).to_pylist()
    return sorted(partitions)


def check_known(lake: Lake, rows: pa.Table, pattern: str | None) -> pa.Table:
    """Return the rows of an answer; raise NotInLake if there are none and history has no group like the pattern."""
    if pattern is not None and not rows.num_rows:
        known_groups(lake, pattern)
    return rows


def check_known_offsets(lake: Lake, rows: pa.Table, group_id: str | None, topic: str | None) -> None:
    """Raise NotInLake if an answer has no rows, and no offset of the group or topic was ever committed."""
    if not rows.num_rows and (group_id is not None or topic is not None):
        check_committed(lake, group_id, topic)


def check_committed(
    lake: Lake, group_id: str | None = None, topic: str | None = None, partition: int | None = None
) -> None:
    """Raise NotInLake if no offset of this group, topic and partition was ever committed."""
    where = where_named(_named(group_id, topic, partition))
    if not lake.query(f"SELECT 1 FROM offset_commits {where} LIMIT 1", "offset_commits").num_rows:  # noqa: S608
        check_read(lake, group_id)
        if _has_unresolved(lake, where):
            raise NotInLake(
                f"no commit of {_subject(group_id, topic, partition)} can be decoded: the table quarantine has records "
                "of it."
            )
        raise never_committed(lake, group_id, topic, partition)


def _has_unresolved(lake: Lake, where: str) -> bool:
    """Return whether quarantined records leave an offset unknown that satisfies the condition."""
    if not has_files(lake, "unresolved_records"):
        return False
    sql = f"SELECT 1 FROM unresolved_records {where} {'AND' if where else 'WHERE'} scope = 'offset' LIMIT 1"  # noqa: S608
    return bool(lake.query(sql, "unresolved_records").num_rows)


def never_committed(
    lake: Lake, group_id: str | None = None, topic: str | None = None, partition: int | None = None
) -> NotInLake:
    """Return the error that no offset of this group, topic and partition was ever committed."""
    return NotInLake(
        f"no offset of {_subject(group_id, topic, partition)} was ever committed, as far as the lake {lake.location} "
        "has read its log.",
        lambda: similar_group(lake, group_id) or similar_topic(lake, topic, group_id),
    )


def _subject(group_id: str | None, topic: str | None, partition: int | None) -> str:
    named = _named(group_id, topic, partition).items()
    return ", ".join(f"{column.removesuffix('_id')} {value}" for column, value in named if value is not None)


def _named(group_id: str | None, topic: str | None, partition: int | None) -> dict[str, str | None]:
    return {"group_id": group_id, "topic": topic, "partition": None if partition is None else str(partition)}


def where_named(wanted: Mapping[str, str | None]) -> str:
    """Return the WHERE clause for columns that must have a value, where it is not None; empty without any."""
    conditions = [f"{column} = {quoted(value)}" for column, value in wanted.items() if value is not None]
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""
