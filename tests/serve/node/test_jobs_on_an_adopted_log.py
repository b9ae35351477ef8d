"""The jobs and commands that write to the log, on one that was adopted from a cluster and is served."""

import json
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from offsetlake.kafka import error_codes
from offsetlake.lake.lake import Lake
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.emit.job import emit
from offsetlake.serve.protocol import api_keys as apis
from support.broker.workload import create_topic, simple_commit
from support.command_line import Run
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, plan_expiry, upkeep
from support.serve.adopted import Adopted, committed, until
from support.serve.kio_requests import ask
from support.serve.reading import Reading

pytestmark = pytest.mark.long  # a broker of its own, whose groups are adopted

TOPIC, RECORDS, SECONDS = "jobs", 20, 180
DELETED = ("deleted", "created-again")
"""Topics that are deleted while the process does not run; the second one is created again."""


def commit_by_id(bootstrap: str, group: str, topic: str) -> int:
    """Commit offset 5 of partition 0 with the id of the topic; return the error code."""
    (described,) = ask(bootstrap, apis.METADATA, 12, topics=[{"topic_id": None, "name": topic}])["topics"]
    offsets = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    topics = [{"topic_id": uuid.UUID(bytes=described["topic_id"]), "partitions": offsets}]
    answer = ask(bootstrap, apis.OFFSET_COMMIT, 10, group_id=group, topics=topics)
    return int(answer["topics"][0]["partitions"][0]["error_code"])


def test_jobs_write_to_an_adopted_log(run: Run, tmp_path: Path) -> None:
    """A running group is rewound, offsets expire, and clients of the broker see both, also after a restart.

    Offsets of topics that were deleted before the restart are deleted; if the topic was created again, those without a
    topic id are kept.
    """
    adopted = Adopted(tmp_path)
    with adopted.broker as broker:
        for topic in (TOPIC, *DELETED):
            create_topic(broker.bootstrap, topic, 1)
        simple_commit(broker.bootstrap, "expires", {(TOPIC, 0): 3})
        code, output = adopted.adopt("--execute")
        assert code == 0, output
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(RECORDS):
            producer.produce(TOPIC, str(number))
        assert producer.flush(SECONDS) == 0
        with adopted.serving() as serving:
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
                until(lambda: committed(broker.bootstrap, ["runs"]), {"runs": {(TOPIC, 0): RECORDS}})
                simple_commit(serving.bootstrap, "by-name", {(topic, 0): 5 for topic in (TOPIC, *DELETED)})
                for topic in DELETED:
                    assert commit_by_id(serving.bootstrap, "by-id", topic) == error_codes.NONE
            finally:
                reading.stop()
        assert reading.values == [*range(RECORDS), *range(5, RECORDS)]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.delete_topics([*DELETED]).values():
            future.result(SECONDS)
        create_topic(broker.bootstrap, DELETED[1], 1)
        with adopted.serving() as serving:
            serving.wait_for_line("Deleted 3 offsets of deleted topics: created-again, deleted")
            kept = {"by-name": {(TOPIC, 0): 5, (DELETED[1], 0): 5}, "by-id": {}}
            assert committed(broker.bootstrap, [*kept]) == kept
            assert committed(broker.bootstrap, ["expires", "runs"]) == {"expires": {}, "runs": {(TOPIC, 0): RECORDS}}
