"""What quarantined records leave unknown: the table `unresolved_records`, and the rule that protects what it names.

| scope             | quarantined                                   | unknown is                                    |
|-------------------|-----------------------------------------------|-----------------------------------------------|
| `offset`          | an offset record with a readable key          | the offset of that key                        |
| `group`           | a group record, or one of an unknown type     | the state of the group, and so all of it      |
| `share_partition` | a record of a share partition                 | the state of that share partition             |
| `transaction`     | a marker                                      | the offsets that its producer had pending     |
| `log_partition`   | a batch, or a record without a readable group | every offset and group in the log partition   |
|                   |                                               | that was written last before it               |

| scope             | superseded by what follows it in the log                                                        |
|-------------------|-------------------------------------------------------------------------------------------------|
| `offset`          | an effective commit or a tombstone of the key                                                   |
| `group`           | a record of the same key; a GroupMetadata record of the group; the tombstone of the whole group |
| `share_partition` | a snapshot or a tombstone of the share partition                                                |
| `transaction`     | a tombstone of the pending offsets                                                              |
| `log_partition`   | an effective commit, for its key; for its group, a GroupMetadata record, which has the whole    |
|                   | state, or the record of the first epoch of another group; never as a whole                      |

Nothing is decided about what is unknown: retention keeps it (rule `quarantined`), and no change of it is planned or
written. A group is not deleted while one of its offsets is unknown, or while its log partition has a batch that cannot
be read, because that may have offsets of the group that were never read.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.kafka.records.concerns import EVERYTHING, concern
from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from offsetlake.kafka.records.other_records import UNKNOWN_MARKER
from offsetlake.rules.groups.replay import QuarantinedRecords
from offsetlake.rules.reduction import KEY
from offsetlake.rules.share_replay import SHARE_PARTITION
from offsetlake.util.row_codes import among, rows_in

Row = dict[str, Any]
Bools = npt.NDArray[np.bool_]

_SAME = {
    "offset": KEY,
    "share_partition": SHARE_PARTITION,
    "transaction": ("producer_id", "log_partition"),
    "log_partition": ("log_topic", "log_partition"),
    "group": ("group_id", "log_topic", "log_partition"),
}
"""By scope, the columns of which the newest row of equal values replaces the others."""

_CONSEQUENCES = {
    "offset": "the newest offset of {group_id} for {topic}-{partition} is unknown",
    "group": "the state of {group_id} is unknown",
    "share_partition": "the state of partition {partition} of topic {topic_id} in {group_id} is unknown",
    "transaction": "the outcome of the transaction of producer {producer_id} before it is unknown",
    "log_partition": "offsets and groups that were written last before it are unknown",
}
_REMEDIES = {
    "offset": "commit the offset again",
    "group": "have the group write its state again, for example by a restart of its members",
    "share_partition": "have a member acknowledge records of the partition",
    "transaction": "commit the offsets again",
    "log_partition": "commit the offset again, and have the group write its state again",
}


def concerned(quarantined: pa.Table) -> list[Row]:
    """Return what rows of `quarantine` concern: rows of `unresolved_records`, and record_type and record of each.

    Omitted are those that concern nothing, and control records: `transaction_markers` has these as UNKNOWN.
    """
    rows = []
    for row in quarantined.to_pylist():
        is_batch = row["key_bytes"] is None and row["log_timestamp"] is None
        found = EVERYTHING if is_batch else concern(row["log_topic"], row["key_bytes"])
        if found is not None and not row["is_control"]:
            position = {name: row[name] for name in ("log_topic", "log_partition", "log_offset", "reason")}
            rows.append(found._asdict() | position | {"group_id": found.group_id or "", "producer_id": None})
    return rows


def unread_by_partition(quarantined: pa.Table) -> dict[int, QuarantinedRecords]:
    """Return the records of `quarantine` that concern groups, by log partition of the offsets topic."""
    rows = concerned(quarantined)
    partitions = {row["log_partition"] for row in rows}
    return {
        number: QuarantinedRecords.of(row for row in rows if row["log_partition"] == number) for number in partitions
    }


def unknown_markers(markers: pa.Table) -> list[Row]:
    """Return rows of `unresolved_records` for the rows of `transaction_markers` with an unknown result."""
    chosen = markers.filter(pc.equal(markers["marker"], UNKNOWN_MARKER))
    constant = {"scope": "transaction", "group_id": "", "topic": None, "topic_id": None, "partition": None}
    constant |= {"log_topic": OFFSETS_TOPIC, "reason": "the transaction marker cannot be read"}
    columns = ("log_partition", "log_offset", "producer_id")
    return [constant | {name: row[name] for name in columns} for row in chosen.to_pylist()]


def newest(rows: Iterable[Row]) -> list[Row]:
    """Return the newest row of everything that rows of `unresolved_records` concern."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = (row["scope"], *(row[name] for name in _SAME[row["scope"]]))
        if key not in found or found[key]["log_offset"] < row["log_offset"]:
            found[key] = row
    return [*found.values()]


def not_superseded(rows: Sequence[Row], decided: pa.Table | None, share_records: pa.Table) -> list[Row]:
    """Return those rows of the scopes `offset` and `share_partition` that no decoded record supersedes, and all others.

    Args:
        rows: Rows of `unresolved_records`.
        decided: The newest effective record of each key among the new records: KEY and log_offset; None for none.
        share_records: New rows of `share_state_records`.
    """
    whole = share_records.filter(pc.is_in(share_records["kind"], pa.array(["snapshot", "tombstone"])))
    superseding = {
        "offset": {} if decided is None else _last(decided, KEY),
        "share_partition": _last(whole, SHARE_PARTITION),
    }
    return [
        row
        for row in rows
        if superseding.get(row["scope"], {}).get(tuple(row[name] for name in _SAME[row["scope"]]), -1)
        < row["log_offset"]
    ]


def _last(records: pa.Table, key: Sequence[str]) -> dict[tuple[Any, ...], int]:
    last = records.select([*key, "log_offset"]).group_by([*key]).aggregate([("log_offset", "max")]).to_pylist()
    return {tuple(row[name] for name in key): row["log_offset_max"] for row in last}


@dataclass(frozen=True)
class Unresolved:
    """What is unknown of some groups and offsets; `rows` are rows of `unresolved_records`, usually none."""

    rows: pa.Table

    @cached_property
    def _by_scope(self) -> Mapping[str, pa.Table]:
        return {scope: self.rows.filter(pc.equal(self.rows["scope"], scope)) for scope in _SAME}

    @cached_property
    def batches(self) -> Mapping[int, Row]:
        """The newest batch that cannot be read of each log partition of the offsets topic."""
        rows = self._by_scope["log_partition"].to_pylist()
        return {row["log_partition"]: row for row in rows if row["log_topic"] == OFFSETS_TOPIC}

    def offsets(self, offsets: pa.Table) -> Bools:
        """Return which offsets are unknown by themselves; columns KEY, log_partition, and log_offset: null for none."""
        if not self.rows.num_rows:
            return np.zeros(offsets.num_rows, np.bool_)
        unknown = among(offsets, self._by_scope["offset"], KEY)
        partition, position = offsets["log_partition"].to_numpy(), pc.fill_null(offsets["log_offset"], -1).to_numpy()
        for number, batch in self.batches.items():
            unknown |= (partition == number) & (position < batch["log_offset"])
        return unknown

    def with_unknown_offsets(self, groups: pa.Table) -> Bools:
        """Return which groups may have offsets that are unknown; columns group_id and log_partition."""
        if not self.rows.num_rows:
            return np.zeros(groups.num_rows, np.bool_)
        named = pc.is_in(groups["group_id"], self._by_scope["offset"]["group_id"].combine_chunks())
        in_batches = pc.is_in(groups["log_partition"], pa.array([*self.batches], pa.int32()))
        result: Bools = pc.or_(named, in_batches).to_numpy()
        return result

    def share_groups(self, groups: pa.Table) -> Bools:
        """Return of which groups the state of a share partition may be unknown; column group_id."""
        if not self.rows.num_rows:
            return np.zeros(groups.num_rows, np.bool_)
        of_share_state = self.rows.filter(pc.equal(self.rows["log_topic"], SHARE_STATE_TOPIC))
        if pc.any(pc.equal(of_share_state["scope"], "log_partition")).as_py():
            return np.ones(groups.num_rows, np.bool_)
        result: Bools = pc.is_in(groups["group_id"], of_share_state["group_id"].combine_chunks()).to_numpy()
        return result

    def offset_reasons(self, offsets: pa.Table) -> dict[int, str]:
        """Return by row why offsets are unknown by themselves; columns as of `offsets`."""
        chosen = np.flatnonzero(self.offsets(offsets))
        named = self._by_scope["offset"]
        rows = rows_in(offsets.take(chosen), named, KEY)
        reasons = {}
        for row, found in zip(chosen.tolist(), rows.tolist(), strict=True):
            partition = offsets["log_partition"][row].as_py()
            reasons[row] = sentence(named.slice(found, 1).to_pylist()[0] if found >= 0 else self.batches[partition])
        return reasons

    def group_reasons(self, groups: Mapping[str, int], *, deleted: bool = False) -> dict[str, str]:
        """Return why groups are unknown, by name; with `deleted`, also why groups cannot be deleted.

        Args:
            groups: The log partition of each group.
            deleted: Whether unknown offsets of a group matter, too.
        """
        reasons = {}
        for row in self.rows.filter(pc.is_in(self.rows["group_id"], pa.array([*groups], pa.string()))).to_pylist():
            if row["scope"] in ("group", "share_partition") or deleted:
                reasons[row["group_id"]] = sentence(row)
        if deleted:
            for name, partition in groups.items():
                if partition in self.batches:
                    reasons.setdefault(name, sentence(self.batches[partition]))
        return reasons


NOTHING_UNRESOLVED = Unresolved(pa.table({}))


def sentence(row: Row) -> str:
    """Return why something is unknown, and what to do, from a row of `unresolved_records`."""
    what = "a batch" if row["scope"] == "log_partition" else "a record"
    where = f"log offset {row['log_offset']} of {row['log_topic']}-{row['log_partition']}"
    scope = row["scope"]
    return (
        f"{what} at {where} could not be decoded ({row['reason']}), so {_CONSEQUENCES[scope].format_map(row)}: "
        f"{_REMEDIES[scope]}, or read the log into a new lake with a version of offsetlake that can decode it"
    )


def of_groups(rows: pa.Table, groups: Collection[str]) -> pa.Table:
    """Return the rows of `unresolved_records` about these groups, and those that are about no group in particular."""
    return rows.filter(pc.is_in(rows["group_id"], pa.array([*groups, ""], pa.string())))
