"""The report of small lakes written by hand: the numbers on its page, and names that would break one."""

import re
import shlex
from pathlib import Path

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.report import numbers, words
from offsetlake.report.report import report
from offsetlake.report.scope import scope
from support.command_line import Run
from support.queries.lakes import end, small_lake, tombstone
from support.queries.view_rows import HISTORY, PRESENT
from support.queries.view_rows import NOW as PRESENT_NOW
from support.report.pages import Page
from support.report.report_rows import DAY, LONG, NOW, POLICY, TABLES, TAGS, at, quiet, stored


def read(lake: Lake, pattern: str | None = None, since_ms: int | None = None) -> Page:
    return Page(report(lake, POLICY, pattern, since_ms, quiet))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return small_lake(tmp_path_factory.mktemp("reports") / "prod <eu>", **TABLES)


@pytest.fixture(scope="module")
def page(lake: Lake) -> Page:
    return read(lake)


def test_the_head_says_which_lake_up_to_when_and_what_is_in_it(page: Page) -> None:
    assert page.title == "Consumer offsets: prod <eu>"
    assert "newest record, of 1970-01-21 05:00. What is over time begins 1970-01-18 05:00" in page.says[0]
    assert {name: value for name, value in page.facts.items() if name != "on disk"} == {
        "groups": "4", "offsets": "6", "commits and tombstones read": "13", "open transactions": "1",
        "tombstones planned": "1", "undecodable records": "2",
    }  # fmt: skip
    part = page.parts["Read so far"]
    assert part.says[0] == "2 log partitions were read. 1 more are empty."
    assert part.rows == [
        ["log topic", "partition", "read up to log offset"],
        ["__consumer_offsets", "1", "1,001"],
        ["__consumer_offsets", "3", "3,001"],
    ]


def test_commits_over_time(page: Page) -> None:
    part = page.parts["Commit rate"]
    assert part.rows[:3] == [
        ["group", "commits", "most", "when"],
        ["chatty", "5", "3", "1970-01-19 04:00"],  # steps of two hours from midnight on
        ["steady", "3", "1", "1970-01-20 04:00"],
    ]
    assert {row[0] for row in part.rows[3:]} == {TAGS, "_$x^{$ 漢字 \\u202e\\n", f"{LONG[:53]}…{LONG[-26:]}"}
    assert part.picture is not None
    assert {"chatty", "at most 3 in 2h", f"{LONG[:22]}…{LONG[-11:]}"} <= set(part.picture)


def test_progress_where_no_end_is_on_record(page: Page) -> None:
    part = page.parts["Progress"]
    assert part.rows[:3] == [
        ["group", "records ahead", "went back by", "last commit"],
        ["chatty", "1", "0", "1970-01-19 08:00"],
        ["steady", "5", "5", "1970-01-21 05:00"],
    ]
    assert "Where topics end is not on record" in part.says[0]
    assert "Lag" not in page.parts


def test_what_goes_on_which_day_by_the_policy_configured(page: Page) -> None:
    part = page.parts["Expiry calendar"]
    assert part.rows == [
        ["group", "offsets", "due", "by 28 Jan", "next"],
        ["chatty", "2", "1", "2", "1970-01-20 05:00"],
        [TAGS, "1", "1", "1", "1970-01-21 05:00"],
        ["steady", "2", "0", "1", "1970-01-22 05:00"],
        ["kept-1", "1", "0", "0", "1970-02-12 05:00"],
    ]
    assert "2 are due" in part.says[0]
    assert "2 more by 28 Jan" in part.says[0]
    assert "kept 7d unless the policy says otherwise" in part.says[0]


def test_who_commits_for_nothing(page: Page) -> None:
    part = page.parts["Worst committers"]
    assert part.rows[:3] == [
        ["group", "commits", "redundant", "of these", "most in an hour"],
        ["chatty", "5", "3", "60%", "3"],
        ["steady", "3", "0", "0%", "1"],
    ]
    assert "chatty said nothing new in 60% of its 5 commits" in part.says[0]


def test_growth_decisions_quarantine_runs_and_tables(page: Page) -> None:
    parts = page.parts
    assert parts["Growth of the log"].rows[1:3] == [["chatty", "5", "0", "0"], ["steady", "3", "1", "0"]]
    assert parts["Decisions"].rows[1:] == [["emitted", "commit_age", "1"], ["planned", "explicit", "1"]]
    assert parts["Quarantine"].rows[1:] == [["<b>bad", "2", "1970-01-01 00:00"]]
    assert parts["Runs"].rows[1:] == [
        ["compact", "1", "1970-01-01 00:00", "0", "look & see"],
        ["ingest", "1", "1970-01-01 00:00", "2", ""],
    ]
    sizes = {row[0]: row[1:3] for row in parts["Tables"].rows[1:]}
    assert (sizes["offset_commits"], sizes["log_ends"]) == (["13", "1"], ["0", "0"])


def test_nothing_of_a_name_is_html(page: Page) -> None:
    assert page.tags & {"script", "b", "iframe", "link", "object"} == set()


def test_of_some_groups_since_an_instant(lake: Lake) -> None:
    found = read(lake, "chatty", NOW - 2 * DAY)
    assert [row[:2] for row in found.parts["Commit rate"].rows[1:]] == [["chatty", "4"]]
    assert [row[0] for row in found.parts["Expiry calendar"].rows[1:]] == ["chatty"]
    assert found.parts["Growth of the log"].rows[1:] == [["chatty", "4", "0", "0"]]
    assert "Only of groups like chatty" in found.says[1]
    assert found.facts == {
        "groups": "1", "offsets": "2", "commits and tombstones read": "5", "open transactions": "0",
        "tombstones planned": "0",
    }  # fmt: skip
    assert found.parts["Decisions"].says == ["Nothing was ever decided to go."]


def test_lag_where_ends_are_on_record(tmp_path: Path) -> None:
    lake = small_lake(
        tmp_path / "lake",
        log_ends=[end(1, 50), end(2, 100)],
        offset_commits=[
            *(
                at("slow", 0, 29, 880),
                at("slow", 1, 30, 900),
                at("done", 2, 100, 1900, ingest_run=2),
                at("odd", 3, 1, 5, topic="x"),
            ),
            tombstone(4, group_id="deleted"),
        ],
    )
    page = read(lake)
    assert page.parts["Lag"].rows == [
        ["group", "status", "lag", "behind for"],
        ["slow", "STOP", "70", ">1s"],
        ["done", "OK", "0", "0s"],
        ["odd", "unknown (log end unknown)", "", ""],
    ]
    assert (
        page.parts["Lag"].says[0].startswith("1 of 3 groups raise an alarm: slow (STOP). slow commits nothing any more")
    )
    assert "Progress" not in page.parts
    assert read(lake, "deleted").parts["Lag"].says == ["These groups have no offsets."]
    assert report(lake, POLICY, None, None, quiet) == report(lake, POLICY, None, None, quiet)


def test_a_lake_without_anything(tmp_path: Path) -> None:
    page = read(Lake.create(tmp_path / "lake"))
    assert "holds no history yet. To read the log: offsetlake run --log DIR --lake " in page.says[0]
    assert {part.title: part.picture for part in page.parts.values() if part.title != "Tables"} == dict.fromkeys(
        ("What needs attention", "Commit rate", "Progress", "Expiry calendar", "Worst committers", "Growth of the log",
         "Decisions", "Quarantine", "Runs", "Read so far")
    )  # fmt: skip


@pytest.mark.parametrize("time", [-(2**63), -1, 0, 2**63 - 1])
def test_clocks_that_make_no_sense(tmp_path: Path, time: int) -> None:
    lake = small_lake(tmp_path / "lake", offset_commits=[at("g", 1, 1, time), at("g", 2, 2**63 - 1, NOW)])
    assert len(read(lake).parts) == 11


def test_ten_thousand_groups(tmp_path: Path) -> None:
    commits = [at(f"g{n:05}", n, n, NOW - n) for n in range(10_000)]
    lake = small_lake(
        tmp_path / "lake",
        offset_commits=commits,
        offsets=[stored(f"g{n:05}", NOW - n) for n in range(10_000)],
        groups=[{"group_id": f"g{n:05}"} for n in range(10_000)],
    )
    text = report(lake, POLICY, None, None, quiet)
    parts = Page(text).parts
    for title in ("Commit rate", "Progress", "Expiry calendar", "Worst committers", "Growth of the log"):
        assert len(parts[title].rows) == 9
        assert parts[title].says[-1].startswith("9,992 more are not shown.")
    assert len(text) < 400_000


def commands(page: Page) -> list[list[str]]:
    """Return every command of a page; whatever mentions offsetlake is a whole command about the lake."""
    texts = [row[-1] for row in page.parts["What needs attention"].rows[1:]]
    texts += [says for part in page.parts.values() for says in part.says]
    found = [match for text in texts for match in re.findall(r"offsetlake \w+.*? --lake '[^']*'", text)]
    assert len(found) == sum(text.count("offsetlake ") for text in texts)
    return [shlex.split(command) for command in found]


def test_what_needs_attention_is_at_the_top(tmp_path: Path) -> None:
    tables = {table: [*rows, *HISTORY.get(table, [])] for table, rows in PRESENT.items()} | {
        table: rows for table, rows in HISTORY.items() if table not in PRESENT
    }
    moved = {
        **tables,
        "offset_commits": [
            *PRESENT["offset_commits"],
            *({**row, "log_partition": 1, "log_timestamp": PRESENT_NOW - 500 + row["log_offset"]}
              for row in HISTORY["offset_commits"]),
        ],
        **{table: [{**row, "log_partition": 1} for row in HISTORY[table]]
           for table in ("transaction_markers", "group_records", "alterations")},
    }  # fmt: skip
    page = read(small_lake(tmp_path / "lake", **moved))
    assert next(iter(page.parts)) == "What needs attention"
    head, *rows = page.parts["What needs attention"].rows
    assert head == ["what", "found", "the worst or newest", "command"]
    since = "--since 1970-02-09T23:59:51.000Z"
    of = f"--lake {tmp_path / 'lake'}"
    assert rows == [
        ["offsets that went back with nothing to explain it", "4", "two members, t-0: 60 records again",
         f"offsetlake audit regressions {since} {of}"],
        ["resets", "9", "producer, reset, producer, t-0: from 1 to 5 at 1970-02-09 23:59",
         f"offsetlake audit changes {since} {of}"],
        ["offsets with two writers", "3", "two members, t-0: taken from each other 2 times",
         f"offsetlake audit double_writers {since} {of}"],
        ["stalled offsets", "1", "stalled, t-0: at least 45 records behind, for 5s",
         f"offsetlake audit stalled_partitions {since} {of}"],
        ["groups that no consumer uses", "9", "consumer: not_subscribed, 2 offsets, idle for 2d",
         f"offsetlake audit orphan_groups {of}"],
        ["hanging transactions", "1", "producer 7: 3 offsets have waited for 3d",
         f"offsetlake transactions --open-longer-than 15m {of}"],
    ]  # fmt: skip


def test_alarms_of_lag_are_named(tmp_path: Path) -> None:
    names = [f"stopped-{number:02}" for number in range(14)]
    commits = [at(name, 10 * n + k, k, 900 + k) for n, name in enumerate(names) for k in range(2)]
    lake = small_lake(tmp_path / "lake", log_ends=[end(1, 50), end(2, 100)], offset_commits=commits)
    page = read(lake)
    said = ", ".join(f"{name} (STOP)" for name in names[:10])
    assert (
        page.parts["Lag"].says[0].startswith(f"14 of 14 groups raise an alarm: {said} and 4 more. stopped-00 commits")
    )
    row = page.parts["What needs attention"].rows[-1]
    assert row[:3] == ["groups that raise an alarm of lag", "14", "stopped-00: STOP, 99 records behind"]
    picture = page.parts["Lag"].picture
    assert picture is not None
    assert picture.count("99") == len([text for text in picture if text.startswith("stopped-")]) == 8, "a scale a lane"


def test_hints_are_whole_commands(lake: Lake, run: Run) -> None:
    """Of the lake, and of the groups: each that only asks has an answer."""
    for pattern in (None, "chatt?"):
        for command in commands(read(lake, pattern)):
            assert command[-2:] == ["--lake", str(lake.path)]
            takes_groups = command[1] in ("audit", "lag", "expire", "tombstones")
            assert ("--group" in command) == (takes_groups and pattern is not None)
            if command[1] in ("audit", "lag", "expire", "tombstones", "sql", "transactions"):
                assert run(*command[1:])[0] == 0, command


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 7, "0%"),
        (7, 7, "100%"),
        (499, 500, ">99%"),
        (1, 500, "<1%"),
        (717, 720, ">99%"),
        (1, 2, "50%"),
        (1, 3, "33%"),
    ],
)
def test_shares_are_rounded_to_none_or_all_only_if_they_are(part: int, whole: int, text: str) -> None:
    assert words.share(part, whole) == text


def test_sizes_are_in_one_unit(page: Page) -> None:
    units = {row[3].split()[1] for row in page.parts["Tables"].rows[1:]}
    assert units == {page.facts["on disk"].split()[1]} == {"kB"}
    sizes = {number: words.size(number, words.unit_of(40_000)) for number in (0, 40, 100, 9_940, 40_000)}
    assert sizes == {0: "0 kB", 40: "<0.1 kB", 100: "0.1 kB", 9_940: "9.9 kB", 40_000: "40 kB"}


@pytest.mark.parametrize("most", [1, 2])
def test_a_copy_of_the_records_of_the_busiest_groups_gives_the_same(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """One group has less than half of the records, which are copied; two have more, and the table itself is read."""
    monkeypatch.setattr(numbers, "MOST_JUDGED", most)
    of = scope(lake, None, None)
    busiest = numbers.busiest(of)
    whole = numbers.Busiest(busiest.groups, lake.delta_table("offset_commits"))
    assert busiest.names == ["chatty", "steady"][:most]
    is_copy = Path(busiest.commits.table_uri) != Path(whole.commits.table_uri)
    assert is_copy == (most == 1)
    assert numbers.over_time(of, busiest) == numbers.over_time(of, whole)
    assert numbers.worst_committers(of, busiest) == numbers.worst_committers(of, whole)
    for view in ("regressions", "changes", "double_writers", "stalled_partitions"):
        assert numbers.worst(of, view, busiest) == numbers.worst(of, view, whole)
