"""A broker loads the groups of the log of the server, and the server those of a broker, each as its own."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from support.broker.broker import Broker
from support.broker.data_folder import copy_log, put_back
from support.broker.kafka_tools import NEWER
from support.broker.tools import await_loaded, broker_groups, broker_offsets
from support.groups.comparison import Client, prepare, serving, topic_ids, write_topic_ids
from support.groups.scenarios import SCENARIOS_4_2, TOPICS
from support.groups.share_scenarios import warm_up
from support.serve.kio_requests import ask

pytestmark = [pytest.mark.broker, pytest.mark.long]

DESCRIBE_CLASSIC, DESCRIBE_CONSUMER, DESCRIBE_SHARE = (15, 6), (69, 1), (77, 1)
GROUPS = [f"{writer} {name}" for writer in ("server", "broker") for name in SCENARIOS_4_2]
HOUR = "3600000"
SESSIONS = {f"group.{kind}.{limit}session.timeout.ms": HOUR for kind in ("consumer", "share") for limit in ("max.", "")}


def described(bootstrap: str) -> dict[str, Any]:
    """Return all groups of a server that has loaded them: types, states, members, assignments and offsets."""
    await_loaded(bootstrap, GROUPS)
    listed = broker_groups(bootstrap)
    classic = ask(bootstrap, *DESCRIBE_CLASSIC, groups=GROUPS)["groups"]
    consumer = ask(bootstrap, *DESCRIBE_CONSUMER, group_ids=GROUPS)["groups"]
    share = ask(bootstrap, *DESCRIBE_SHARE, group_ids=GROUPS)["groups"]
    modern = [group for group in consumer + share if not group["error_code"]]
    groups = {group["group_id"]: _plain(group) for group in classic + modern}
    return {"listed": listed, "offsets": broker_offsets(bootstrap)} | groups


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return sorted(map(_plain, value), key=str) if isinstance(value, list) else value


def heartbeats(bootstrap: str, clients: Iterable[Client]) -> dict[str, Any]:
    """Return the answers to a heartbeat of each member, by group."""
    answers = {}
    for client in clients:
        resumed = client.at(bootstrap)
        for name in resumed.members():
            resumed.beat(name)
        resumed.close()
        answers[resumed.group_id] = resumed.answers
    return answers


def test_groups_are_loaded_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    written, extended = tmp_path / "written-by-the-server", tmp_path / "extended-by-the-broker"
    with Broker(tmp_path / "broker", SESSIONS, NEWER) as broker:
        prepare(broker.bootstrap, TOPICS, GROUPS)
        warm_up(broker.bootstrap)
        write_topic_ids(written, topic_ids(broker.bootstrap, TOPICS))
        with serving(tmp_path / "lake", written, TOPICS) as server:
            clients = [scenario.run(server.bootstrap, f"server {name}") for name, scenario in SCENARIOS_4_2.items()]
        broker.stop()
        put_back(written, broker.data_dir)
        broker.start()
        loaded = described(broker.bootstrap), heartbeats(broker.bootstrap, clients)
        assert {state for state, _, _ in loaded[0]["listed"].values()} >= {"Empty", "Stable", "Reconciling"}
        with serving(tmp_path / "lake", written, TOPICS) as server:
            assert (described(server.bootstrap), heartbeats(server.bootstrap, clients)) == loaded
        clients += [scenario.run(broker.bootstrap, f"broker {name}") for name, scenario in SCENARIOS_4_2.items()]
        broker.stop()
        copy_log(broker.data_dir, extended)
        broker.start()
        loaded = described(broker.bootstrap), heartbeats(broker.bootstrap, clients)
    with serving(tmp_path / "another-lake", extended, TOPICS) as server:
        assert (described(server.bootstrap), heartbeats(server.bootstrap, clients)) == loaded
