"""Reports of small lakes: the numbers on the page, and group IDs that contain markup."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.web.report import candidates, numbers, words
from offsetlake.web.report.report import report
from offsetlake.web.report.scope import Scope, find_scope
from support.command_line import Run
from support.lakes import new_lake
from support.queries.lakes import Row, end, small_lake, tombstone
from support.queries.view_rows import HISTORY, PRESENT
from support.queries.view_rows import NOW as PRESENT_NOW
from support.report.pages import Page
from support.report.report_rows import DAY, LONG, NOW, POLICY, TABLES, TAGS, commit_at, quiet, stored


def read(lake: Lake, pattern: str | None = None, since_ms: int | None = None) -> Page:
    return Page(report(lake, POLICY, pattern, since_ms, quiet).page)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return small_lake(tmp_path_factory.mktemp("reports") / "prod <eu>", **TABLES)


@pytest.fixture(scope="module")
def page(lake: Lake) -> Page:
    return read(lake)


def test_header_shows_the_lake_its_period_and_key_figures(page: Page) -> None:
    assert page.title == "Consumer offsets: prod <eu>"
    assert (
        "up to the newest record at 1970-01-21 05:00. Charts over time start at 1970-01-18 05:00."
        in page.introduction[0]
    )
    assert {name: value for name, value in page.facts.items() if name != "size on disk"} == {
        "groups": "4", "offsets": "6", "commits and tombstones": "13", "open transactions": "1",
        "planned tombstones": "1", "quarantined records": "2",
    }  # fmt: skip
    section = page.sections["Log positions"]
    assert section.paragraphs[0] == "Log partitions read: 2. Empty log partitions: 1."
    assert section.rows == [
        ["log topic", "partition", "read up to log offset"],
        ["__consumer_offsets", "1", "1,001"],
        ["__consumer_offsets", "3", "3,001"],
    ]


def test_commit_rate_shows_the_busiest_step_of_each_group(page: Page) -> None:
    section = page.sections["Commit rate"]
    assert section.rows[:3] == [
        ["group", "commits", "maximum", "at"],
        ["chatty", "5", "3", "1970-01-19 04:00"],  # steps of two hours from midnight
        ["steady", "3", "1", "1970-01-20 04:00"],
    ]
    assert {row[0] for row in section.rows[3:]} == {TAGS, "_$x^{$ 漢字 \\u202e\\n", f"{LONG[:53]}…{LONG[-26:]}"}
    assert section.picture is not None
    assert {"chatty", "at most 3 in 2h", f"{LONG[:22]}…{LONG[-11:]}"} <= set(section.picture)


def test_progress_replaces_lag_if_no_log_end_is_recorded(page: Page) -> None:
    section = page.sections["Progress"]
    assert section.rows[:3] == [
        ["group", "progress", "decreased by", "last commit"],
        ["chatty", "1", "0", "1970-01-19 08:00"],
        ["steady", "5", "5", "1970-01-21 05:00"],
    ]
    assert "the log end offsets of topics are not recorded" in section.paragraphs[0]
    assert "Lag" not in page.sections


def test_expiry_calendar_applies_the_configured_retention(page: Page) -> None:
    section = page.sections["Expiry calendar"]
    assert section.rows == [
        ["group", "offsets", "due", "by 28 Jan", "next"],
        ["chatty", "2", "1", "2", "1970-01-20 05:00"],
        [TAGS, "1", "1", "1", "1970-01-21 05:00"],
        ["steady", "2", "0", "1", "1970-01-22 05:00"],
        ["kept-1", "1", "0", "0", "1970-02-12 05:00"],
    ]
    assert "2 are due" in section.paragraphs[0]
    assert "2 more expire by 28 Jan" in section.paragraphs[0]
    assert "The default retention time is 7d." in section.paragraphs[0]


def test_worst_committers_are_sorted_by_redundant_commits(page: Page) -> None:
    section = page.sections["Worst committers"]
    assert section.rows[:3] == [
        ["group", "commits", "redundant", "share", "maximum per hour"],
        ["chatty", "5", "3", "60%", "3"],
        ["steady", "3", "0", "0%", "1"],
    ]
    assert "Of the 5 commits of chatty, 60% are redundant" in section.paragraphs[0]


def test_sections_on_the_log_and_the_tables_show_their_rows(page: Page) -> None:
    sections = page.sections
    assert sections["Growth of the log"].rows[1:3] == [["chatty", "5", "0", "0"], ["steady", "3", "1", "0"]]
    assert sections["Decisions"].rows[1:] == [["emitted", "commit_age", "1"], ["planned", "explicit", "1"]]
    assert sections["Quarantine"].rows[1:] == [["<b>bad", "2", "1970-01-01 00:00"]]
    assert sections["Runs"].rows[1:] == [
        ["compact", "1", "1970-01-01 00:00", "0", "look & see"],
        ["ingest", "1", "1970-01-01 00:00", "2", ""],
    ]
    sizes = {row[0]: row[1:3] for row in sections["Tables"].rows[1:]}
    assert (sizes["offset_commits"], sizes["log_ends"]) == (["13", "1"], ["0", "0"])


def test_markup_in_a_group_id_is_escaped(page: Page) -> None:
    assert page.tags & {"script", "b", "iframe", "link", "object"} == set()


def test_report_is_limited_to_matching_groups_and_the_period(lake: Lake) -> None:
    found = read(lake, "chatty", NOW - 2 * DAY)
    assert [row[:2] for row in found.sections["Commit rate"].rows[1:]] == [["chatty", "4"]]
    assert [row[0] for row in found.sections["Expiry calendar"].rows[1:]] == ["chatty"]
    assert found.sections["Growth of the log"].rows[1:] == [["chatty", "4", "0", "0"]]
    assert "Limited to groups that match chatty" in found.introduction[1]
    assert found.facts == {
        "groups": "1", "offsets": "2", "commits and tombstones": "5", "open transactions": "0",
        "planned tombstones": "0",
    }  # fmt: skip
    assert found.sections["Decisions"].paragraphs == ["No tombstone was ever planned."]


@pytest.mark.long
def test_lag_section_has_status_and_lag_if_log_ends_are_recorded(tmp_path: Path) -> None:
    lake = small_lake(
        tmp_path / "lake",
        log_ends=[end(1, 50), end(2, 100)],
        offset_commits=[
            *(
                commit_at("slow", 0, 29, 880),
                commit_at("slow", 1, 30, 900),
                commit_at("done", 2, 100, 1900, ingest_run=2),
                commit_at("odd", 3, 1, 5, topic="x"),
            ),
            tombstone(4, group_id="deleted"),
        ],
    )
    page = read(lake)
    assert page.sections["Lag"].rows == [
        ["group", "status", "lag", "behind for"],
        ["slow", "STOP", "70", ">1s"],
        ["odd", "unknown (log end unknown)", "unknown", ""],
        ["done", "OK", "0", "0s"],
    ]
    assert (
        page.sections["Lag"]
        .paragraphs[0]
        .startswith("Groups with an alarm (1 of 3): slow (STOP). slow no longer commits")
    )
    assert "Progress" not in page.sections
    assert read(lake, "deleted").sections["Lag"].paragraphs == ["These groups have no offsets."]
    assert report(lake, POLICY, None, None, quiet) == report(lake, POLICY, None, None, quiet)


def test_log_ends_that_were_recorded_before_the_period_are_not_in_the_chart_of_lag(tmp_path: Path) -> None:
    section = read(small_lake(tmp_path / "lake", **TABLES, log_ends=[end(1, 50)])).sections["Lag"]
    assert (section.rows[1][0], section.picture) == ("before", None)


def test_empty_lake_has_sections_without_charts(tmp_path: Path) -> None:
    page = read(new_lake(tmp_path / "lake"))
    assert "has no history yet. To read the log: offsetlake run --log DIR --lake " in page.introduction[0]
    sections = [section for section in page.sections.values() if section.title != "Tables"]
    assert {section.title: section.picture for section in sections} == dict.fromkeys(
        ("What needs attention", "Commit rate", "Progress", "Expiry calendar", "Worst committers", "Growth of the log",
         "Decisions", "Quarantine", "Runs", "Log positions")
    )  # fmt: skip


@pytest.mark.parametrize("time", [-(2**63), -1, 0, 2**63 - 1])
def test_extreme_timestamps_are_accepted(tmp_path: Path, time: int) -> None:
    lake = small_lake(tmp_path / "lake", offset_commits=[commit_at("g", 1, 1, time), commit_at("g", 2, 2**63 - 1, NOW)])
    assert len(read(lake).sections) == 11


@pytest.mark.long
def test_page_of_ten_thousand_groups_is_small(tmp_path: Path) -> None:
    commits = [commit_at(f"g{n:05}", n, n, NOW - n) for n in range(10_000)]
    lake = small_lake(
        tmp_path / "lake",
        offset_commits=commits,
        offsets=[stored(f"g{n:05}", NOW - n) for n in range(10_000)],
        groups=[{"group_id": f"g{n:05}"} for n in range(10_000)],
    )
    text = report(lake, POLICY, None, None, quiet).page
    sections = Page(text).sections
    for title in ("Commit rate", "Progress", "Expiry calendar", "Worst committers", "Growth of the log"):
        assert len(sections[title].rows) == 9
        assert sections[title].paragraphs[-1].startswith("9,992 more are not shown.")
    assert len(text) < 400_000


def commands(page: Page) -> list[list[str]]:
    """Return all commands of a page. Every occurrence of offsetlake must be a complete command on the lake."""
    texts = [row[-1] for row in page.sections["What needs attention"].rows[1:]]
    texts += [text for section in page.sections.values() for text in section.paragraphs]
    matches = [match for text in texts for match in re.findall(r"offsetlake \w+.*? --lake '[^']*'", text)]
    assert len(matches) == sum(text.count("offsetlake ") for text in texts)
    return [shlex.split(command) for command in matches]


@pytest.mark.long
def test_problems_are_in_the_first_section_with_their_commands(tmp_path: Path) -> None:
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
    assert next(iter(page.sections)) == "What needs attention"
    head, *rows = page.sections["What needs attention"].rows
    assert head == ["problem", "count", "worst or newest", "command"]
    since = "--since 1970-02-09T23:59:51.000Z"
    lake = f"--lake {tmp_path / 'lake'}"
    assert rows == [
        ["unexplained regressions", "4", "two members, t:0: 60 records read again",
         f"offsetlake audit regressions {since} {lake}"],
        ["resets", "9", "producer, reset, producer, t:0: from 1 to 5 at 1970-02-09 23:59",
         f"offsetlake audit changes {since} {lake}"],
        ["offsets with two writers", "3", "two members, t:0: 2 conflicting commits",
         f"offsetlake audit double_writers {since} {lake}"],
        ["stalled offsets", "1", "stalled, t:0: lag of at least 45 records for 5s",
         f"offsetlake audit stalled_partitions {since} {lake}"],
        ["unused groups", "9", "consumer: not_subscribed, 2 offsets, idle for 2d",
         f"offsetlake audit orphan_groups {lake}"],
        ["hanging transactions", "1", "producer 7: 3 offsets pending for 3d",
         f"offsetlake transactions --open-longer-than 15m {lake}"],
        ["records of share groups delivered again", "1", "share, AAAAAAAAAAAAAAAAAAAAAA:0: 4 records, up to 5 times",
         f"offsetlake audit poison_records {lake}"],
    ]  # fmt: skip


@pytest.mark.long
def test_first_groups_with_a_lag_alarm_are_named(tmp_path: Path) -> None:
    names = [f"stopped-{number:02}" for number in range(14)]
    commits = [commit_at(name, 10 * n + k, k, 900 + k) for n, name in enumerate(names) for k in range(2)]
    lake = small_lake(tmp_path / "lake", log_ends=[end(1, 50), end(2, 100)], offset_commits=commits)
    page = read(lake)
    named = ", ".join(f"{name} (STOP)" for name in names[:10])
    assert (
        page.sections["Lag"]
        .paragraphs[0]
        .startswith(f"Groups with an alarm (14 of 14): {named} and 4 more. stopped-00 no longer commits")
    )
    row = page.sections["What needs attention"].rows[-1]
    assert row[:3] == ["groups with a lag alarm", "14", "stopped-00: STOP, lag of 99 records"]
    picture = page.sections["Lag"].picture
    assert picture is not None
    assert picture.count("99") == len([text for text in picture if text.startswith("stopped-")]) == 8, (
        "one scale per lane"
    )


@pytest.mark.long
def test_commands_of_the_page_can_be_run(lake: Lake, run: Run) -> None:
    """Commands are limited to the groups of the report; those that only read are run."""
    for pattern in (None, "chatt?"):
        for command in commands(read(lake, pattern)):
            assert command[-2:] == ["--lake", str(lake.location.path)]
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
def test_share_is_0_or_100_percent_only_if_exact(part: int, whole: int, text: str) -> None:
    assert words.share(part, whole) == text


def test_sizes_on_the_page_have_the_same_unit(page: Page) -> None:
    units = {row[3].split()[1] for row in page.sections["Tables"].rows[1:]}
    assert units == {page.facts["size on disk"].split()[1]} == {"kB"}
    sizes = {number: words.size(number, words.unit_of(40_000)) for number in (0, 40, 100, 9_940, 40_000)}
    assert sizes == {0: "0 kB", 40: "<0.1 kB", 100: "0.1 kB", 9_940: "9.9 kB", 40_000: "40 kB"}


@pytest.mark.parametrize("max_groups", [1, 2])
def test_results_from_portions_of_a_copy_of_the_records_are_those_of_the_table(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, max_groups: int
) -> None:
    """One group has less than half of the records, which are copied; two have more, so that the table is read."""
    monkeypatch.setattr(numbers, "MAX_BUSIEST_GROUPS", max_groups)
    monkeypatch.setattr(numbers, "MAX_PORTION_RECORDS", 1)
    scope = find_scope(lake, None, None)
    busiest = numbers.busiest_groups(scope)
    whole = numbers.BusiestGroups(
        busiest.groups, {"offset_commits": lake.delta_table("offset_commits")}, [busiest.names]
    )
    assert busiest.names == ["chatty", "steady"][:max_groups]
    assert busiest.portions == [[name] for name in busiest.names]
    is_copy = Path(busiest.tables["offset_commits"].table_uri) != Path(whole.tables["offset_commits"].table_uri)
    assert is_copy == (max_groups == 1)
    assert numbers.over_time(scope, busiest) == numbers.over_time(scope, whole)
    assert numbers.worst_committers(scope, busiest) == numbers.worst_committers(scope, whole)
    for view in ("regressions", "changes", "double_writers", "stalled_partitions"):
        assert numbers.worst(scope, view, busiest) == numbers.worst(scope, view, whole)


@pytest.mark.parametrize(
    ("view", "condition", "tables", "narrow"),
    [
        ("changes", "change = 'reset'", HISTORY, candidates.with_possible_resets),
        ("stalled_partitions", "true", PRESENT, candidates.with_lag_to_another_group),
    ],
)
def test_groups_that_cannot_have_a_row_are_not_compared(
    view: str,
    condition: str,
    tables: dict[str, list[Row]],
    narrow: Callable[[Scope, numbers.BusiestGroups], numbers.BusiestGroups],
    tmp_path: Path,
) -> None:
    scope = find_scope(small_lake(tmp_path / "lake", **tables), None, 0)
    busiest = numbers.busiest_groups(scope)
    narrowed = narrow(scope, busiest)
    assert {name for portion in narrowed.portions for name in portion} < {*busiest.names}
    found = numbers.worst(scope, view, busiest, condition)
    assert found is not None
    assert numbers.worst(scope, view, narrowed, condition) == found


@pytest.mark.long
def test_share_groups_are_listed_by_deliveries_and_time_without_a_move(tmp_path: Path) -> None:
    topic = "0UpezRseR2unUk_C-KbOfg"
    state = {"topic_id": topic, "snapshot_epoch": 0, "state_epoch": 0, "leader_epoch": 0, "state_batches": []}
    state |= {"log_timestamp": NOW, "deliveries": 0}
    counts = ("available_records", "acknowledged_records", "archived_records", "in_flight_records")
    counts += ("redelivered_records", "max_delivery_count")
    numbers_of = {"stalled": (0, 5, 0, 20, 0, 1), "poison": (2, 3, 1, 9, 2, 4), "idle": (0, 0, 0, 0, 0, 0)}
    partitions, records = [], []
    for name, values in numbers_of.items():
        start = {"group_id": name, "start_offset": 3, "log_offset": len(records), "partition": 0}
        partitions.append({**state, **start, **dict(zip(counts, values, strict=True))})
        records.append({**start, "topic_id": topic, "kind": "update", "snapshot_epoch": 0, "log_timestamp": NOW - DAY})
    lake = small_lake(tmp_path / "lake", **TABLES, share_partitions=partitions, share_state_records=records)
    page = read(lake)
    section = page.sections["Share groups"]
    assert section.rows == [
        ["group", "topic", "in flight", "delivered again", "deliveries", "unmoved for"],
        ["poison", f"{topic}:0", "9", "2", "4", "1d"],
        ["stalled", f"{topic}:0", "20", "0", "1", "1d"],
    ]
    assert "2 of 3 share partitions have such records, and 1 has records" in section.paragraphs[0]
    [problem] = [row for row in page.sections["What needs attention"].rows if "share groups" in row[0]]
    assert problem[1:3] == ["1", f"poison, {topic}:0: 2 records, up to 4 times"]
    assert "Share groups" not in read(lake, "steady").sections
