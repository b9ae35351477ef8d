"""Groups over the log of a server: what a restart finds, sessions that end, and writes that fail."""

import asyncio
import uuid
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from offsetlake.auth.acl import COMMIT, READ, Access, Grant
from offsetlake.coordinator.consumer import regexes
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.steps import Timer, TimerKind
from offsetlake.kafka import error_codes
from offsetlake.serve.groups import regex_evaluation
from offsetlake.serve.protocol import api_keys as apis
from support.groups.consumer_scenarios import Group
from support.serve.commands import ABSENT
from support.serve.in_process import InProcess, Origin
from support.serve.kio_requests import answered, request
from support.serve.members import Members, joining, subscription
from support.serve.serving import Serving

NOTHING = b"\0\1\0\0\0\0\xff\xff\xff\xff"  # in the version of the subscription
NO_DELAY = {"initial_rebalance_delay_ms": 0}


def serving(folder: Path, **coordinator: int) -> Serving:
    return Serving(folder / "lake", folder / "log", topics={"t": 3}, coordinator=NO_DELAY | coordinator)


@pytest.mark.long
@pytest.mark.slow
def test_killed_server_continues_with_the_members_of_its_groups(tmp_path: Path) -> None:
    with serving(tmp_path) as first:
        members = Members(first.bootstrap, "g")
        members.enter("a", protocols=[{"name": "range", "metadata": subscription("t", version=1) + b"more"}])
        members.receive("a")
        members.sync("a", assigned={"a": NOTHING})
        members.receive("a")
        described = members.describe()
        members.close()
        first.kill()
    with serving(tmp_path) as second:
        again = Members(second.bootstrap, "g", ids=members.ids, generation=members.generation)
        assert again.beat("a")["error_code"] == error_codes.NONE
        assert again.describe() == described
        again.sync("a")
        assert again.receive("a")["assignment"] == NOTHING
        assert again.leave("a")["members"][0]["error_code"] == error_codes.NONE
        again.close()


@pytest.mark.slow
def test_killed_server_continues_with_members_of_both_protocols(tmp_path: Path) -> None:
    consumer = str(uuid.UUID(int=1))
    with serving(tmp_path) as first:
        members, consumers = Members(first.bootstrap, "g"), Group(first.bootstrap, "g", ["t"])
        members.enter("a")
        members.receive("a")
        members.sync("a", assigned={"a": NOTHING})
        members.receive("a")
        consumers.join(consumer)
        members.join("a")
        assert members.receive("a")["generation_id"] == 2
        members.sync("a")
        assigned = members.receive("a")["assignment"]
        consumers.describe()
        members.close()
        first.kill()
    with serving(tmp_path) as second:
        again = Members(second.bootstrap, "g", ids=members.ids, generation=members.generation)
        consumers_again = Group(second.bootstrap, "g", ["t"])
        consumers_again.describe()
        assert consumers_again.answers[-1] == consumers.answers[-1]
        assert again.beat("a")["error_code"] == error_codes.NONE
        again.sync("a")
        assert again.receive("a")["assignment"] == assigned
        consumers_again.beat(consumer, member_epoch=-1)
        assert again.beat("a")["error_code"] == error_codes.REBALANCE_IN_PROGRESS
        again.join("a")
        assert again.receive("a")["generation_id"] == 3
        again.close()


@pytest.mark.slow
def test_member_without_heartbeats_is_removed(tmp_path: Path) -> None:
    with serving(tmp_path, min_session_timeout_ms=1000) as server:
        members = Members(server.bootstrap, "g")
        members.enter("a", session_timeout=timedelta(seconds=2))
        members.receive("a")
        members.sync("a", assigned={"a": NOTHING})
        members.receive("a")
        members.enter("b")  # is answered when the session of the other member has ended
        assert members.receive("b")["members"][0]["member_id"] == members.ids["b"]
        assert members.beat("a")["error_code"] == error_codes.UNKNOWN_MEMBER_ID
        members.close()


def test_group_whose_records_cannot_be_written_does_not_exist(tmp_path: Path, origin: Origin) -> None:
    server = InProcess(tmp_path, origin)
    server.load()

    with server.full_disk():
        refused = server.ask(apis.JOIN_GROUP, 9, **joining(ABSENT))
    assert refused["error_code"] == error_codes.NOT_COORDINATOR
    assert server.store.group(ABSENT.encode()) is None
    accepted = server.ask(apis.JOIN_GROUP, 9, **joining(ABSENT))
    assert accepted["error_code"] == error_codes.MEMBER_ID_REQUIRED
    assert server.store.group(ABSENT.encode()) is not None
    server.close()


def test_group_with_members_refuses_commits_of_others(tmp_path: Path, origin: Origin) -> None:
    server = InProcess(tmp_path, origin)
    server.load()
    beat = {"member_epoch": 0, "instance_id": None, "rack_id": None, "server_assignor": None, "topic_partitions": []}
    beat |= {"rebalance_timeout": timedelta(minutes=1), "subscribed_topic_names": ["t"], "subscribed_topic_regex": None}
    member = "AAAAAAAAAAAAAAAAAAAAAQ"
    joined = server.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, group_id=ABSENT, member_id=member, **beat)
    assert (joined["error_code"], joined["member_epoch"]) == (error_codes.NONE, 1)
    rows = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]

    def commit(epoch: int, member_id: str) -> int:
        topics = [{"name": "t", "partitions": rows}]
        values = {"generation_id_or_member_epoch": epoch, "member_id": member_id, "topics": topics}
        answer = server.ask(apis.OFFSET_COMMIT, 9, group_id=ABSENT, **values)
        code: int = answer["topics"][0]["partitions"][0]["error_code"]
        return code

    assert commit(-1, "") == error_codes.UNKNOWN_MEMBER_ID
    assert commit(2, member) == error_codes.STALE_MEMBER_EPOCH
    assert commit(1, member) == error_codes.NONE
    deleted = server.ask(apis.DELETE_GROUPS, 2, groups_names=[ABSENT])["results"][0]["error_code"]
    assert deleted == error_codes.NON_EMPTY_GROUP
    leave = beat | {"member_epoch": -1}
    assert server.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, group_id=ABSENT, member_id=member, **leave)["error_code"] == 0
    assert commit(-1, "") == error_codes.NONE
    assert server.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, group_id=ABSENT, member_id=member, **beat)["error_code"] == 0
    assert commit(-1, "") == error_codes.UNKNOWN_MEMBER_ID
    assert server.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, group_id=ABSENT, member_id=member, **leave)["error_code"] == 0
    deleted = server.ask(apis.DELETE_GROUPS, 2, groups_names=[ABSENT])["results"][0]["error_code"]
    assert (deleted, server.store.group(ABSENT.encode())) == (error_codes.NONE, None)
    server.close()


def test_assignments_too_large_for_the_log_are_refused(tmp_path: Path, origin: Origin) -> None:
    server = InProcess(tmp_path, origin)
    server.load()
    member = server.ask(apis.JOIN_GROUP, 9, **joining(ABSENT))["member_id"]
    joined = server.ask(apis.JOIN_GROUP, 9, **joining(ABSENT, member))
    assert joined["error_code"] == error_codes.NONE
    syncing = {"group_id": ABSENT, "generation_id": 1, "member_id": member, "group_instance_id": None}
    syncing |= {"protocol_type": "consumer", "protocol_name": "range"}
    assignments = [{"member_id": member, "assignment": bytes(2 << 20)}]
    refused = server.ask(apis.SYNC_GROUP, 5, **syncing, assignments=assignments)
    assert refused["error_code"] == error_codes.UNKNOWN_SERVER_ERROR
    again = server.ask(apis.JOIN_GROUP, 9, **joining(ABSENT, member))
    assert (again["error_code"], again["generation_id"]) == (error_codes.NONE, 2)
    server.close()


def advance(server: InProcess, elapsed_ms: int) -> None:
    """Advance the clock of the sessions, and process the timers that are due."""
    server.parts.membership._started_ms += elapsed_ms
    server.parts.membership._timers._run()


def test_commit_restarts_the_session_of_its_member(tmp_path: Path, origin: Origin) -> None:
    server = InProcess(tmp_path, origin)
    server.load()
    member = server.ask(apis.JOIN_GROUP, 9, **joining(ABSENT))["member_id"]
    joining_member = server.start(request(apis.JOIN_GROUP, 9, joining(ABSENT, member)))
    advance(server, 3_000)
    assert answered(apis.JOIN_GROUP, 9, server.wait(joining_member))["generation_id"] == 1
    present = {"group_id": ABSENT, "generation_id": 1, "member_id": member, "group_instance_id": None}
    syncing = present | {"assignments": [{"member_id": member, "assignment": NOTHING}]}
    server.ask(apis.SYNC_GROUP, 5, **syncing, protocol_type="consumer", protocol_name="range")
    rows = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    committing = {"generation_id_or_member_epoch": 1, "topics": [{"name": "t", "partitions": rows}]}
    for member_id, error in ((member, error_codes.NONE), ("unknown", error_codes.UNKNOWN_MEMBER_ID)):
        advance(server, 240_000)
        values = committing | {"group_id": ABSENT, "member_id": member_id, "group_instance_id": None}
        answer = server.ask(apis.OFFSET_COMMIT, 8, **values)
        assert answer["topics"][0]["partitions"][0]["error_code"] == error
    assert server.ask(apis.HEARTBEAT, 4, **present)["error_code"] == error_codes.NONE
    server.close()


def heartbeat(group: str, member: str, epoch: int) -> dict[str, Any]:
    values = {"group_id": group, "member_id": member, "member_epoch": epoch, "instance_id": None, "rack_id": None}
    values |= {"rebalance_timeout": timedelta(minutes=1), "server_assignor": None, "topic_partitions": []}
    return values | {"subscribed_topic_names": ["t"], "subscribed_topic_regex": None}


def test_commit_creates_no_partitions_that_groups_assign(tmp_path: Path, origin: Origin) -> None:
    server = InProcess(tmp_path, origin)
    server.load()
    rows = [{"partition_index": 99_999, "committed_offset": 5, "committed_metadata": ""}]
    committing = {"generation_id_or_member_epoch": -1, "topics": [{"name": "t", "partitions": rows}]}
    answer = server.ask(apis.OFFSET_COMMIT, 8, group_id="others", **committing)
    assert answer["topics"][0]["partitions"][0]["error_code"] == error_codes.NONE
    joined = server.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, **heartbeat(ABSENT, "AAAAAAAAAAAAAAAAAAAAAQ", 0))
    assert (joined["error_code"], joined["assignment"]["topic_partitions"]) == (error_codes.NONE, [])
    server.close()


def kind(server: InProcess) -> tuple[str, str]:
    found = server.store.group(ABSENT.encode())
    assert found is not None
    return found["group_type"], found["state"]


def test_empty_group_changes_its_protocol(tmp_path: Path, origin: Origin) -> None:
    server = InProcess(tmp_path, origin)
    server.load()
    consumer = "AAAAAAAAAAAAAAAAAAAAAQ"
    assert server.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, **heartbeat(ABSENT, consumer, 0))["error_code"] == 0
    assert server.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, **heartbeat(ABSENT, consumer, -1))["error_code"] == 0
    assert kind(server) == ("consumer", "Empty")
    member = server.ask(apis.JOIN_GROUP, 9, **joining(ABSENT))["member_id"]
    assert kind(server) == ("classic", "Empty")
    assert server.ask(apis.JOIN_GROUP, 9, **joining(ABSENT, member))["error_code"] == error_codes.NONE
    leaving = {"group_id": ABSENT, "members": [{"member_id": member, "group_instance_id": None, "reason": None}]}
    assert server.ask(apis.LEAVE_GROUP, 5, **leaving)["error_code"] == error_codes.NONE
    assert server.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, **heartbeat(ABSENT, consumer, 0))["error_code"] == 0
    assert kind(server) == ("consumer", "Stable")
    server.close()


def test_group_with_members_changes_its_protocol_unless_that_cannot_be_written(tmp_path: Path, origin: Origin) -> None:
    server = InProcess(tmp_path, origin)
    server.load()
    member = server.ask(apis.JOIN_GROUP, 9, **joining(ABSENT))["member_id"]
    assert server.ask(apis.JOIN_GROUP, 9, **joining(ABSENT, member))["error_code"] == error_codes.NONE
    of_member = {"group_id": ABSENT, "member_id": member, "group_instance_id": None}
    syncing = of_member | {"generation_id": 1, "protocol_type": "consumer", "protocol_name": "range"}
    assignments = [{"member_id": member, "assignment": NOTHING}]
    assert server.ask(apis.SYNC_GROUP, 5, **syncing, assignments=assignments)["error_code"] == error_codes.NONE

    def beat(generation: int) -> int:
        code: int = server.ask(apis.HEARTBEAT, 4, **of_member, generation_id=generation)["error_code"]
        return code

    consumer = "AAAAAAAAAAAAAAAAAAAAAQ"

    def ask(epoch: int) -> int:
        answer = server.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, **heartbeat(ABSENT, consumer, epoch))
        code: int = answer["error_code"]
        return code

    with server.full_disk():
        assert ask(0) == error_codes.NOT_COORDINATOR
    assert (kind(server), beat(1)) == (("classic", "Stable"), error_codes.NONE)
    assert ask(0) == error_codes.NONE
    assert (kind(server), beat(1)) == (("consumer", "Reconciling"), error_codes.REBALANCE_IN_PROGRESS)
    assert server.ask(apis.JOIN_GROUP, 9, **joining(ABSENT, member))["generation_id"] == 2
    with server.full_disk():
        assert ask(-1) == error_codes.NOT_COORDINATOR
    assert (kind(server), beat(2)) == (("consumer", "Stable"), error_codes.NONE)
    assert ask(-1) == error_codes.NONE
    assert (kind(server), beat(2)) == (("classic", "PreparingRebalance"), error_codes.REBALANCE_IN_PROGRESS)
    assert server.ask(apis.JOIN_GROUP, 9, **joining(ABSENT, member))["generation_id"] == 3
    server.close()


def test_member_outlives_a_change_of_its_group_that_could_not_be_written(tmp_path: Path, origin: Origin) -> None:
    server = InProcess(tmp_path, origin)
    server.load()
    member = server.ask(apis.JOIN_GROUP, 9, **joining(ABSENT))["member_id"]
    assert server.ask(apis.JOIN_GROUP, 9, **joining(ABSENT, member))["error_code"] == error_codes.NONE
    beat = {"group_id": ABSENT, "member_id": member, "group_instance_id": None, "generation_id": 1}
    consumer = heartbeat(ABSENT, "AAAAAAAAAAAAAAAAAAAAAQ", 0)

    with server.full_disk():
        upgrading = server.start(request(apis.CONSUMER_GROUP_HEARTBEAT, 1, consumer))
        beating = server.start(request(apis.HEARTBEAT, 4, beat))  # in the consumer group
        server.wait(upgrading)
        assert answered(apis.HEARTBEAT, 4, server.wait(beating))["error_code"] == error_codes.NOT_COORDINATOR
    advance(server, 290_000)  # the rebalance timeout is 5 minutes
    assert server.ask(apis.HEARTBEAT, 4, **beat)["error_code"] == error_codes.NONE
    assert server.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, **consumer)["error_code"] == error_codes.NONE
    advance(server, 10_000)
    assert server.ask(apis.HEARTBEAT, 4, **beat)["error_code"] == error_codes.REBALANCE_IN_PROGRESS
    server.close()


def test_join_that_waits_in_a_group_whose_change_cannot_be_written_is_answered(tmp_path: Path, origin: Origin) -> None:
    server = InProcess(tmp_path, origin)
    server.load()
    consumer = "AAAAAAAAAAAAAAAAAAAAAQ"
    assert server.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, **heartbeat(ABSENT, consumer, 0))["error_code"] == 0
    member = server.ask(apis.JOIN_GROUP, 9, **joining(ABSENT))["member_id"]
    other = server.ask(apis.JOIN_GROUP, 9, **joining(ABSENT))["member_id"]
    for member_id in (member, other):
        assert server.ask(apis.JOIN_GROUP, 9, **joining(ABSENT, member_id))["error_code"] == error_codes.NONE

    with server.full_disk():
        leaving = server.start(request(apis.CONSUMER_GROUP_HEARTBEAT, 1, heartbeat(ABSENT, consumer, -1)))
        waiting = server.start(request(apis.JOIN_GROUP, 9, joining(ABSENT, member)))
        refused = answered(apis.CONSUMER_GROUP_HEARTBEAT, 1, server.wait(leaving))
        assert refused["error_code"] == error_codes.NOT_COORDINATOR
        refused = answered(apis.JOIN_GROUP, 9, server.wait(waiting))
        assert refused["error_code"] == error_codes.NOT_COORDINATOR
    assert kind(server)[0] == "consumer"
    server.close()


def test_commit_of_a_member_that_left_before_it_is_written_is_refused(tmp_path: Path, origin: Origin) -> None:
    server = InProcess(tmp_path, origin)
    server.load()
    member = "AAAAAAAAAAAAAAAAAAAAAQ"
    assert server.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, **heartbeat(ABSENT, member, 0))["error_code"] == 0
    rows = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    values = {"generation_id_or_member_epoch": 1, "member_id": member, "topics": [{"name": "t", "partitions": rows}]}
    commit = server.start(request(apis.OFFSET_COMMIT, 9, {"group_id": ABSENT} | values))
    leave = server.start(request(apis.CONSUMER_GROUP_HEARTBEAT, 1, heartbeat(ABSENT, member, -1)))
    answer = answered(apis.OFFSET_COMMIT, 9, server.wait(commit))
    assert answer["topics"][0]["partitions"][0]["error_code"] == error_codes.UNKNOWN_MEMBER_ID
    assert answered(apis.CONSUMER_GROUP_HEARTBEAT, 1, server.wait(leave))["error_code"] == error_codes.NONE
    assert server.store.find(ABSENT.encode(), b"t", 0) is None
    server.close()


def test_names_that_no_member_id_can_contain_are_refused(tmp_path: Path, origin: Origin) -> None:
    server = InProcess(tmp_path, origin)
    server.load()
    static = joining(ABSENT) | {"group_instance_id": "i" * 32_760}
    assert server.ask(apis.JOIN_GROUP, 5, **static)["error_code"] == error_codes.INVALID_REQUEST
    assert server.store.group(ABSENT.encode()) is None
    server.close()


def evaluated(server: InProcess, expression: str) -> dict[str, list[str]]:
    """Join a group with a regular expression, and send heartbeats until it is evaluated."""
    beat = heartbeat(ABSENT, "AAAAAAAAAAAAAAAAAAAAAQ", 0) | {"subscribed_topic_regex": expression}
    while True:
        joined = server.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, **beat | {"subscribed_topic_names": None})
        assert joined["error_code"] == error_codes.NONE
        group = server.parts.membership.live(ABSENT.encode())
        assert isinstance(group, ConsumerGroup)
        if group.state.regexes:
            return group.state.regexes


def test_group_that_is_not_loaded_yet_is_loaded_by_the_request_that_needs_it(tmp_path: Path, origin: Origin) -> None:
    server = InProcess(tmp_path, origin)
    server.parts.load(origin.base, origin.ends)
    rows = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    committing = {"generation_id_or_member_epoch": -1, "topics": [{"name": "t", "partitions": rows}]}
    for group, error in (("fraud-detection", error_codes.UNKNOWN_MEMBER_ID), (ABSENT, error_codes.NONE)):
        answer = server.ask(apis.OFFSET_COMMIT, 8, group_id=group, **committing)
        assert answer["topics"][0]["partitions"][0]["error_code"] == error
    membership = server.parts.membership
    loaded = membership.live(b"fraud-detection")
    assert loaded is not None
    server.loop.run_until_complete(membership.load())
    assert (membership.live(b"fraud-detection"), membership.live(ABSENT.encode())) == (loaded, None)
    server.close()


def test_members_cannot_join_before_the_log_is_loaded(loading: InProcess) -> None:
    refused = loading.ask(apis.JOIN_GROUP, 9, **joining(ABSENT))
    assert refused["error_code"] == error_codes.COORDINATOR_LOAD_IN_PROGRESS
    beat = heartbeat(ABSENT, "AAAAAAAAAAAAAAAAAAAAAQ", 0)
    refused = loading.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, **beat)
    assert refused["error_code"] == error_codes.COORDINATOR_LOAD_IN_PROGRESS


def test_groups_of_a_log_are_loaded_between_requests(tmp_path: Path, origin: Origin) -> None:
    server = InProcess(tmp_path, origin)
    server.parts.load(origin.base, origin.ends)
    loading = server.loop.create_task(server.parts.membership.load())
    assert (
        server.ask(apis.HEARTBEAT, 4, group_id=ABSENT, generation_id=1)["error_code"] == error_codes.UNKNOWN_MEMBER_ID
    )
    server.loop.run_until_complete(loading)
    group = server.parts.membership.live(b"fraud-detection")
    assert isinstance(group, ConsumerGroup)
    member = next(group.members())
    beat = heartbeat("fraud-detection", member.member_id, member.epoch)
    assert server.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, **beat)["error_code"] == error_codes.NONE
    server.close()


def test_requests_are_answered_while_regular_expressions_are_evaluated(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, answered_requests = InProcess(tmp_path, origin, {b"t1": 3, b"u": 1}), Event()
    server.load()

    def matching(expression: str, names: list[str]) -> list[str]:
        assert answered_requests.wait(60)
        return [name for name in names if name == expression]

    monkeypatch.setattr(regexes, "_matching", matching)
    member = heartbeat(ABSENT, "AAAAAAAAAAAAAAAAAAAAAQ", 0) | {"subscribed_topic_names": None}
    for number in range(3):
        joining = member | {"group_id": f"{ABSENT}{number}", "subscribed_topic_regex": "t1"}
        assert server.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, **joining)["assignment"]["topic_partitions"] == []
    answered_requests.set()
    assert evaluated(server, "u") == {"u": ["u"]}
    server.close()


def test_evaluation_that_was_undone_before_it_began_has_no_effect(tmp_path: Path, origin: Origin) -> None:
    server, failed = InProcess(tmp_path, origin, {b"t1": 3}), list[dict[str, Any]]()
    server.load()
    server.loop.set_exception_handler(lambda _loop, context: failed.append(context))
    consumer = "AAAAAAAAAAAAAAAAAAAAAQ"
    assert server.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, **heartbeat(ABSENT, consumer, 0))["error_code"] == 0
    membership = server.parts.membership
    group = membership.live(ABSENT.encode())
    assert isinstance(group, ConsumerGroup)
    group.regexes_to_evaluate = regexes.RegexEvaluation(ABSENT, frozenset({"t1"}), lambda _: True)
    membership._due(Timer(TimerKind.REGEX, ABSENT))
    group.regexes_to_evaluate = None  # as when the records of the heartbeat cannot be written
    server.loop.run_until_complete(asyncio.gather(*membership._regex_evaluations._tasks))
    assert (failed, group.state.regexes) == ([], {})
    server.close()


@pytest.mark.parametrize(("pattern", "matched"), [("*", ["t1", "t2"]), (f"{ABSENT}*", [])])
def test_regular_expressions_match_the_topics_that_the_principal_may_list(
    tmp_path: Path, origin: Origin, pattern: str, matched: list[str]
) -> None:
    server = InProcess(tmp_path, origin, {b"t1": 3, b"t2": 1, b"u": 1})
    server.load()
    server.client.access = Access([Grant("*", pattern, READ | COMMIT)])
    assert evaluated(server, "t.") == {"t.": matched}
    server.close()


def test_regular_expressions_that_match_too_many_topics_have_no_effect(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = InProcess(tmp_path, origin, {b"t1": 3, b"u": 1})
    server.load()
    monkeypatch.setattr(regexes, "MAX_MATCHED_BYTES", 1)
    monkeypatch.setattr(regex_evaluation, "MIN_REFRESH_INTERVAL_MS", 0)
    member = heartbeat(ABSENT, "AAAAAAAAAAAAAAAAAAAAAQ", 0) | {"subscribed_topic_names": None}
    while f"The regular expressions of group {ABSENT!r}" not in caplog.text:
        joined = server.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, **member | {"subscribed_topic_regex": "t1"})
        assert joined["error_code"] == error_codes.NONE
    monkeypatch.undo()
    assert evaluated(server, "t1") == {"t1": ["t1"]}
    server.close()
