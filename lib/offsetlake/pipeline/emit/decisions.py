"""Decisions of the tables `tombstones` and `alterations`, and their common form as writes to a log."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import BadRequest
from offsetlake.rules.reduction import KEY
from offsetlake.util.row_codes import order_codes, same_codes
from offsetlake.util.text_files import as_utf8

TOMBSTONE = (*KEY, "judged_offset")
"""The key of a decision in `tombstones`: one about a later commit of the offset is another decision."""

SELECTION = pa.schema(
    [("group_id", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("judged_offset", pa.int64())]
)
"""Decisions of `tombstones` that a person selects: the columns of TOMBSTONE."""

ALTERATION = KEY
"""The key of a decision in `alterations`: a later plan for the same offset replaces it."""

DECIDED = {"tombstones": TOMBSTONE, "alterations": ALTERATION}
"""The tables of decisions, with the key of each."""

BY_HAND = "cleanup"
"""The rule of tombstones that `cleanup` plans: an evaluation of retention never withdraws them."""

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
_AFTER_ALL_TOPICS = "\U0010ffff"  # the tombstone of a group is written after those of its offsets


def standing(rows: pa.Table, decision: Sequence[str], outcomes: Sequence[str] = ("planned",)) -> pa.Table:
    """Return the newest row of each decision if it has one of these outcomes; the order of rows does not change."""
    chosen = pc.is_in(rows["outcome"], pa.array(outcomes)).to_numpy()
    runs = rows["run_id"].to_numpy()
    if (runs != runs[:1]).any():  # rows of one run are distinct
        codes = same_codes(rows, decision)
        order = np.lexsort((runs, codes))
        chosen[order[:-1][codes[order][1:] == codes[order][:-1]]] = False
    return rows if chosen.all() else rows.filter(chosen)


def replaced(rows: pa.Table, **constants: object) -> pa.Table:
    """Return the rows with a constant value in each of these columns."""
    for name, value in constants.items():
        index, column = rows.schema.get_field_index(name), rows.schema.field(name)
        rows = rows.set_column(index, column, pa.repeat(pa.scalar(value, column.type), rows.num_rows))
    return rows


def as_writes(planned: Mapping[str, pa.Table]) -> pa.Table:
    """Return the decisions as writes, with the offsets of a group before the group itself, as a broker writes them.

    | Column | Type | Description |
    |---|---|---|
    | table, row | string, bigint | The table of the decision, and its row in `planned`. |
    | run_id, by_hand | bigint, boolean | The run that planned it, and whether a user requested it. |
    | group_id, topic, partition | string, string, int | The offset; both null for the group itself. |
    | group_type | string | The type of a group that is deleted. |
    | kind | string | `tombstone` or `commit`. |
    | judged_offset | bigint | The log offset of the evaluated commit; null if there was none. |
    | expected_offset | bigint | The committed offset of that commit. |
    | committed_offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, topic_id | | The new commit. |
    """
    parts = [_WRITES.empty_table()]
    for table, rows in planned.items():
        columns = {
            "table": pa.repeat(pa.scalar(table), rows.num_rows),
            "row": pa.array(np.arange(rows.num_rows)),
            **(_of_tombstones(rows) if table == "tombstones" else _of_alterations(rows)),
        }
        for field in _WRITES:
            value = columns.get(field.name, rows[field.name] if field.name in rows.column_names else None)
            columns[field.name] = pa.nulls(rows.num_rows, field.type) if value is None else value
        parts.append(pa.table({name: columns[name] for name in _WRITES.names}).cast(_WRITES))
    return _in_broker_order(pa.concat_tables(parts))


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


def _in_broker_order(writes: pa.Table) -> pa.Table:
    keys = {
        "group_id": writes["group_id"],
        "topic": pc.fill_null(writes["topic"].cast(pa.string()), _AFTER_ALL_TOPICS),
        "partition": pc.fill_null(writes["partition"], -1),
    }
    codes = order_codes(pa.table(keys), KEY)
    return writes if (np.diff(codes) >= 0).all() else writes.take(np.argsort(codes, kind="stable"))


def read_selection(file: Path, key: pa.Schema = SELECTION, command: str = "tombstones") -> pa.Table:
    """Read keys as JSON lines, by default decisions of `tombstones`; raise BadRequest for a line that has none.

    `command` is the question of `offsetlake` whose answer the file contains.
    """
    try:
        lines = as_utf8(file.read_bytes()).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"Cannot read {file}: {error}.") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            rows.append(pa.Table.from_pylist([{name: row[name] for name in key.names}], schema=key))
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise BadRequest(
                f"{file}, line {number}: not a row of `offsetlake {command} --format json`: {error!r}."
            ) from error
    return pa.concat_tables([key.empty_table(), *rows])
