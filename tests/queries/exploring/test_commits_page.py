"""Pages of commits: together they are the whole history, whatever precedes the records of a page."""

from random import Random

import pyarrow as pa
import pytest

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.queries.exploring import commits as module
from offsetlake.queries.exploring.commits import Filters, commits_page, matching, parse_position
from offsetlake.queries.exploring.keys import Key
from offsetlake.queries.key_history import DETAILS
from offsetlake.queries.questions import history
from support.queries.lakes import commit, marker, small_lake, tombstone

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
    assert expected or filters.who == "nobody"


@pytest.mark.parametrize("text", ["", "5", "a:b", "1:-2", "1:2:3", "\u0661:\u0662", f"1:{'9' * 40}"])
def test_an_invalid_position_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="Invalid log position"):
        parse_position(text)
