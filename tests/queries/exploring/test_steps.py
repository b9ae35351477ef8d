"""The steps and changes of an offset as arrays are those of the views, however it was committed."""

from dataclasses import fields
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from offsetlake.lake.lake import Lake
from offsetlake.queries.exploring import step
from offsetlake.queries.exploring.changes import Row, classified, rows_of
from offsetlake.queries.exploring.commits import Filters, commits_page
from offsetlake.queries.exploring.keys import Key
from offsetlake.queries.exploring.packed import PackedInts, packed
from offsetlake.queries.exploring.series import notable_changes, series
from offsetlake.queries.exploring.steps import NONE, OffsetSteps, key_steps, steps_in_portions, steps_of_few
from offsetlake.queries.questions import history
from offsetlake.util.row_codes import Ints
from support.long_cases import long_cases
from support.queries.lakes import commit, marker, small_lake, tombstone

KEY = Key("g", "t", 0)


def random_lake(path: Path, seed: int, log_partitions: int = 1, only: int | None = None) -> Lake:
    """A lake with plain and transactional commits, tombstones, commits in parts, resets and periods without members.

    The records of the group are in several log partitions, of which the lake can contain only one.
    """
    random, rows, markers, records, changed, decided = Random(seed), [], [], [], [], []
    places = Random(seed)
    log_offset = 0
    while log_offset < 300:
        counts = [len(every) for every in (rows, markers, records, changed, decided)]
        at = random.choice([None, 10 * log_offset + random.randrange(30)])
        kind = random.choice(["plain"] * 6 + ["transaction", "marker", "tombstone", "parts", "members", "reset"])
        value = random.choice([log_offset, log_offset, 50, 1_000_000 if random.random() < 0.02 else log_offset])
        if kind == "plain":
            rows.append(commit(log_offset, value, log_timestamp=at, topic=random.choice(["t", "t", "u"])))
        elif kind == "transaction":
            rows.append(commit(log_offset, value, random.randrange(3), log_timestamp=at))
        elif kind == "marker":
            outcome = random.choice(["COMMIT", "ABORT"])
            markers.append(marker(log_offset, outcome, random.randrange(3), log_timestamp=at))
        elif kind == "tombstone":
            rows.append(tombstone(log_offset, log_timestamp=at))
            outcome, rule = random.choice([("emitted", "group_empty"), ("emitted", "cleanup"), ("gone", "explicit")])
            judged = max((row["log_offset"] for row in rows[:-1]), default=-1)
            decided.append({
                "run_id": 2, "outcome": outcome, "group_id": "g", "topic": "t", "partition": 0, "rule": rule,
                "judged_offset": judged, "log_offset": log_offset if outcome == "emitted" else None,
            })  # fmt: skip
        elif kind == "members":
            members = random.choice(["[]", '[{"memberId":"m"}]'])
            records.append({
                "group_id": "g", "log_offset": log_offset, "kind": "value", "record_name": "GroupMetadata",
                "value": f'{{"generation":1,"members":{members}}}',
            })  # fmt: skip
        elif kind == "reset":
            strategy = random.choice(["offset", "repair"])
            rows.append(commit(log_offset, value, log_timestamp=at))
            changed.append({
                "run_id": 1, "group_id": "g", "topic": "t", "partition": 0, "strategy": strategy, "outcome": "done",
                "log_offset": log_offset, "new_offset": value,
            })  # fmt: skip
        else:
            parts = {"commit_id": log_offset, "commit_size": 3}
            for number, topic in enumerate(random.choice([["u", "t", "v"], ["t", "u"]])):
                rows.append(commit(log_offset + number, value, topic=topic, log_timestamp=at, **parts))
            log_offset += 3
        log_offset += 1
        place = places.randrange(log_partitions)
        for every, count in zip((rows, markers, records, changed, decided), counts, strict=True):
            every[count:] = [{**row, "log_partition": place} for row in every[count:]]
    tables = {
        "offset_commits": rows, "transaction_markers": markers, "group_records": records,
        "alterations": changed, "tombstones": decided,
    }  # fmt: skip
    return small_lake(
        path, **{name: [row for row in every if only in (None, row["log_partition"])] for name, every in tables.items()}
    )


def changes_of(lake: Lake, key: Key, steps: OffsetSteps[Ints]) -> list[Row]:
    return rows_of(key, classified(lake, key, steps))


def nulls(values: Any) -> list[int | None]:
    return [None if value == NONE else int(value) for value in values]


@pytest.mark.parametrize("seed", range(4))
def test_steps_and_changes_are_those_of_the_views(tmp_path: Path, seed: int) -> None:
    lake = random_lake(tmp_path, seed)
    steps = key_steps(lake, KEY)
    order = f"WHERE {KEY.condition} ORDER BY log_partition, log_offset"
    expected = lake.query(f"SELECT * FROM commit_steps {order}").to_pylist()
    names = {"log_offset": steps.log_offset, "effective_timestamp": steps.time, "new_offset": steps.new}
    names |= {"old_offset": steps.old, "old_log_offset": steps.old_log_offset}
    for name, values in names.items():
        assert nulls(values) == [row[name] for row in expected], name
    changes = lake.query(f"SELECT * FROM changes {order}").drop_columns(["producer_id"]).to_pylist()
    assert changes_of(lake, KEY, steps) == changes
    assert changes_of(lake, KEY, steps.at(np.arange(0, len(changes), 7))) == changes[::7]
    assert {"rewind", "delete", "commit", "reset", "expiry"} <= {row["change"] for row in changes}


@pytest.mark.parametrize("seed", range(4))
def test_resets_in_history_are_those_of_the_view_changes(tmp_path: Path, seed: int) -> None:
    """A reset that sets an offset back is reset_back in history, as any other commit that is lower."""
    lake = random_lake(tmp_path, seed)
    changes = lake.query(f"SELECT log_offset, change FROM changes WHERE {KEY.condition}").to_pylist()
    resets = {row["log_offset"] for row in changes if row["change"] == "reset"}
    events = {row["log_offset"]: row["event"] for row in history(lake, "g", "t", 0).to_pylist()}
    assert {place for place, event in events.items() if event == "reset"} == {
        place for place in resets if events[place] != "reset_back"
    }
    assert {events[place] for place in resets} == {"reset", "reset_back"}
    known = classified(lake, KEY, key_steps(lake, KEY))
    shown = step._records(lake, KEY, 0, sorted(events), known)  # as on the page of a step
    assert {place: row["event"] for place, row in shown.items()} == events
    forward = Filters(event="reset")
    assert {row["event"] for row in commits_page(lake, KEY, "", forward, 9)[0].to_pylist()} == {"reset"}


@pytest.mark.parametrize("seed", range(4, 7))
def test_steps_and_changes_of_a_group(tmp_path: Path, seed: int) -> None:
    lake, key = random_lake(tmp_path, seed), Key("g")
    changes = lake.query("SELECT * FROM changes ORDER BY log_partition, log_offset").drop_columns(["producer_id"])
    assert changes_of(lake, key, key_steps(lake, key)) == changes.to_pylist()
    portions = [row for steps in steps_in_portions(lake, key, 100) for row in changes_of(lake, key, steps)]
    assert sorted(portions, key=lambda row: row["log_offset"]) == changes.to_pylist()
    assert (steps_of_few(lake, key, lake.count("offset_commits")) is None, steps_of_few(lake, key, 9)) == (False, None)
    of_offset = classified(lake, key, key_steps(lake, key)).of("t", 0)
    every = of_offset.at(np.arange(len(of_offset.kinds)))
    assert rows_of(KEY, every) == changes_of(lake, KEY, key_steps(lake, KEY))
    assert of_offset.kinds.tolist() == classified(lake, KEY, key_steps(lake, KEY)).kinds.tolist()


@pytest.mark.parametrize("seed", [7, *long_cases((8, 9))])
def test_records_in_other_log_partitions_change_nothing(tmp_path: Path, seed: int) -> None:
    """A group has some if partitions were added to the log topic: its coordinators do not know each other's records."""
    lake, key = random_lake(tmp_path / "both", seed, 2), Key("g")
    each = [random_lake(tmp_path / str(number), seed, 2, only=number) for number in range(2)]
    parts = [changes_of(part, key, key_steps(part, key)) for part in each]
    assert all(len(part) > 40 for part in parts)
    assert changes_of(lake, key, key_steps(lake, key)) == [row for part in parts for row in part]
    for name in ("commit_steps", "changes", "turning_points", "empty_periods", "double_writers", "offset_versions"):
        rows, *of_each = ([*map(str, one.query(f"SELECT * FROM {name}").to_pylist())] for one in [lake, *each])
        assert sorted(rows) == sorted(row for part in of_each for row in part), name


@pytest.mark.parametrize("seed", range(3))
def test_changes_are_the_same_after_packing(tmp_path: Path, seed: int) -> None:
    lake, key = random_lake(tmp_path, seed), Key("g")
    changes = classified(lake, key, key_steps(lake, key))
    small = packed(changes)
    assert (small.steps.offsets, small.kinds.tolist()) == (changes.steps.offsets, changes.kinds.tolist())
    every = small.at(np.arange(len(changes.kinds)))
    assert rows_of(key, every) == rows_of(key, changes)
    for field in fields(OffsetSteps)[1:]:
        values, expected = getattr(every.steps, field.name), getattr(changes.steps, field.name)
        assert (values.dtype, values.tolist()) == (expected.dtype, expected.tolist()), field.name
    of_offset = small.of("t", 0)
    assert of_offset.steps.log_offset[:].tolist() == key_steps(lake, KEY).log_offset.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_packed_changes_have_the_same_charts(tmp_path: Path, seed: int) -> None:
    lake = random_lake(tmp_path, seed)
    changes = classified(lake, KEY, key_steps(lake, KEY))
    for period in ((None, None), (500, 2000), (5000, None), (None, 100)):
        first, second = (series(lake, "g", "t", 0, *period, each) for each in (changes, packed(changes)))
        assert (first.commits, first.steps, first.marks, first.period) == (
            second.commits, second.steps, second.marks, second.period
        )  # fmt: skip
        noted, notable = (notable_changes(lake, "g", *period, 9, each) for each in (changes, packed(changes)))
        assert noted == notable


@pytest.mark.parametrize(
    "values",
    [[], [NONE], [2**63 - 1, NONE, 2**63 - 1, 0], [*range(500), NONE, *range(2**40, 2**40 + 99)], [*range(64)] * 3],
)
def test_any_integers_are_packed_and_each_part_of_them_is_unpacked(values: list[int]) -> None:
    small = PackedInts.of(np.array(values, np.int64))
    assert len(small) == len(values)
    for start, stop in product(range(0, len(values) + 1, 13), range(0, len(values) + 70, 17)):
        assert small[start:stop].tolist() == values[start:stop]
        indexes = np.arange(start, min(stop, len(values)), 5)
        assert small[indexes].tolist() == [values[index] for index in indexes]
        assert small[indexes[::-1]].tolist() == [values[index] for index in indexes[::-1]]
    assert small.nbytes <= 520 * -(-len(values) // 64)  # 8 bytes an integer, and the first one of each 64


def test_packed_integers_take_few_bytes() -> None:
    values = np.arange(10**15, 10**15 + 10_000)
    values[5_000] = NONE
    assert PackedInts.of(values).nbytes == 157 * (64 + 8) + 2 * 16


def test_a_step_of_many_is_found_without_unpacking_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked = list[int]()
    original = PackedInts._unpacked

    def counting(self: PackedInts, blocks: Ints) -> Ints:
        unpacked.append(len(blocks))
        return original(self, blocks)

    monkeypatch.setattr(PackedInts, "_unpacked", counting)
    log_offset = np.arange(0, 3_000_000, 3)
    zeros, flags = np.zeros(len(log_offset), np.int64), np.zeros(len(log_offset), np.bool_)
    number, log_partition, place, *others = map(PackedInts.of, [zeros, zeros, log_offset, zeros, zeros, zeros, zeros])
    time, new, old, old_log_offset = others
    steps = OffsetSteps([("t", 0)], number, log_partition, place, time, new, old, old_log_offset, flags, flags)
    places = ((0, 0), (0, 1_500_000), (0, 2_999_997), (0, 1), (0, 3_000_000), (1, 3))
    found = [steps.index(*place) for place in places]
    assert found == [0, 500_000, 999_999, None, None, None]
    assert sum(unpacked) < 6 * 50


def test_a_skip_ahead_is_found_among_few_records(tmp_path: Path) -> None:
    values = [*range(10), 1_000_000, *range(1_000_001, 1_000_010)]
    lake = small_lake(tmp_path, offset_commits=[commit(n, value) for n, value in enumerate(values)])
    steps = key_steps(lake, KEY)
    assert np.flatnonzero(classified(lake, KEY, steps).kinds).tolist() == [10]
    assert [row["change"] for row in changes_of(lake, KEY, steps.at(np.array([10, 15])))] == ["skip ahead", "commit"]


def test_an_offset_without_commits_has_no_steps(tmp_path: Path) -> None:
    lake = small_lake(tmp_path, offset_commits=[commit(1, 1, topic="u")])
    assert len(key_steps(lake, KEY).new) == 0
    assert len(key_steps(lake, Key("none", "t", 0)).new) == 0
