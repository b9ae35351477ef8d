"""The rows of a small lake for reports, with group IDs that contain markup."""

from typing import Any

from offsetlake.rules.policy import Override, RetentionPolicy
from support.queries.lakes import Row, commit, tombstone

HOUR, DAY = 3_600_000, 86_400_000
NOW = 20 * DAY + 5 * HOUR  # 21 January 1970
POLICY = RetentionPolicy(7 * DAY, (Override("kept-*", "*", 30 * DAY),))
TAGS, MATH, LONG = "<script>alert(1)</script>&amp;'\"", "_$x^{$ 漢字 \u202e\n", "billing-" + "x" * 300 + "-eu"


def commit_at(group_id: str, log_offset: int, value: int, time: int, **columns: Any) -> Row:
    times = {"log_timestamp": time, "commit_timestamp": time}
    return commit(log_offset, value, **{"group_id": group_id, **times, **columns})


def stored(group_id: str, time: int, **columns: Any) -> Row:
    key = {"group_id": group_id, "topic": "t", "partition": 0}
    return {**key, "committed_offset": 1, "commit_timestamp": time, "log_offset": 0, **columns}


def decided(run_id: int, outcome: str, rule: str, judged_offset: int) -> Row:
    key = {"group_id": "old", "topic": "t", "partition": 0}
    return {**key, "run_id": run_id, "outcome": outcome, "rule": rule, "judged_offset": judged_offset}


TABLES: dict[str, list[Row]] = {
    "offset_commits": [
        commit_at("before", 0, 1, NOW - 8 * DAY),
        commit_at("chatty", 1, 1, NOW - 3 * DAY),
        *(commit_at("chatty", 2 + n, 1, NOW - 2 * DAY + n) for n in range(3)),
        commit_at("chatty", 5, 2, NOW - 2 * DAY + 3 * HOUR),
        commit_at("steady", 6, 10, NOW - DAY),
        commit_at("steady", 7, 20, NOW - 5 * HOUR),
        commit_at("steady", 8, 15, NOW),
        tombstone(9, group_id="steady", topic="gone", log_timestamp=NOW),
        *(commit_at(name, 10 + n, 7, NOW - HOUR) for n, name in enumerate((TAGS, MATH, LONG))),
    ],
    "offsets": [
        stored("chatty", NOW - 8 * DAY),
        stored("chatty", NOW - 7 * DAY + 1, partition=1),
        stored("steady", NOW - 6 * DAY, topic="a"),
        stored("steady", NOW - 5 * HOUR),
        stored("kept-1", NOW - 8 * DAY),
        stored(TAGS, NOW - 7 * DAY),
    ],
    "groups": [{"group_id": name} for name in ("chatty", "steady", "kept-1", TAGS)],
    "tombstones": [
        decided(3, "planned", "commit_age", 1),
        decided(4, "emitted", "commit_age", 1),
        decided(3, "planned", "explicit", 2),
    ],
    "quarantine": [{"log_offset": n, "reason": "<b>bad", "log_timestamp": n} for n in range(2)],
    # A pending transaction keeps the offset of its key.
    "pending_offsets": [{**stored("steady", NOW), "producer_id": 5, "log_timestamp": NOW}],
    "runs": [
        {"run_id": 1, "job": "ingest", "started_at": 0, "finished_at": 1500, "positions": [
            {"topic": "__consumer_offsets", "partition": partition, "position": 1000 * partition + 1}
            for partition in (3, 1)
        ] + [{"topic": "__consumer_offsets", "partition": 2, "position": 0}]},
        {"run_id": 2, "job": "compact", "started_at": 2000, "finished_at": 2000, "notes": ["look & see"]},
    ],
}  # fmt: skip


def quiet(_text: str) -> None:
    pass
