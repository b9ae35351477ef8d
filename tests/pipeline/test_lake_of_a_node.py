"""The lake of a node of a cluster: only the log of the node is read into it, and no segment of that log is deleted."""

import random
import shutil
from pathlib import Path

import pytest

from offsetlake.errors import LogMismatch
from offsetlake.lake.runs import log_ends_source
from offsetlake.log.writer.ownership import CLUSTER_FILE
from offsetlake.pipeline.changes.handover import recorded
from offsetlake.pipeline.ingest.log_ends import ask_node
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, upkeep
from support.lakes import new_lake
from support.oracle.random_logs import random_log

NODE = "node 1000 of the cluster at broker:9092"


def segments(log: Path) -> set[Path]:
    return {*log.rglob("*.log")}


def test_the_log_stays_whole_until_the_return(tmp_path: Path) -> None:
    log, copy, lake = tmp_path / "log", tmp_path / "copy", new_lake(tmp_path / "lake")
    random_log(random.Random(7), 300, groups=8, log_partitions=2, batches_per_segment=8).write(log)
    shutil.copytree(log, copy)
    (log / CLUSTER_FILE).write_text("{}", encoding="utf-8")
    assert log_ends_source(lake) == ("--bootstrap", "HOST:PORT")
    with recorded(tmp_path / "lake", "adopt", str(log), NODE, print):
        pass
    with pytest.raises(LogMismatch, match=f"is that of {NODE}, whose log is in {log}"):
        cycle(InProcess(), lake, copy)
    cycle(InProcess(), lake, log)
    before = segments(log)
    assert upkeep(lake, log).counts["segments_deleted"] == 0
    assert segments(log) == before
    assert log_ends_source(lake) == ("--log", str(log))
    (log / CLUSTER_FILE).unlink()
    with recorded(tmp_path / "lake", "return", str(log), NODE, print):
        pass
    cycle(InProcess(), lake, log)
    assert upkeep(lake, log).counts["segments_deleted"] > 0
    assert log_ends_source(lake) == ("--bootstrap", "HOST:PORT")


def test_log_ends_are_unknown_while_the_node_does_not_run(tmp_path: Path) -> None:
    assert ask_node(tmp_path, {"orders"}).notes == [
        "cannot read the log end offsets of topics: `offsetlake serve` does not run"
    ]
