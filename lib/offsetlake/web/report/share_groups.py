"""The section on share groups: the share partitions whose records are not completed."""

from typing import Any

import numpy as np

from offsetlake.queries.share import topic_names
from offsetlake.util.amounts import counted, noun
from offsetlake.web.report import numbers
from offsetlake.web.report.charts import Bars
from offsetlake.web.report.page import Row, Section
from offsetlake.web.report.scope import Scope
from offsetlake.web.report.words import count, duration, shortened

_STATES = ("acknowledged", "archived", "available", "acquired")
_MAX_NAME_CHARACTERS = 40


def share_groups(scope: Scope) -> Section:
    """Return the section on the share partitions with records in flight: redelivered ones first, then stalled ones."""
    title, total = "Share groups", numbers.count_rows(scope, "share_partitions")
    worst = numbers.worst_share_partitions(scope).to_pylist()
    if not worst:
        return Section(title, f"Share partitions: {total:,}, none with records in flight.")
    topics = topic_names(scope.lake)
    rows: list[Row] = [
        {
            "group": row["group_id"],
            "topic": _topic(row, topics),
            "in flight": row["in_flight_records"],
            "delivered again": row["redelivered_records"],
            "deliveries": row["max_delivery_count"],
            "unmoved for": duration(row["stalled_ms"]),
        }
        for row in worst
    ]
    chart = Bars(
        [f"{row['group_id']}, {_topic(row, topics)}" for row in worst],
        {name: np.array([_records(row, name) for row in worst], float) for name in _STATES},
        [count(row["in_flight_records"]) for row in worst],
    )
    again = worst[0]["poisoned"]
    return Section(
        title,
        f"Records in flight by state: {worst[0]['matches']:,} of {counted(total, 'share partition')} "
        f"{noun(worst[0]['matches'], 'has', 'have')} such records, and "
        f"{again:,} {noun(again, 'has', 'have')} records that were delivered more than once. The start offset "
        "moves when the first record in "
        "flight is completed. Acquired records are being processed, or do not exist. "
        f"To list the records that were delivered repeatedly: {scope.command('audit', 'poison_records')}.",
        rows,
        chart,
        worst[0]["matches"] - len(rows),
        scope.command("share"),
    )


def _records(row: dict[str, Any], state: str) -> int:
    """Return the number of records in flight in a state; those in no batch are acquired for the first time."""
    if state != "acquired":
        return int(row[f"{state}_records"])
    return max(int(row["in_flight_records"] - sum(_records(row, name) for name in _STATES[:-1])), 0)


def _topic(row: dict[str, Any], topics: dict[str, str]) -> str:
    name = topics.get(row["topic_id"], row["topic_id"])
    return f"{shortened(name, _MAX_NAME_CHARACTERS)}:{row['partition']}"
