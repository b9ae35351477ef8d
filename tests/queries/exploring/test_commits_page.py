"""Pages of commits: together they are the whole history, whatever precedes the records of a page."""

from random import Random

import pytest

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.queries.exploring import commits as module
from offsetlake.queries.exploring.commits import Filters, commits_page, parse_position
from offsetlake.queries.exploring.keys import Key
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


def every_page(lake: Lake, filters: Filters, limit: int) -> list[dict[str, object]]:
    rows, before, more = [], "", True
    while more:
        page, more = commits_page(lake, KEY, before, filters, limit)
        rows += page.to_pylist()
        before = f"{rows[-1]['log_partition']}:{rows[-1]['log_offset']}" if rows else ""
    return rows


@pytest.mark.parametrize("context", [3, 100])
@pytest.mark.parametrize("limit", [60, 1000])
def test_all_pages_are_the_history(lake: Lake, monkeypatch: pytest.MonkeyPatch, limit: int, context: int) -> None:
    monkeypatch.setattr(module, "_FIRST_CONTEXT", context)
    assert every_page(lake, Filters(), limit) == history(lake, "g", "t", 0).to_pylist()


@pytest.mark.parametrize(
    "filters",
    [Filters(event="tombstone"), Filters(event="reset_back"), Filters(who="app-1"), Filters(who="ALICE"),
     Filters(since_ms=100, until_ms=200), Filters(since_ms=650, event="commit"), Filters(who="nobody")],
    ids=str,
)  # fmt: skip
def test_filters_choose_rows_of_the_history(lake: Lake, filters: Filters) -> None:
    def is_chosen(row: dict[str, object]) -> bool:
        texts = [str(row[name] or "").lower() for name in ("principal", "client_id")]
        at = row["log_timestamp"]
        assert isinstance(at, int)
        return (
            row["event"] in {filters.event or row["event"]}
            and any(filters.who.lower() in text for text in texts)
            and (filters.since_ms or 0) <= at <= (filters.until_ms or at)
        )

    expected = [row for row in history(lake, "g", "t", 0).to_pylist() if is_chosen(row)]
    assert every_page(lake, filters, 25) == expected
    assert expected or filters.who == "nobody"


@pytest.mark.parametrize("text", ["", "5", "a:b", "1:-2", "1:2:3", "\u0661:\u0662", f"1:{'9' * 40}"])
def test_an_invalid_position_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="Invalid log position"):
        parse_position(text)
