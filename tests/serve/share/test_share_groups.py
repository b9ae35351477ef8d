"""Share groups over the log of a server: what a restart finds, and topics that are deleted."""

import asyncio
from pathlib import Path

import pytest

from offsetlake.coordinator.share.group import ShareGroup
from offsetlake.kafka.error_codes import NONE
from offsetlake.serve.protocol import api_keys as apis
from offsetlake.share.state import share_states
from support.groups.comparison import serving
from support.groups.share_scenarios import ONLY, TOPICS, A, B, Group
from support.serve.commands import ABSENT
from support.serve.in_process import InProcess, Origin


@pytest.mark.long
def test_share_groups_continue_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path / "lake", tmp_path / "log", TOPICS) as server:
        group = Group(server.bootstrap, "with-members")
        group.join(A)
        group.await_epoch(A, 2)
        group.join(B)
        group.await_epoch(A, 3)
        group.describe()
        empty = Group(server.bootstrap, "empty")
        empty.alter({ONLY: {0: 7}})
        empty.await_offsets(1)
    with serving(tmp_path / "lake", tmp_path / "log", TOPICS) as server:
        resumed = group.at(server.bootstrap)
        resumed.describe()
        assert resumed.answers[-1] == group.answers[-1]
        assert [resumed.beat(member)["member_epoch"] for member in (A, B)] == [3, 3]
        after = empty.at(server.bootstrap)
        assert after.offsets() == empty.answers[-1]
        after.delete()
        after.list()
        assert after.answers[-1] == []


def topics_of(server: InProcess, group: str) -> set[str]:
    """Return the IDs of the topics that have a state according to a share group."""
    found = server.parts.membership.find(group.encode())
    assert isinstance(found, ShareGroup)
    return {*found.topics.initialized}


def alter(server: InProcess, group: str, *names: str) -> None:
    """Set the start offset of the partition 0 of topics."""
    topics = [{"topic_name": name, "partitions": [{"partition_index": 0, "start_offset": 0}]} for name in names]
    answer = server.ask(apis.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=group, topics=topics)
    assert answer["error_code"] == NONE


async def until_initialized(server: InProcess, group: str, topic_ids: set[str | None]) -> None:
    async with asyncio.timeout(30):
        while topics_of(server, group) != topic_ids:
            await asyncio.sleep(0)


def test_a_topic_that_was_created_again_is_removed_from_all_share_groups(
    tmp_path: Path, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = InProcess(tmp_path, origin, {b"deleted": 1, b"kept": 1})
    server.load()
    groups = (ABSENT, f"{ABSENT}-too")
    ids = server.topics.descriptions()
    deleted, kept = ids.id_of("deleted"), ids.id_of("kept")
    for group in groups:
        alter(server, group, "deleted", "kept")
        server.loop.run_until_complete(until_initialized(server, group, {deleted, kept}))
    name_of = server.topics.name_of
    gone = server.topics.id_of(b"deleted")
    monkeypatch.setattr(server.topics, "name_of", lambda id_: None if id_ == gone else name_of(id_))
    monkeypatch.setattr(share_states, "CONFIRMED_AFTER_SECONDS", 0.0)
    server.share.states.topics_changed(frozenset({"deleted"}))
    removing = server.loop.create_task(server.share.partitions.remove_replaced_topics())
    for group in groups:
        server.loop.run_until_complete(until_initialized(server, group, {kept}))
    removing.cancel()
    server.loop.run_until_complete(asyncio.wait([removing]))
    server.close()


def test_no_record_follows_the_tombstones_of_a_share_group(tmp_path: Path, origin: Origin) -> None:
    server = InProcess(tmp_path, origin, {b"t": 1})
    server.load()
    topic_id = server.topics.descriptions().id_of("t")
    assert topic_id is not None
    alter(server, ABSENT, "t")
    server.loop.run_until_complete(until_initialized(server, ABSENT, {topic_id}))
    server.loop.run_until_complete(server.writes.drain())
    ends = server.appender.ends()
    server.store.deleting.add(ABSENT.encode())  # as while the tombstones of the group are written
    server.loop.run_until_complete(server.share.partitions.deleted(ABSENT, [topic_id]))
    server.loop.run_until_complete(server.writes.drain())
    assert server.appender.ends() == ends
    server.close()
