"""Pages of commits: together they are the whole history, whatever precedes the records of a page."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.queries.exploring import commits as module
from offsetlake.queries.exploring.commits import Filters, commits_page, matching
from offsetlake.queries.exploring.keys import Key
from offsetlake.queries.history.before import parse_position
from offsetlake.queries.history.key_history import DETAILS
from offsetlake.queries.questions import history
from support.oracle.log_reader import LogRecord
from support.oracle.random_logs import random_log
from support.oracle.replay import OffsetKey, replay
from support.queries.lakes import commit, history_of, marker, small_lake, tombstone

KEY = Key("g", "t", 0)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """History in two log partitions, in which long stretches are transactions that are open or aborted."""
    random, rows, markers, events = Random(3), [], [], []
    for log_partition in (0, 1):
        offset, open_producer = 0, None
        for n in range(700):
            kind, place = random.random(), {"log_partition": log_partition}
            if kind < 0.03 and open_producer:
                markers.append(marker(n, random.choice(["COMMIT", "ABORT"]), open_producer, **place))
                open_producer = None
            elif kind < 0.06:
                rows.append(tombstone(n, **place))
            elif kind < 0.8 and n > 100:
                open_producer = open_producer or n + 1000
                rows.append(commit(n, n, producer_id=open_producer, **place))
            else:
                offset = max(offset + random.randrange(-5, 30), 0)
                rows.append(commit(n, offset, **place))
                if n % 10 == 0:
                    events.append({"log_offset": n, "last_log_offset": n, "client_id": f"App-{n % 3}", **place})
            rows.append(commit(n, 1, group_id="other", topic="t", log_partition=log_partition))
    path = tmp_path_factory.mktemp("lake")
    return small_lake(path, offset_commits=rows, transaction_markers=markers, audit_events=events)


def shown(lake: Lake) -> list[dict[str, object]]:
    """All rows of the history, with the columns of pages."""
    rows: list[dict[str, object]] = history(lake, "g", "t", 0).drop_columns([*DETAILS]).to_pylist()
    return rows


def every_page(lake: Lake, filters: Filters, limit: int, every: pa.Table | None = None) -> list[dict[str, object]]:
    rows, before, more = [], "", True
    while more:
        page, more = commits_page(lake, KEY, before, filters, limit, every)
        rows += page.to_pylist()
        before = f"{rows[-1]['log_partition']}:{rows[-1]['log_offset']}" if rows else ""
    return rows


@pytest.mark.parametrize(("context", "span"), [(3, 40), (3, 10_000), (20, 100)])
@pytest.mark.parametrize("limit", [60, 1000])
def test_all_pages_are_the_history(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, limit: int, context: int, span: int
) -> None:
    monkeypatch.setattr(module, "_FIRST_CONTEXT", context)
    monkeypatch.setattr(module, "_FIRST_SPAN", span)
    assert every_page(lake, Filters(), limit) == shown(lake)


@pytest.mark.parametrize(
    "filters",
    [Filters(event="tombstone"), Filters(event="reset_back"), Filters(who="app-1"), Filters(who="ALICE"),
     Filters(since_ms=100, until_ms=200), Filters(since_ms=650, event="commit"), Filters(who="nobody")],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("max_kept", [0, 10_000], ids=["many", "kept"])
def test_filters_choose_rows_of_the_history(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, filters: Filters, max_kept: int
) -> None:
    monkeypatch.setattr(module, "MAX_KEPT", max_kept)
    monkeypatch.setattr(module, "_FIRST_SPAN", 100)

    def is_chosen(row: dict[str, object]) -> bool:
        texts = [str(row[name] or "").lower() for name in ("principal", "client_id")]
        at = row["log_timestamp"]
        assert isinstance(at, int)
        return (
            row["event"] in {filters.event or row["event"]}
            and any(filters.who.lower() in text for text in texts)
            and (filters.since_ms or 0) <= at <= (filters.until_ms or at)
        )

    expected = [row for row in shown(lake) if is_chosen(row)]
    every = matching(lake, KEY, filters)
    assert (every is None) == (len(expected) > max_kept)
    assert every_page(lake, filters, 25, every) == expected
    assert history(lake, "g", "t", 0, choose=filters.chosen).drop_columns([*DETAILS]).to_pylist() == expected
    assert history(lake, "g", "t", 0, 3, choose=filters.chosen).num_rows == min(len(expected), 3)
    assert expected or filters.who == "nobody"


PageRow = tuple[object, ...]
COLUMNS = ("log_partition", "log_offset", "event", "committed_offset", "previous_offset", "difference", "outcome")


def replayed(records: Sequence[LogRecord]) -> dict[OffsetKey, list[PageRow]]:
    """The COLUMNS of the rows of each offset, newest first: the previous offset is that of the records before each."""
    rows: dict[OffsetKey, list[PageRow]] = defaultdict(list)
    history = {(entry.record.log_partition, entry.record.log_offset): entry for entry in replay(records).history}
    for number, record in enumerate(records):
        place = record.log_partition, record.log_offset
        if place not in history:
            continue
        entry, committed = history[place], replay(records[:number]).committed
        old = committed[entry.key].committed_offset if entry.key in committed else None
        new = None if entry.commit is None else entry.commit.committed_offset
        difference = None if new is None or old is None else new - old
        counts = entry.outcome in (None, "committed")
        is_back = counts and difference is not None and difference < 0
        event = "tombstone" if new is None else "reset_back" if is_back else "commit"
        rows[entry.key].insert(0, (*place, event, new, old, difference, entry.outcome))
    return rows


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "context", "span"),
    [(3, 5, 10), (9, 1, 2), (17, 20, 1000), (33, 1, 1000)],
)
def test_a_page_after_any_row_contains_the_next_rows_of_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, context: int, span: int
) -> None:
    """Among transactions and commits in parts, complete or not, however few records are read at first."""
    monkeypatch.setattr(module, "_FIRST_CONTEXT", context)
    monkeypatch.setattr(module, "_FIRST_SPAN", span)
    random = Random(seed)
    log = random_log(random, 80, groups=1, topics=1, partitions=2, log_partitions=1, commit_ids=(7,))
    lake = small_lake(tmp_path / "lake", **history_of(log.records()))
    history_of_keys = replayed(log.records())
    assert {(row[2], row[-1]) for rows in history_of_keys.values() for row in rows} >= {
        ("commit", None), ("commit", "partial"), ("commit", "committed"), ("commit", "aborted"), ("commit", "open"),
        ("reset_back", None), ("tombstone", None), ("tombstone", "partial"),
    }  # fmt: skip
    for key, rows in history_of_keys.items():
        every = matching(lake, Key(*key), Filters())
        for number in range(len(rows) + 1):
            before = f"{rows[number - 1][0]}:{rows[number - 1][1]}" if number else ""
            limit = random.choice([1, 2, 3, 10, 40])
            for kept in (None, every):
                page, more = commits_page(lake, Key(*key), before, Filters(), limit, kept)
                assert [*zip(*(page[name].to_pylist() for name in COLUMNS), strict=True)] == rows[number:][:limit]
                assert more == (len(rows) > number + limit)


@pytest.mark.parametrize("text", ["", "5", "a:b", "1:-2", "1:2:3", "\u0661:\u0662", f"1:{'9' * 40}"])
def test_an_invalid_position_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="Invalid log position"):
        parse_position(text)


def test_a_page_reads_commits_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = small_lake(tmp_path, offset_commits=[commit(n, n) for n in range(300)])
    original, reads = Lake.query, list[tuple[str, ...]]()

    def counting(opened: Lake, sql: str, *tables: str, **versions: int) -> pa.Table:
        reads.append(tables)
        return original(opened, sql, *tables, **versions)

    monkeypatch.setattr(Lake, "query", counting)
    page, more = commits_page(lake, Key("g", "t", 0), "", Filters(), 100)
    assert (page["log_offset"].to_pylist(), more) == ([*range(299, 199, -1)], True)
    assert reads.count(("offset_commits",)) == 1
