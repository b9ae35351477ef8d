"""`groups --as-of` compared with the table `groups` of a lake whose log ends at that instant."""

import json
import struct
from pathlib import Path
from shutil import copytree

import pytest

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.queries import questions
from offsetlake.queries.history import as_of
from offsetlake.queries.history.as_of import groups_as_of
from offsetlake.util.times import to_ms
from support.command_line import Run
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle
from support.lakes import new_lake
from support.queries.lakes import commit, marker, small_lake

LOG = Path(__file__).parents[1] / "fixtures" / "broker-log"
INSTANTS = ("05:38:47.000", "05:38:47.146", "05:38:47.270", "05:38:49.500", "05:38:54.000")


def cut_off(log: Path, instant_ms: int) -> None:
    """Cut each segment before its first batch with a later timestamp; all records of a batch are of one instant."""
    for segment in log.glob("*/*.log"):
        data, at = segment.read_bytes(), 0
        while at < len(data) and struct.unpack_from(">q", data, at + 27)[0] <= instant_ms:
            at += 12 + struct.unpack_from(">i", data, at + 8)[0]
        segment.write_bytes(data[:at])


@pytest.mark.slow
@pytest.mark.parametrize("time", INSTANTS)
def test_groups_match_a_log_that_ends_at_the_instant(broker_lake: Lake, tmp_path: Path, time: str) -> None:
    instant = to_ms(f"2026-11-21T{time}")
    cut_off(copytree(LOG, tmp_path / "log"), instant)
    cut = new_lake(tmp_path / "lake")
    cycle(InProcess(), cut, tmp_path / "log")
    expected = questions.groups(cut).to_pylist()
    assert expected
    assert groups_as_of(broker_lake, instant).to_pylist() == expected
    assert groups_as_of(broker_lake, instant, "b*", "Empty", "classic").to_pylist() == [
        row for row in expected if row["group_id"].startswith("b") and row["state"] == "Empty"
    ]


def test_groups_read_in_portions_are_the_same(broker_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    instant, read = to_ms("2026-11-21T05:38:49.500"), list[int]()
    expected = groups_as_of(broker_lake, instant)
    monkeypatch.setattr(as_of, "_ROWS_AT_ONCE", 300)
    found = groups_as_of(broker_lake, instant, advance=lambda done, _total: read.append(done))
    assert found.to_pylist() == expected.to_pylist()
    assert len(read) > 1


def test_groups_at_the_end_of_history_are_the_current_ones(broker_lake: Lake) -> None:
    assert groups_as_of(broker_lake, to_ms("2030-01-01")).to_pylist() == questions.groups(broker_lake).to_pylist()


def test_group_exists_from_its_first_commit(run: Run, tmp_path: Path) -> None:
    """Also from one of a transaction that is open, as a coordinator has it; it has an offset when that is committed."""
    commits = [commit(1_000, 5, group_id="plain"), commit(2_000, 5, 7, group_id="transactional")]
    lake = small_lake(tmp_path / "lake", offset_commits=commits, transaction_markers=[marker(3_000, "COMMIT", 7)])
    found = {
        instant: [(row["group_id"], row["offsets"]) for row in groups_as_of(lake, instant).to_pylist()]
        for instant in (1_000, 2_000, 3_000)
    }
    assert found == {
        1_000: [("plain", 1)],
        2_000: [("plain", 1), ("transactional", 0)],
        3_000: [("plain", 1), ("transactional", 1)],
    }
    code, out, _ = run("groups", "--as-of", "1000", "--lake", str(lake.location.path), "--format", "json")
    assert (code, [json.loads(line)["group_id"] for line in out.splitlines()]) == (0, ["plain"])


def test_unknown_instants_groups_and_states_are_refused(broker_lake: Lake) -> None:
    for wrong, says in (
        ({"instant_ms": 0}, "history begins at 2026-11-21"),
        ({"instant_ms": to_ms("2030-01-01"), "pattern": "nobody*"}, "no group like 'nobody"),
        ({"instant_ms": to_ms("2030-01-01"), "state": "Happy"}, "states are Empty"),
    ):
        with pytest.raises(BadRequest, match=says):
            groups_as_of(broker_lake, **wrong)  # type: ignore[arg-type]
