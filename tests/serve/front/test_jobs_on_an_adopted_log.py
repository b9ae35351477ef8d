"""The jobs and commands that write to the log, on one that was adopted from a cluster and is served."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.emit.job import emit
from support.broker.workload import create_topic, simple_commit
from support.command_line import Run
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, plan_expiry, upkeep
from support.serve.adopted import Adopted, committed, until
from support.serve.reading import Reading

pytestmark = pytest.mark.long  # a broker of its own, whose groups are adopted

TOPIC, RECORDS, SECONDS = "jobs", 20, 180


def test_jobs_write_to_an_adopted_log(run: Run, tmp_path: Path) -> None:
    """A running group is rewound, offsets expire, and clients of the broker see both, also after a restart."""
    adopted = Adopted(tmp_path)
    with adopted.broker as broker:
        create_topic(broker.bootstrap, TOPIC, 1)
        simple_commit(broker.bootstrap, "expires", {(TOPIC, 0): 3})
        code, output = adopted.adopt("--execute")
        assert code == 0, output
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(RECORDS):
            producer.produce(TOPIC, str(number))
        assert producer.flush(SECONDS) == 0
        with adopted.serving():
            reading = Reading(broker.bootstrap, "runs", TOPIC)
            try:
                reading.wait_for(RECORDS)
                until(lambda: committed(broker.bootstrap, ["runs"]), {"runs": {(TOPIC, 0): RECORDS}})
                place = ("--lake", str(tmp_path / "lake"), "--log", str(adopted.log), "--format", "json")
                reset = ("reset", "runs", "--all-topics", "--to-offset", "5", "--live", "--execute")
                code, output, errors = run(*reset, *place)
                assert code == 0, errors
                assert [json.loads(line)["outcome"] for line in output.splitlines()] == ["done"]
                reading.wait_for_records(RECORDS + RECORDS - 5)
                until(lambda: committed(broker.bootstrap, ["runs"]), {"runs": {(TOPIC, 0): RECORDS}})
                lake = Lake.open(tmp_path / "lake")
                cycle(InProcess(), lake, adopted.log)
                plan_expiry(InProcess(), lake)
                counts = emit(lake, LogAddress(folder=adopted.log), lambda _: None).counts
                assert counts["emitted"] > 0
                assert committed(broker.bootstrap, ["expires"]) == {"expires": {}}
                cycle(InProcess(), lake, adopted.log)
                upkeep(lake, adopted.log)
            finally:
                reading.stop()
        assert reading.values == [*range(RECORDS), *range(5, RECORDS)]
        with adopted.serving():
            assert committed(broker.bootstrap, ["expires", "runs"]) == {"expires": {}, "runs": {(TOPIC, 0): RECORDS}}
