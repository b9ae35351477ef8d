"""Adoption and return of the log of a cluster in the history of a lake."""

from pathlib import Path

import pytest

from offsetlake.errors import LakeBusy, Refused
from offsetlake.lake.lake import Lake
from offsetlake.lake.location import folder
from offsetlake.lake.runs import last_run
from offsetlake.pipeline.changes.handover import recorded

NODE = "node 1000 of the cluster at broker:9092"


def test_run_is_recorded_when_it_has_succeeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "WAIT_SECONDS", 0)
    lake = tmp_path / "lake"
    with recorded(lake, "adopt", "/log", NODE, print) as counts:
        counts["log_partitions"] = 50
        with pytest.raises(LakeBusy), recorded(lake, "return", "/log", NODE, print):
            pass
    with pytest.raises(Refused), recorded(lake, "return", "/log", NODE, print):
        raise Refused("stopped")
    run = last_run(Lake.open(lake), "adopt")
    assert run is not None
    assert (run.run_id, run.outcome, run.log, run.notes) == (1, "done", "/log", (NODE,))
    assert run.counts == {"log_partitions": 50}
    assert last_run(Lake.open(lake), "return") is None
