"""The queries on small lakes, and compared with a replay in plain Python."""

import random
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.select import select
from offsetlake.queries import questions
from offsetlake.queries.history import replayed
from offsetlake.queries.history.as_of import offsets_as_of
from support.oracle.log_reader import LogRecord
from support.oracle.random_logs import RandomLog, logs, random_log, worlds
from support.oracle.replay import Commit, OffsetKey, replay
from support.queries.lakes import commit, history_of, marker, small_lake, tombstone

FIELDS = (
    "committed_offset", "leader_epoch", "metadata", "commit_timestamp", "expire_timestamp", "topic_id", "log_partition",
    "log_offset",
)  # fmt: skip
EVENT = ("log_offset", "event", "committed_offset", "previous_offset", "outcome")
SLOW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Two groups with offsets, two without."""
    return small_lake(
        tmp_path_factory.mktemp("lakes") / "lake",
        groups=[
            {"group_id": "billing-1", "state": "Stable", "member_count": 2},
            {"group_id": "billing-2"},
            {"group_id": "it's [odd]"},
            {"group_id": "stream", "group_type": "streams", "replay_state": "{}"},
        ],
        offsets=[
            {"group_id": "billing-1", "topic": "b", "partition": 10, "committed_offset": 5, "log_offset": 1},
            {"group_id": "billing-1", "topic": "b", "partition": 9, "committed_offset": 6, "log_offset": 2},
            {"group_id": "billing-1", "topic": "a", "partition": 0, "committed_offset": 7, "log_offset": 3},
            {"group_id": "it's [odd]", "topic": "a", "partition": 0, "committed_offset": 8, "log_offset": 4},
        ],
    )


def test_offsets_are_sorted_by_key(lake: Lake) -> None:
    found = questions.offsets(lake).to_pylist()
    keys = [(row["group_id"], row["topic"], row["partition"]) for row in found]
    assert keys == [("billing-1", "a", 0), ("billing-1", "b", 9), ("billing-1", "b", 10), ("it's [odd]", "a", 0)]


@pytest.mark.parametrize(
    ("chosen", "committed"),
    [
        ({"group_id": "it's [odd]"}, [8]),
        ({"topic": "a"}, [7, 8]),
        ({"group_id": "billing-1", "topic": "b"}, [6, 5]),
        ({"group_id": "billing-*"}, []),
        ({"limit": 2}, [7, 6]),
        ({"limit": 0}, []),
    ],
)
def test_group_and_topic_limit_the_offsets(lake: Lake, chosen: dict[str, str | int], committed: list[int]) -> None:
    assert questions.offsets(lake, **chosen)["committed_offset"].to_pylist() == committed  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ({}, ["billing-1", "billing-2", "it's [odd]", "stream"]),
        ({"pattern": "billing-*"}, ["billing-1", "billing-2"]),
        ({"pattern": "*[[]odd]"}, ["it's [odd]"]),
        ({"pattern": "BILLING-1"}, []),
        ({"state": "Stable"}, ["billing-1"]),
        ({"state": "Empty", "pattern": "?tr*"}, ["stream"]),
        ({"group_type": "streams"}, ["stream"]),
    ],
)
def test_pattern_state_and_type_limit_the_groups(lake: Lake, chosen: dict[str, str], names: list[str]) -> None:
    assert questions.groups(lake, **chosen)["group_id"].to_pylist() == names


def test_groups_have_the_number_of_their_offsets(lake: Lake) -> None:
    found = questions.groups(lake)
    assert found["offsets"].to_pylist() == [3, 0, 1, 0]
    assert "replay_state" not in found.column_names


def test_unknown_state_is_refused(lake: Lake) -> None:
    with pytest.raises(BadRequest, match="'stable'; states are Empty, Stable"):
        questions.groups(lake, state="stable")


def test_sql_reads_all_tables(lake: Lake) -> None:
    found = select(lake, "-- how many\nSELECT count(*) AS n FROM groups JOIN offsets USING (group_id);")
    assert found.to_pylist() == [{"n": 4}]


def test_sql_opens_only_the_tables_that_the_statement_and_its_views_name(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: set[str] = set()
    real = Lake._open_table
    monkeypatch.setattr(Lake, "_open_table", lambda self, *given: opened.add(given[0]) or real(self, *given))
    for statement, tables in {
        "SELECT 1 AS n": set(),
        'SELECT count(*) FROM offsets JOIN"groups"USING (group_id)': {"offsets", "groups"},
        "SELECT count(*) FROM offset_versions": {"offset_commits", "transaction_markers"},
    }.items():
        opened.clear()
        assert len(select(lake, statement).to_pylist()) == 1
        assert opened == tables


def test_sql_renames_columns_of_the_same_name(lake: Lake) -> None:
    found = select(lake, "SELECT g.group_id, o.group_id, o.topic FROM groups g JOIN offsets o ON g.state = o.topic")
    assert found.column_names == ["group_id", "group_id_2", "topic"]


def test_times_are_timestamps_in_sql(tmp_path: Path) -> None:
    lake = small_lake(tmp_path / "lake", offset_commits=[commit(0, 5, log_timestamp=1_795_239_527_123)])
    found = select(
        lake,
        "SELECT date_trunc('day', effective_timestamp) AS day, CAST(effective_timestamp AS BIGINT) AS ms FROM changes "
        "WHERE effective_timestamp >= '2026-11-21T05:38:47' AND effective_timestamp < TIMESTAMP '2026-11-21 05:38:48'",
    )
    assert isinstance(found, pa.Table)
    assert found.to_pylist() == [{"day": datetime(2026, 11, 21, tzinfo=UTC), "ms": 1_795_239_527_123}]
    with pytest.raises(BadRequest, match="Times are timestamps: compare with '2026"):
        select(lake, "SELECT count(*) FROM changes WHERE effective_timestamp > 1795239528000")


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("SELECT nope FROM offsets", "No field named nope"),
        ("SELECT * FROM nope", "There is no table or view 'nope'. Tables are offset_commits"),
        ("SELECT 1 / (partition - partition) FROM offsets", "Divide by zero"),
        ("SELECT 1; SELECT 2", "Only one SELECT statement is allowed"),
        ("", "only SELECT"),
        ("DROP TABLE offsets", "only SELECT"),
        ("INSERT INTO offsets SELECT * FROM offsets", "only SELECT"),
        ("WITH all AS (SELECT * FROM offsets) INSERT INTO offsets SELECT * FROM offsets", "not implemented"),
        ("COPY offsets TO '{there}'", "only SELECT"),
        ("SELECT 1) UNION (COPY offsets TO '{there}'", "Syntax error"),
        ("CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '{there}'", "only SELECT"),
    ],
)
def test_sql_only_reads(lake: Lake, tmp_path: Path, statement: str, says: str) -> None:
    there = tmp_path / "there.csv"
    before = lake.versions("offsets", "groups")
    with pytest.raises(BadRequest, match=says):
        select(lake, statement.format(there=there))
    assert lake.versions("offsets", "groups") == before
    assert not there.exists()


@pytest.mark.parametrize(
    ("commits", "markers", "expected"),
    [
        pytest.param([], [], [], id="none"),
        pytest.param(
            [commit(1, 5), commit(2, 9), commit(3, 4), commit(4, 4)],
            [],
            [
                ("commit", 4, 4, 0, None), ("reset_back", 4, 9, -5, None), ("commit", 9, 5, 4, None),
                ("commit", 5, None, None, None),
            ],
            id="plain",
        ),
        pytest.param(
            [commit(1, 5), tombstone(2), commit(3, 4)],
            [],
            [("commit", 4, None, None, None), ("tombstone", None, 5, None, None), ("commit", 5, None, None, None)],
            id="what a tombstone removed is in force no more",
        ),
        pytest.param(
            [commit(1, 9), commit(2, 5, 7), commit(4, 6)],
            [marker(3, "ABORT", 7)],
            [("reset_back", 6, 9, -3, None), ("commit", 5, 9, -4, "aborted"), ("commit", 9, None, None, None)],
            id="an aborted commit resets nothing",
        ),
        pytest.param(
            [commit(1, 9), commit(2, 5, 7), commit(4, 6)],
            [marker(3, "COMMIT", 7)],
            [("commit", 6, 5, 1, None), ("reset_back", 5, 9, -4, "committed"), ("commit", 9, None, None, None)],
            id="a committed one does",
        ),
        pytest.param(
            [commit(1, 9), commit(2, 5, 7), commit(3, 10)],
            [marker(4, "COMMIT", 7)],
            [("commit", 10, 9, 1, None), ("reset_back", 5, 9, -4, "committed"), ("commit", 9, None, None, None)],
            id="before its marker it is not in force",
        ),
        pytest.param(
            [commit(1, 9), commit(2, 5, 7), commit(3, 10), commit(5, 11)],
            [marker(4, "COMMIT", 7)],
            [
                ("commit", 11, 10, 1, None), ("commit", 10, 9, 1, None), ("reset_back", 5, 9, -4, "committed"),
                ("commit", 9, None, None, None),
            ],
            id="nor behind it, where a newer commit stands",
        ),
        pytest.param(
            [commit(1, 5, 7), commit(2, 6, 8)],
            [marker(3, "COMMIT", 8)],
            [("commit", 6, None, None, "committed"), ("commit", 5, None, None, "open")],
            id="markers of another producer",
        ),
        pytest.param(
            [commit(1, 2**63 - 1), commit(2, -(2**63))],
            [],
            [
                ("reset_back", -(2**63), 2**63 - 1, -(2**64) + 1, None),
                ("commit", 2**63 - 1, None, None, None),
            ],
            id="the widest jump",
        ),
    ],
)  # fmt: skip
def test_history(
    tmp_path: Path,
    commits: list[dict[str, object]],
    markers: list[dict[str, object]],
    expected: list[tuple[object, ...]],
) -> None:
    others = [commit(99, 1, group_id="g2"), commit(98, 1, topic="t2"), commit(97, 1, partition=1)]
    lake = small_lake(tmp_path / "lake", offset_commits=[*commits, *others], transaction_markers=markers)
    columns = ("event", "committed_offset", "previous_offset", "difference", "outcome")
    found = questions.history(lake, "g", "t", 0)
    assert [tuple(row[name] for name in columns) for row in found.to_pylist()] == expected
    newest = questions.history(lake, "g", "t", 0, limit=1).to_pylist()
    assert newest == found.to_pylist()[:1]


def _event(first: int, last: int, principal: str, **others: object) -> dict[str, object]:
    where = {"log_offset": first, "last_log_offset": last, "log_timestamp": first}
    return {**where, "principal": principal, "client_id": "c", "address": "a", **others}


def test_history_has_the_audit_event_of_each_record(tmp_path: Path) -> None:
    events = [
        _event(1, 1, "User:first", what="commit"),
        _event(3, 4, "os:two-records", what="reset", client_id=None, address=None),
        _event(2, 9, "User:elsewhere", log_partition=1),
        _event(5, 6, "User:of-another-group", group_id="g2"),
        _event(8, 8, "User:of-another-key"),
    ]
    commits = [*(commit(at, at) for at in (1, 2, 3)), tombstone(4), *(commit(at, at) for at in (5, 6, 9))]
    lake = small_lake(tmp_path / "lake", offset_commits=commits, audit_events=events)
    columns = ("log_offset", "what", "principal", "client_id", "address")
    found = [tuple(row[name] for name in columns) for row in questions.history(lake, "g", "t", 0).to_pylist()]
    assert found == [
        *((at, None, None, None, None) for at in (9, 6, 5)),
        (4, "reset", "os:two-records", None, None),
        (3, "reset", "os:two-records", None, None),
        (2, None, None, None, None),
        (1, "commit", "User:first", "c", "a"),
    ]


def test_audit_events_are_listed_newest_first(tmp_path: Path) -> None:
    events = [
        _event(1, 1, "User:alice"),
        _event(2, 5, "User:bob", group_id="billing-1", what="delete group"),
        _event(7, 7, "User:alice", group_id="billing-2", log_partition=3),
        _event(6, 6, "User:bob", group_id="billing-2", log_timestamp=None),
    ]
    lake = small_lake(tmp_path / "lake", audit_events=events)

    def firsts(*arguments: object) -> list[int]:
        found: list[int] = questions.audit_events(lake, *arguments)["log_offset"].to_pylist()  # type: ignore[arg-type]
        return found

    assert firsts() == [7, 2, 1, 6]
    assert firsts("billing-*") == [7, 2, 6]
    assert firsts(None, "User:alice") == [7, 1]
    assert firsts(None, "User:o'hara") == []
    assert firsts(None, None, 2) == [7, 2]
    assert firsts("billing-?", "User:bob", 2) == [2]
    assert firsts(None, None, None, 2) == [7, 2]
    assert questions.audit_events(lake).column_names == lake.columns("audit_events")


def _events_of(log: RandomLog) -> list[dict[str, object]]:
    """The rows of `audit_events` of a log, by way of the oracle's own decoding; a batch may be of many groups here."""
    groups = {(r.log_partition, r.log_offset): r.key for r in log.records()}
    rows = []
    for log_partition, first, last, principal in log.audit_events():
        key = groups[log_partition, first] or b""
        group_id = key[4 : 4 + int.from_bytes(key[2:4])].decode()
        rows.append(_event(first, last, principal, group_id=group_id, log_partition=log_partition))
    return rows


def _history_by_replay(records: list[LogRecord], key: OffsetKey) -> list[tuple[object, ...]]:
    """Events of a key, newest first: before each record the log is replayed up to it, from its start."""
    expected = []
    for entry in (each for each in replay(records).history if each.key == key):
        here = entry.record
        earlier = [r for r in records if r.log_partition == here.log_partition and r.log_offset < here.log_offset]
        before = replay(earlier).committed.get(key)
        value = entry.commit.committed_offset if entry.commit else None
        is_back = value is not None and before is not None and value < before.committed_offset
        event = (
            entry.kind
            if entry.commit is None or not is_back or entry.outcome in ("open", "aborted", "partial")
            else "reset_back"
        )
        expected.append((here.log_offset, event, value, before.committed_offset if before else None, entry.outcome))
    return sorted(expected, reverse=True)


ANY_LOG = logs() | worlds((7,)).flatmap(lambda world: logs(world=world))


@pytest.mark.long
@pytest.mark.slow
@SLOW
@given(ANY_LOG)
def test_history_of_any_log_matches_replays(log: RandomLog) -> None:
    records = log.records()
    with TemporaryDirectory() as folder:
        events = _events_of(log)
        lake = small_lake(Path(folder) / "lake", audit_events=events, **history_of(records))
        for key in {entry.key for entry in replay(records).history}:
            found = questions.history(lake, *key).to_pylist()
            assert [tuple(row[name] for name in EVENT) for row in found] == _history_by_replay(records, key)
            for row in found:
                done = [
                    event["principal"]
                    for event in events
                    if (event["group_id"], event["log_partition"]) == (key[0], row["log_partition"])
                    if event["log_offset"] <= row["log_offset"] <= event["last_log_offset"]  # type: ignore[operator]
                ]
                assert (done or [None]) == [row["principal"]]


def _as_rows(committed: dict[OffsetKey, Commit]) -> list[dict[str, object]]:
    named = ("group_id", "topic", "partition")
    rows = [
        {**dict(zip(named, key, strict=True)), **{field: getattr(commit, field) for field in FIELDS}}
        for key, commit in committed.items()
    ]
    return sorted(rows, key=lambda row: (str(row["group_id"]).encode(), str(row["topic"]).encode(), row["partition"]))


def _answered(lake: Lake, instant: int) -> list[dict[str, object]]:
    return [
        {name: row[name] for name in ("group_id", "topic", "partition", *FIELDS)}
        for row in offsets_as_of(lake, instant).to_pylist()
    ]


@pytest.mark.long
@pytest.mark.slow
@SLOW
@given(ANY_LOG, st.data())
def test_offsets_as_of_any_instant_match_a_replay(log: RandomLog, data: st.DataObject) -> None:
    records = log.records()
    timed = [*(e.record for e in replay(records).history), *replay(records).markers]
    times = sorted({each.log_timestamp for each in timed if each.log_timestamp != -1})
    with TemporaryDirectory() as folder:
        lake = small_lake(Path(folder) / "lake", **history_of(records))
        if not times:
            with pytest.raises(BadRequest, match="no record with a time"):
                offsets_as_of(lake, 0)
            return
        instant = data.draw(st.sampled_from(times)) + data.draw(st.sampled_from((0, 1)))
        assert _answered(lake, instant) == _as_rows(replay(records, instant).committed)
        with pytest.raises(BadRequest, match="history begins at"):
            offsets_as_of(lake, times[0] - 1)


def test_history_of_a_log_with_commits_in_parts_matches_replays(tmp_path: Path) -> None:
    records = random_log(random.Random(12), 400, groups=2, topics=2, log_partitions=1, commit_ids=(7,)).records()
    lake = small_lake(tmp_path / "lake", **history_of(records))
    for key in sorted({entry.key for entry in replay(records).history})[:6]:
        found = questions.history(lake, *key).to_pylist()
        assert [tuple(row[name] for name in EVENT) for row in found] == _history_by_replay(records, key)


@pytest.mark.parametrize("commit_ids", [pytest.param((), marks=pytest.mark.long), (7,)])
def test_offsets_as_of_read_in_portions_match_a_replay(
    tmp_path: Path, commit_ids: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replayed, "_ROWS_AT_ONCE", 300)  # several parts of the log, one after the other
    records = random_log(random.Random(11), 1500, groups=12, log_partitions=10, commit_ids=commit_ids).records()
    lake = small_lake(tmp_path / "lake", **history_of(records))
    times = sorted({record.log_timestamp for record in records if record.log_timestamp != -1})
    for instant in [*times[10 :: len(times) // 8], times[-1]]:
        assert _answered(lake, instant) == _as_rows(replay(records, instant).committed)
    every = offsets_as_of(lake, times[-1])
    one = every.to_pylist()[0]
    of_group = offsets_as_of(lake, times[-1], group_id=one["group_id"]).to_pylist()
    assert of_group == [row for row in every.to_pylist() if row["group_id"] == one["group_id"]]
    of_topic = offsets_as_of(lake, times[-1], topic=one["topic"], limit=2).to_pylist()
    assert of_topic == [row for row in every.to_pylist() if row["topic"] == one["topic"]][:2]
    assert every.column_names == questions.offsets(lake).column_names
