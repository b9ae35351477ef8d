"""Each expectation is satisfied after the jobs over the log of a real broker, and finds the fault it is for."""

import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from offsetlake.errors import LakeBusy, LakeUnusable
from offsetlake.lake import current_run, plans
from offsetlake.lake.delta.commits import ours
from offsetlake.lake.files import table_schema
from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.portions import portions
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.checks import expectations
from offsetlake.pipeline.checks.expectations import (
    MAX_COUNTED_ROWS,
    NOTHING,
    Evidence,
    Suite,
    evidence,
    first_run,
    pinned,
    read_suites,
)
from offsetlake.pipeline.emit.job import emit
from offsetlake.pipeline.expire.job import expire
from offsetlake.rules.policy import Override, RetentionPolicy
from support.e2e.in_process import InProcess
from support.e2e.lakes import LATER, cycle, plan_expiry
from support.lakes import new_lake
from support.oracle.encoders import group_log_partition
from support.oracle.random_logs import RandomLog, random_log
from support.queries.lakes import Row

BROKER_LOG = Path(__file__).parents[2] / "fixtures" / "broker-log"
SUITES = {suite.name: suite for suite in read_suites([])}
NEWEST_INGEST = "ingest_run = (SELECT max(ingest_run) FROM offset_commits)"
OUR_FAULT = ours("fault", 1)  # what others change is refused before any check
FAR = 1_000_000  # a log offset behind all there are

Fault = Callable[[Lake], None]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The broker's log, out of which group billing has gone by a tombstone of ours; more is planned to go.

    Group fraud-detection has a member, is subscribed to what it has offsets of, and stays; so does what an open
    transaction of group ledger holds.
    """
    folder = tmp_path_factory.mktemp("checks")
    log = folder / "log"
    shutil.copytree(BROKER_LOG, log, ignore=shutil.ignore_patterns("meta.properties"))
    lake = new_lake(folder / "lake")
    cycle(InProcess(), lake, log)
    only_billing = RetentionPolicy(LATER, (Override("billing", "*", 0),))
    expire(InProcess, lake, only_billing, LATER, print)
    emit(lake, LogAddress(folder=log), print)
    cycle(InProcess(), lake, log)
    plan_expiry(InProcess(), lake)
    return lake


@pytest.fixture
def lake(made: Lake, tmp_path: Path) -> Lake:
    """A copy to break."""
    return Lake.open(Path(shutil.copytree(made.location.path, tmp_path / "lake")))


def found(lake: Lake, suite: Suite, *columns: str, as_gate: bool = False) -> dict[str, Evidence]:
    """What breaks those expectations of a suite, all where none is named, by the column that counts it."""
    wanted = tuple(each for each in suite.expectations if not columns or each.column in columns)
    chosen = replace(suite, expectations=wanted)
    pins = pinned(lake, [chosen], {})
    seen = evidence(lake, chosen, pins, first_run(lake, suite, pins) if as_gate else 0)
    return {each.column: of for each, of in zip(wanted, seen, strict=True)}


def broken(lake: Lake, *, as_gate: bool = False) -> dict[str, Any]:
    of_suites = [found(lake, suite, as_gate=as_gate) for suite in SUITES.values()]
    return {name: of.rows for of_suite in of_suites for name, of in of_suite.items() if of.rows}


def append(table: str, where: str, **changed: Any) -> Fault:
    """A row like the first one for which a condition holds, some of it changed."""

    def fault(lake: Lake) -> None:
        rows = lake.query(f"SELECT * FROM {table} WHERE {where} LIMIT 1", table)
        row = rows.to_pylist()[0] | changed
        write_deltalake(
            lake.table_location(table).path,
            rows.from_pylist([row], schema=rows.schema),
            mode="append",
            commit_properties=OUR_FAULT,
        )

    return fault


def update(table: str, where: str, **changed: str) -> Fault:
    """Other values, SQL expressions, in rows that are there."""

    def fault(lake: Lake) -> None:
        of = _changeable(lake, table)
        assert of.update(updates=changed, predicate=where, commit_properties=OUR_FAULT)["num_updated_rows"]

    return fault


def delete(table: str, where: str) -> Fault:
    def fault(lake: Lake) -> None:
        assert _changeable(lake, table).delete(where, commit_properties=OUR_FAULT)["num_deleted_rows"]

    return fault


def _changeable(lake: Lake, table: str) -> Any:
    of = lake.delta_table(table)
    if of.metadata().configuration.get("delta.appendOnly"):
        of.alter.set_table_properties({"delta.appendOnly": "false"})
    return of


def unresolved(**of: Any) -> Fault:
    """What a quarantined record leaves unknown, beside what was planned without it."""

    def fault(lake: Lake) -> None:
        schema = table_schema("unresolved_records")
        row = {"group_id": "", "log_topic": "__consumer_offsets", "log_offset": FAR, "reason": "why"} | of
        write_deltalake(
            lake.table_location("unresolved_records").path,
            pa.Table.from_pylist([row], schema),
            mode="append",
            commit_properties=OUR_FAULT,
        )

    return fault


def ingest_again(start: int, position: int) -> Fault:
    """One more ingest, of log partition 9, that begins and ends there."""
    where = {"topic": "__consumer_offsets", "partition": 9}
    return append(
        "runs",
        "job = 'ingest' AND outcome = 'done'",
        run_id=99,
        ranges=[{**where, "start": start, "end": position}],
        gaps=[],
        positions=[{**where, "position": position, "tail_checksum": None}],
        counts=[],
    )


@pytest.mark.long
def test_expectations_are_satisfied_after_an_emit_to_a_real_log(made: Lake) -> None:
    assert made.count("tombstones", "outcome = 'emitted' AND group_id = 'billing'") == 7
    assert made.count("tombstones", "outcome = 'planned' AND group_id <> 'billing'") > 100
    assert broken(made) == {}


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_each_expectation_has_its_own_column_and_queries_its_table(suite: Suite) -> None:
    columns = [each.column for each in suite.expectations]
    assert len(columns) == len({*columns})
    assert {each.table for each in suite.expectations} <= {*suite.tables}


def test_every_expectation_has_a_fault() -> None:
    of_suites = {each.column for suite in SUITES.values() for each in suite.expectations}
    assert of_suites == {column for column, *_ in FAULTS}


OF_BILLING = "group_id = 'billing' AND \"partition\" = 2"
OF_AB_TEST = "group_id = 'ab-test' AND \"partition\" = 1"
A_COMMIT_OF_BILLING = {
    "group_id": "billing", "topic": "orders", "partition": 2, "log_partition": 9, "log_offset": 30,
}  # fmt: skip
AB_TEST_IN = group_log_partition("ab-test", 50)
FIRST_SHARED = "group_id = 'thumbnailer' AND \"partition\" = 0"
A_COMMIT = {"kind": "'commit'", "committed_offset": "1", "metadata": "''", "commit_timestamp": "1"}

FAULTS: list[tuple[str, Fault, Row]] = [
    # A stretch of the log passed over, one read twice, and a position that nobody has read up to.
    ("offsets_of_the_log_not_read_once", ingest_again(FAR, FAR + 1), {"log_partition": 9, "log_offset": FAR}),
    ("offsets_of_the_log_not_read_once", ingest_again(5, FAR), {"log_partition": 9}),
    (
        "ingests_with_other_rows",
        delete("offset_commits", "group_id = 'mailer' AND log_offset = 8"),
        {"table": "offset_commits", "rows_written": 1948, "rows_there": 1947},
    ),
    (
        "ingests_with_other_rows",
        append("transaction_markers", "true"),
        {"table": "transaction_markers", "rows_written": 3, "rows_there": 4},
    ),
    (
        "records_out_of_range",
        append("offset_commits", NEWEST_INGEST, log_offset=FAR),
        {"group_id": "billing", "log_partition": 9, "log_offset": FAR},
    ),
    ("records_out_of_range", append("offset_commits", NEWEST_INGEST, log_partition=8), {"log_partition": 8}),
    ("records_twice", append("offset_commits", NEWEST_INGEST), {"log_partition": 9, "copies": 2}),
    (
        "steps_not_of_history",
        append("offset_commits", "group_id = 'mailer' AND log_offset = 8", log_offset=FAR, repeats=9),
        {"group_id": "mailer", "log_offset": FAR, "repeats": 9},
    ),
    (
        "steps_not_of_history",
        append("offset_commits", NEWEST_INGEST, log_offset=FAR, repeats=None, routine=True),
        {"log_offset": FAR, "routine": True},
    ),
    ("tables_with_other_rows", delete("group_members", "true"), {"table": "group_members", "rows_there": 0}),
    (
        "offsets_twice",
        append("offsets", OF_AB_TEST, committed_offset=0),
        {"group_id": "ab-test", "topic": "orders", "partition": 1, "copies": 2},
    ),
    (
        "offsets_out_of_bounds",
        update("offsets", OF_AB_TEST, committed_offset="-7"),
        {"group_id": "ab-test", "committed_offset": -7, "log_partition": 18},
    ),
    ("offsets_out_of_bounds", update("offsets", OF_AB_TEST, commit_timestamp="179523952944800"), {"partition": 1}),
    (
        "state_beyond_the_log",
        update("offsets", OF_AB_TEST, log_offset=f"{FAR}"),
        {"group_id": "ab-test", "log_partition": 18, "log_offset": FAR},
    ),
    ("state_beyond_the_log", update("groups", "group_id = 'mailer'", log_offset=f"{FAR}"), {"group_id": "mailer"}),
    # An older commit than the newest, none, one of an open transaction, another value.
    ("offsets_not_the_newest", update("offsets", OF_AB_TEST, log_offset="0"), {"group_id": "ab-test", "log_offset": 0}),
    ("offsets_not_the_newest", delete("offsets", OF_AB_TEST), {"group_id": "ab-test", "log_offset": None}),
    (
        "offsets_not_the_newest",
        update("offsets", "group_id = 'ledger' AND \"partition\" = 1", log_offset="15"),
        {"group_id": "ledger", "log_offset": 15},
    ),
    ("offsets_not_the_newest", update("offsets", OF_AB_TEST, committed_offset="1"), {"group_id": "ab-test"}),
    (
        "tombstoned_offsets_there",
        append("offsets", OF_AB_TEST, **A_COMMIT_OF_BILLING),
        {"group_id": "billing", "topic": "orders", "partition": 2, "log_offset": 30},
    ),
    (
        "pending_of_ended_transactions",
        append("transaction_markers", "true", producer_id=1, log_partition=39, log_offset=16),
        {"group_id": "ledger", "topic": "payments", "partition": 1, "producer_id": 1, "ended_at": 16},
    ),
    (
        "groups_with_other_members",
        delete("group_members", "group_id = 'fraud-detection'"),
        {"group_id": "fraud-detection", "member_count": 1, "members_there": 0},
    ),
    ("groups_with_other_members", append("group_members", "true", group_id="ab-test"), {"group_id": "ab-test"}),
    ("groups_with_other_members", append("groups", "group_id = 'mailer'"), {"group_id": "mailer", "copies": 2}),
    (
        "groups_with_other_members",
        update("groups", "group_id = 'fraud-detection'", state="'Empty'"),
        {"group_id": "fraud-detection", "state": "Empty"},
    ),
    ("groups_missing", delete("groups", "group_id = 'ab-test'"), {"group_id": "ab-test", "log_partition": 18}),
    (
        "groups_in_two_places",
        update("groups", "group_id = 'ab-test'", log_partition="3"),
        {"group_id": "ab-test", "log_partition": 3, "other_log_partition": 18},
    ),
    ("share_partitions_not_the_newest", delete("share_partitions", FIRST_SHARED), {"partition": 0, "log_offset": None}),
    ("share_partitions_not_the_newest", append("share_partitions", FIRST_SHARED), {"partition": 0, "copies": 2}),
    (
        "share_partitions_not_the_newest",
        update("share_partitions", FIRST_SHARED, log_offset="1"),
        {"group_id": "thumbnailer", "partition": 0, "log_partition": 6, "log_offset": 1, "newest_log_offset": 2},
    ),
    (
        "share_partitions_not_the_newest",
        append("share_partitions", FIRST_SHARED, partition=77),
        {"partition": 77, "newest_log_offset": None},
    ),
    (
        "share_batches_out_of_order",
        update("share_partitions", FIRST_SHARED, start_offset="21"),
        {"partition": 0, "start_offset": 21, "first_offset": 20, "last_offset": 39},
    ),
    (
        "share_batches_out_of_order",
        append("share_partitions", FIRST_SHARED),
        {"partition": 0, "first_offset": 20, "last_offset": 39, "end_before": 39},
    ),
    (
        "share_epochs_decreasing",
        append("share_state_records", f"{FIRST_SHARED} AND log_offset = 0", state_epoch=0, log_offset=FAR),
        {"partition": 0, "log_offset": FAR, "state_epoch": 0, "highest_state_epoch": 1},
    ),
    (
        "share_epochs_decreasing",
        append("share_state_records", f"{FIRST_SHARED} AND log_offset = 0", leader_epoch=-2, log_offset=FAR),
        {"partition": 0, "log_offset": FAR, "leader_epoch": -2, "highest_leader_epoch": 0},
    ),
    (
        "expiries_with_other_rows",
        append("tombstones", "outcome = 'planned' AND group_id = 'ab-test'", outcome="withdrawn"),
        {"outcome": "withdrawn", "rows_counted": 0, "rows_there": 1},
    ),
    # The offset was committed again, or is gone, and nobody has judged that.
    (
        "planned_for_other_commits",
        update("offsets", OF_AB_TEST, log_offset=f"{FAR}"),
        {"group_id": "ab-test", "topic": "orders", "partition": 1, "log_offset": FAR},
    ),
    ("planned_for_other_commits", delete("offsets", OF_AB_TEST), {"group_id": "ab-test", "log_offset": None}),
    (
        "planned_before_their_time",
        update("tombstones", OF_AB_TEST, clock_timestamp="judged_timestamp"),
        {"group_id": "ab-test", "partition": 1, "clock": "commit_timestamp"},
    ),
    (
        "planned_before_their_time",
        update("offsets", "group_id = 'mailer' AND \"partition\" = 0", commit_timestamp="commit_timestamp + 1"),
        {"group_id": "mailer", "clock": "commit_timestamp"},
    ),
    (
        "protected_offsets_planned",
        update("tombstones", OF_AB_TEST, group_id="'fraud-detection'"),
        {"group_id": "fraud-detection", "topic": "orders", "partition": 1, "protected_by": "subscription"},
    ),
    (
        "protected_offsets_planned",
        update("tombstones", OF_AB_TEST, group_id="'ledger'", topic="'payments'"),
        {"group_id": "ledger", "topic": "payments", "protected_by": "transaction"},
    ),
    *(
        ("unknown_planned", unresolved(**of), {"scope": of["scope"], "quarantined_at": FAR})
        for of in (
            {"scope": "group", "group_id": "ab-test", "log_partition": 0},
            {"scope": "log_partition", "log_partition": AB_TEST_IN},
            {"scope": "offset", "group_id": "ab-test", "topic": "orders", "partition": 1, "log_partition": AB_TEST_IN},
        )
    ),
    (
        "share_groups_planned_before_their_time",
        append(
            "tombstones", "outcome = 'planned' AND topic IS NULL", group_id="thumbnailer", rule="share_idle",
            clock="activity_timestamp", clock_timestamp=7, retention_ms=1,
        ),
        {"group_id": "thumbnailer", "clock_timestamp": 7, "retention_ms": 1},
    ),
    (
        "groups_in_use_planned",
        update("groups", "group_id = 'ab-test'", state="'Stable'"),
        {"group_id": "ab-test", "state": "Stable", "offsets_kept": 0},
    ),
    (
        "groups_in_use_planned",
        append("offsets", OF_AB_TEST, partition=77),
        {"group_id": "ab-test", "offsets_kept": 1},
    ),
    (
        "emissions_with_other_rows",
        delete("tombstones", f"{OF_BILLING} AND outcome = 'emitted'"),
        {"outcome": "emitted", "rows_counted": 7, "rows_there": 6},
    ),
    (
        "decisions_emitted_twice",
        append("tombstones", f"{OF_BILLING} AND outcome = 'emitted'", run_id=99),
        {"group_id": "billing", "topic": "orders", "partition": 2, "copies": 2},
    ),
    (
        "emitted_and_not_in_the_log",
        delete("offset_commits", f"{OF_BILLING} AND kind = 'tombstone'"),
        {"group_id": "billing", "topic": "orders", "partition": 2},
    ),
    (
        "emitted_and_not_in_the_log",
        update("offset_commits", f"{OF_BILLING} AND kind = 'tombstone'", **A_COMMIT),
        {"group_id": "billing", "kind": "tombstone"},
    ),
    (
        "commits_lost_to_a_decision",
        append("offset_commits", f"{OF_BILLING} AND kind = 'commit'", committed_offset=4711, log_offset=38),
        {"group_id": "billing", "topic": "orders", "partition": 2, "committed_offset": 4711, "log_offset": 38},
    ),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("column", "fault", "told"), FAULTS)
def test_expectation_finds_its_fault(lake: Lake, column: str, fault: Fault, told: Row) -> None:
    suite = next(of for of in SUITES.values() if any(each.column == column for each in of.expectations))
    assert not found(lake, suite, column)[column].rows
    fault(lake)
    first = found(lake, suite, column)[column].rows[0]
    assert {name: first[name] for name in told} == told


def remove_history_before(lake: Lake, run_id: int) -> None:
    """Delete the data files of earlier ingests: a query that reads one of them fails."""
    for table in ("offset_commits", "transaction_markers", "group_records"):
        for file in pa.table(lake.delta_table(table).get_add_actions(flatten=True)).to_pylist():
            if file["max.ingest_run"] < run_id:
                (lake.table_location(table).path / file["path"]).unlink()


def test_gate_reads_only_new_history(lake: Lake) -> None:
    newest = lake.query("SELECT max(ingest_run) AS run_id FROM offset_commits", "offset_commits")["run_id"][0].as_py()
    remove_history_before(lake, newest)
    assert broken(lake, as_gate=True) == {}
    with pytest.raises(LakeUnusable, match=r"is damaged, because its data file .* is missing"):
        found(lake, SUITES["after_compact"])


@pytest.mark.parametrize(
    ("column", "fault"),
    [
        ("records_twice", append("offset_commits", NEWEST_INGEST)),
        ("records_out_of_range", append("offset_commits", NEWEST_INGEST, log_offset=FAR)),
        ("ingests_with_other_rows", delete("offset_commits", f"{OF_BILLING} AND kind = 'tombstone'")),
        ("offsets_not_the_newest", append("offsets", OF_AB_TEST, **A_COMMIT_OF_BILLING | {"log_offset": 100})),
        ("tombstoned_offsets_there", append("offsets", OF_AB_TEST, **A_COMMIT_OF_BILLING)),
        ("offsets_twice", append("offsets", "log_partition = 9")),
    ],
)
def test_gate_finds_a_fault_in_new_history(lake: Lake, column: str, fault: Fault) -> None:
    fault(lake)
    assert found(lake, SUITES["after_compact"], column, as_gate=True)[column].rows


def test_gate_samples_other_parts_of_much_new_history_each_time(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expectations, "_ROWS_AT_ONCE", 200)
    suite = replace(SUITES["after_compact"], expectations=SUITES["after_compact"].expectations[2:4])
    pins = pinned(lake, [suite], {})
    (whole, *_), (part, *_) = evidence(lake, suite, pins, 0), evidence(lake, suite, pins, 0, max_rows=600)
    assert whole.sampled == ""
    assert re.fullmatch(r"none of [\d,]+ rows, in [23] of \d+ parts of the log", str(part))
    parts = portions({"offset_commits": lake.delta_table("offset_commits")}, 0, 200)
    seen = {part.condition for turn in range(len(parts)) for part in expectations._sample(parts, turn, 600)}
    assert seen == {part.condition for part in parts}
    assert all(sum(of.rows for of in expectations._sample(parts, turn, 600)) <= 600 for turn in range(len(parts)))


@pytest.mark.long
@pytest.mark.slow
def test_expectations_are_satisfied_after_each_job_over_a_random_log(tmp_path: Path) -> None:
    whole = random_log(random.Random(1), 600, groups=12, log_partitions=4, batches_per_segment=20, commit_ids=(7,))
    lake, log = new_lake(tmp_path / "lake"), tmp_path / "log"
    for part in (whole.plans[: len(whole.plans) // 2], whole.plans):
        RandomLog(whole.world, part).write(log)
        cycle(InProcess(), lake, log)
        plan_expiry(InProcess(), lake)
        assert broken(lake) == broken(lake, as_gate=True) == {}
    emit(lake, LogAddress(folder=log), print)
    assert broken(lake) == broken(lake, as_gate=True) == {}
    cycle(InProcess(), lake, log)
    assert broken(lake) == broken(lake, as_gate=True) == {}
    assert lake.count("tombstones", "outcome = 'emitted'") > 20


def test_new_lake_has_nothing_to_check(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    assert {str(of) for suite in SUITES.values() for of in found(lake, suite).values()} == {NOTHING}


def test_evidence_counts_up_to_a_limit_and_shows_few_rows() -> None:
    rows = [{"group_id": f"g\x1b{number}", "topic": None, "log_offset": 7} for number in range(MAX_COUNTED_ROWS)]
    assert str(Evidence(rows[:1], 9)) == "1 row: group_id=g\\x1b0 log_offset=7"
    assert str(Evidence(rows[:4], 9)).startswith("4 rows: group_id=g\\x1b0 log_offset=7; ")
    assert str(Evidence(rows, 9)).startswith("1,000 or more rows: ")
    assert str(Evidence(rows, 9)).count("group_id") == 3
    assert str(Evidence([], 1234)) == "none of 1,234 rows"


def test_tables_of_an_unfinished_run_are_refused(lake: Lake) -> None:
    current_run.begin(lake, "compact", plans.Plan())
    with pytest.raises(LakeBusy, match=r"run \d+ of compact in .* is running or was interrupted"):
        pinned(lake, SUITES.values(), {})
    everything = lake.versions(*SUITES["after_compact"].tables)
    assert pinned(lake, [SUITES["after_compact"]], everything) == everything
