"""Decisions as `tombstones` and `alterations` hold them, and as writes to a log: one form for both."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.rules.reduction import KEY
from offsetlake.util.row_codes import order_codes, same_codes

TOMBSTONE = (*KEY, "judged_offset")
"""What tells one decision of `tombstones` from another; a later commit of the key is another decision."""

ALTERATION = KEY
"""What tells one decision of `alterations` from another: what is planned later for an offset takes its place."""

DECIDED = {"tombstones": TOMBSTONE, "alterations": ALTERATION}
"""The tables of decisions."""

BY_HAND = "cleanup"
"""The rule of a tombstone that a person asked for: no judgement of retention takes it back."""

_WRITES = pa.schema(
    [
        *((name, pa.dictionary(pa.int32(), pa.string())) for name in ("group_id", "topic")),
        *((name, pa.string()) for name in ("table", "kind", "metadata", "topic_id", "group_type")),
        *((name, pa.int32()) for name in ("partition", "leader_epoch")),
        *((name, pa.int64()) for name in ("row", "run_id", "judged_offset", "expected_offset", "committed_offset")),
        *((name, pa.int64()) for name in ("commit_timestamp", "expire_timestamp")),
        ("by_hand", pa.bool_()),
    ]
)
_BEHIND_ALL_TOPICS = "\U0010ffff"  # a group goes behind its offsets


def standing(rows: pa.Table, decision: Sequence[str], outcomes: Sequence[str] = ("planned",)) -> pa.Table:
    """Keep the newest row of each decision, where its outcome is one of those named, in the order they are in."""
    chosen = pc.is_in(rows["outcome"], pa.array(outcomes)).to_numpy()
    runs = rows["run_id"].to_numpy()
    if (runs != runs[:1]).any():  # a run has each decision once
        codes = same_codes(rows, decision)
        order = np.lexsort((runs, codes))
        chosen[order[:-1][codes[order][1:] == codes[order][:-1]]] = False
    return rows if chosen.all() else rows.filter(chosen)


def replaced(rows: pa.Table, **constants: object) -> pa.Table:
    """Give the rows with these columns the same in all."""
    for name, value in constants.items():
        at, column = rows.schema.get_field_index(name), rows.schema.field(name)
        rows = rows.set_column(at, column, pa.repeat(pa.scalar(value, column.type), rows.num_rows))
    return rows


def as_writes(planned: Mapping[str, pa.Table]) -> pa.Table:
    """Bring rows of the tables of decisions into one form, a group's offsets before the group, as a broker does.

    | column           | is |
    |------------------|----|
    | table, row       | where the decision is: which of `planned`, and its row there |
    | run_id, by_hand  | the run that planned it; whether a person asked for it |
    | KEY              | topic and partition null: the group itself |
    | group_type       | of a group that goes |
    | kind             | tombstone, or commit |
    | judged_offset    | log offset of the commit it is about; null: there was none |
    | expected_offset  | what that commit says |
    | committed_offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, topic_id | of a commit |
    """
    parts = [_WRITES.empty_table()]
    for table, rows in planned.items():
        made = {
            "table": pa.repeat(pa.scalar(table), rows.num_rows),
            "row": pa.array(np.arange(rows.num_rows)),
            **(_of_tombstones(rows) if table == "tombstones" else _of_alterations(rows)),
        }
        there = {name: made.get(name, rows[name] if name in rows.column_names else None) for name in _WRITES.names}
        nulls = {name: pa.nulls(rows.num_rows, _WRITES.field(name).type) for name, of in there.items() if of is None}
        parts.append(pa.table(there | nulls).cast(_WRITES))
    return _in_brokers_order(pa.concat_tables(parts))


def _of_tombstones(rows: pa.Table) -> dict[str, pa.Array | None]:
    return {
        "kind": pa.repeat(pa.scalar("tombstone"), rows.num_rows),
        "expected_offset": rows["committed_offset"],
        "committed_offset": None,
        "by_hand": pc.equal(rows["rule"], BY_HAND),
    }


def _of_alterations(rows: pa.Table) -> dict[str, pa.Array | None]:
    return {
        "kind": pc.if_else(pc.is_null(rows["committed_offset"]), "tombstone", "commit"),
        "expected_offset": rows["previous_offset"],
        "by_hand": pa.repeat(pa.scalar(value=True), rows.num_rows),
    }


def _in_brokers_order(writes: pa.Table) -> pa.Table:
    keys = {
        "group_id": writes["group_id"],
        "topic": pc.fill_null(writes["topic"].cast(pa.string()), _BEHIND_ALL_TOPICS),
        "partition": pc.fill_null(writes["partition"], -1),
    }
    codes = order_codes(pa.table(keys), KEY)
    return writes if (np.diff(codes) >= 0).all() else writes.take(np.argsort(codes, kind="stable"))
