"""Resets in the console of a live cluster, whose brokers know the log start and end offsets."""

from pathlib import Path

import pytest

from offsetlake.lake.location.locate import locate
from offsetlake.log.address import LogAddress
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.web.console.changing.workbench import Workbench
from support.broker import workload
from support.broker.broker import Broker
from support.console.changes import form_token, submit
from support.console.served import Page, gate, served
from support.e2e.live import Live, lake_of

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.mark.long
def test_every_strategy_commits_its_offsets(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = lake_of(broker, tmp_path)
    live = Live(broker, lake, capsys)
    group = topic = live.topic("console-reset", 3, records=10)
    workload.simple_commit(broker.bootstrap, group, {(topic, 0): 4, (topic, 1): 7})
    log = LogAddress(connection=KafkaConnection.from_settings({"bootstrap.servers": broker.bootstrap}))
    bench = Workbench(locate(str(lake)), log)
    source = [f"--lake={lake}", f"--bootstrap={broker.bootstrap}"]
    with served(lake, gate(allows_changes=True), bench=bench, source=source) as port:
        token = form_token(port)
        for fields, words, expected in (
            ({"strategy": "to_earliest"}, "--all-topics --to-earliest", {0: 0, 1: 0}),
            ({"strategy": "to_latest", "topic": topic}, f"--topic={topic} --to-latest", {0: 10, 1: 0, 2: 0}),
            (
                {"strategy": "shift_by", "value": "-3", "topic": topic, "partitions": "0"},
                f"--topic={topic}:0 --shift-by=-3",
                {0: 7, 1: 0, 2: 0},
            ),
            (
                {"strategy": "to_datetime", "value": "2020-01-01T00:00"},
                "--all-topics --to-datetime=2020-01-01T00:00",
                {0: 0, 1: 0, 2: 0},
            ),
            (
                {"strategy": "to_offset", "value": "2", "topic": topic, "partitions": "0"},
                f"--topic={topic}:0 --to-offset=2",
                {0: 2, 1: 0, 2: 0},
            ),
            ({"strategy": "to_datetime", "value": "2100-01-01"}, "--to-datetime=2100-01-01", {0: 10, 1: 0, 2: 0}),
        ):
            address, plan = submit(port, "/change", token, {"kind": "reset", "group": group, **fields})
            assert words in Page(plan.text).command
            _, done = submit(port, f"{address}/execute", token, {})
            assert "The change was made" in done.text
            assert {number: offset for (_, number), offset in live.committed_offsets(group).items()} == expected
