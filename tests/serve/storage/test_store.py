"""The store compared with a plain dict, for any order of writes, refreshes and failed refreshes."""

import struct
from dataclasses import dataclass, field
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.serve.apis.offset_fetch import OffsetFetch
from offsetlake.serve.net.client import Client
from offsetlake.serve.protocol.api_keys import OFFSET_FETCH
from offsetlake.serve.protocol.topics import Topics
from offsetlake.serve.protocol.wire import read_header
from offsetlake.serve.storage import prepared_responses
from offsetlake.serve.storage.group_details import NO_MEMBER
from offsetlake.serve.storage.memtable import VALUE
from offsetlake.serve.storage.prepared_responses import Prepared, PreparedResponses
from offsetlake.serve.storage.store import Store, key
from support.serve.kio_requests import answered, request
from support.serve.mapped_snapshots import Key, mapped_snapshot

names = st.sampled_from(["", "g", "h", "gé", "😀"])
topics = st.sampled_from(["t", "u", "ü"])
partitions = st.integers(0, 3)
keys = st.tuples(names, topics, partitions)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), keys, st.integers(-1, 2**62), st.text(max_size=3)),
        st.tuples(st.just("commit_both"), names, st.integers(0, 1), st.integers(-1, 2**62), st.integers(-1, 2**62)),
        st.tuples(st.just("delete_offset"), keys),
        st.tuples(st.just("delete_group"), names),
        st.tuples(st.sampled_from(["begin_refresh", "finish_refresh", "merge_back", "check", "check"])),
    ),
    max_size=40,
)

LAYOUTS = [[(key(b"t", partition), 7, ZERO_UUID, b"m") for partition in pair] for pair in ((0, 1), (1, 2))]
"""The fields of two kinds of commits, which differ in one partition."""


@dataclass
class Model:
    """Offsets by key, and the existing groups."""

    offsets: dict[Key, tuple[int, str]] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)

    def loaded_store(self) -> "Store":
        store = Store()
        rows = {
            key: {"committed_offset": offset, "metadata": metadata} for key, (offset, metadata) in self.offsets.items()
        }
        groups = [{"group_id": name, "group_type": "classic", "state": "Empty"} for name in self.groups]
        store.load(mapped_snapshot(rows, groups))
        return store

    def copy(self) -> "Model":
        return Model(dict(self.offsets), set(self.groups))


def fetched(fetches: OffsetFetch, group: str) -> dict[Key, tuple[int, str]]:
    """Return the offsets of a group by OffsetFetch, which may have prepared the response before."""
    values = {
        "group_id": group,
        "topics": [{"name": name, "partition_indexes": [0, 1, 2, 3]} for name in ("t", "u", "ü")],
    }
    data, answers = request(OFFSET_FETCH, 5, values), []
    fetches.take(data, read_header(data).body, 5, lambda *body: answers.append(b"".join(body)), Client())
    return {
        (group, topic["name"], partition["partition_index"]): (partition["committed_offset"], partition["metadata"])
        for topic in answered(OFFSET_FETCH, 5, answers[0])["topics"]
        for partition in topic["partitions"]
    }


def check(store: Store, fetches: OffsetFetch, model: Model) -> None:
    for group in ("", "g", "h", "gé", "😀"):
        for name, offset in fetched(fetches, group).items():
            assert offset == model.offsets.get(name, (-1, ""))
    for group in ("", "g", "h", "gé", "😀"):
        for topic in ("t", "u", "ü"):
            for partition in range(4):
                value = store.find(group.encode(), topic.encode(), partition)
                expected = model.offsets.get((group, topic, partition))
                if expected is None:
                    assert value is None
                else:
                    assert value is not None
                    assert (VALUE.unpack_from(value)[0], value[VALUE.size :].decode()) == expected
            of_topic = {partition for name, other, partition in model.offsets if (name, other) == (group, topic)}
            found = store.offsets(group.encode(), {topic.encode()})
            assert found.keys() == {key(topic.encode(), partition) for partition in of_topic}
        stored_topics = {name[:-4].decode() for name in store.offsets(group.encode())}
        assert stored_topics == {topic for name, topic, _ in model.offsets if name == group}
        assert len(store.offsets(group.encode())) == sum(name == group for name, _, _ in model.offsets)
        assert (store.group(group.encode()) is not None) == (group in model.groups)
    assert {name.decode() for name, _ in store.groups()} == model.groups


@given(st.dictionaries(keys, st.tuples(st.integers(0, 2**40), st.text(max_size=3)), max_size=8), steps)
def test_the_last_written_offsets_are_found_after_any_sequence_of_writes_and_refreshes(
    stored: dict[Key, tuple[int, str]], written: list[tuple[object, ...]]
) -> None:
    model = Model(dict(stored), {group for group, _, _ in stored})
    store, refreshing = model.loaded_store(), None
    fetches = OffsetFetch(store, Topics(None, 50))
    for log_offset, step in enumerate(written):
        match step:
            case ("commit", (str(group), str(topic), int(partition)), int(offset), str(metadata)):
                value = VALUE.pack(offset, -1, ZERO_UUID) + metadata.encode()
                store.commit(group.encode(), {key(topic.encode(), partition): value}, log_offset)
                model.offsets[group, topic, partition] = offset, metadata
                model.groups.add(group)
            case ("commit_both", str(group), int(layout), int(first), int(second)):
                offsets = struct.pack(">2q", first, second)
                store.commit_offsets(group.encode(), LAYOUTS[layout], offsets, log_offset, without_member=True)
                assert store.last_commit(group.encode(), LAYOUTS[layout]) == offsets
                model.offsets |= {(group, "t", layout): (first, "m"), (group, "t", layout + 1): (second, "m")}
                model.groups.add(group)
            case ("delete_offset", (str(group), str(topic), int(partition))):
                store.delete_offsets(group.encode(), [(topic.encode(), partition)], log_offset)
                model.offsets.pop((group, topic, partition), None)
            case ("delete_group", str(group)):
                store.delete_group(group.encode(), log_offset)
                model.offsets = {name: value for name, value in model.offsets.items() if name[0] != group}
                model.groups.discard(group)
            case ("begin_refresh",):
                store.begin_refresh()
                refreshing = model.copy()
            case ("finish_refresh",) if refreshing is not None:
                store.finish_refresh(refreshing.loaded_store().snapshot)
                refreshing = None
            case ("merge_back",) if refreshing is not None:
                store.merge_back()
                refreshing = None
            case ("check",):
                check(store, fetches, model)
    check(store, fetches, model)


def test_prepared_responses_have_bounded_memory_and_the_oldest_are_dropped() -> None:
    responses, response = PreparedResponses(), Prepared([(b"g", NO_MEMBER)], bytes(1000))
    with patch.object(prepared_responses, "MAX_BYTES", 10_000):
        for number in range(100):
            responses.keep((5, 0, bytes([number])), response)
            assert responses.get((5, 0, b"\0")) == response, "it is used each time"
    assert [number for number in range(100) if responses.get((5, 0, bytes([number])))] == [0, *range(95, 100)]
    responses.invalidate(b"g")
    assert not any(responses.get((5, 0, bytes([number]))) for number in range(100))


def test_pending_offsets_are_unstable_until_they_are_deleted() -> None:
    store = Store()
    store.load(mapped_snapshot({("g", "t", 0): {}}, pending=[("g", "t", 1), ("g", "t", 2)]))
    before = [store.is_unstable(b"g", b"t", partition) for partition in range(3)]
    store.delete_offsets(b"g", [(b"t", 1)], 7)
    store.commit(b"g", {key(b"t", 1): VALUE.pack(1, -1, ZERO_UUID), key(b"t", 2): VALUE.pack(1, -1, ZERO_UUID)}, 9)
    assert (before, [store.is_unstable(b"g", b"t", partition) for partition in range(3)]) == (
        [False, True, True],
        [False, False, True],
    )


def test_immutable_memtable_of_an_unfinished_refresh_is_kept_by_the_next_refresh() -> None:
    store, value = Store(), VALUE.pack(7, -1, ZERO_UUID)
    store.load(mapped_snapshot({}))
    for topic in (b"t", b"u"):
        store.commit(b"g", {key(topic, 0): value}, 1)
        store.begin_refresh()
    assert store.offsets(b"g") == {key(topic, 0): value for topic in (b"t", b"u")}


def test_group_accepts_commits_without_a_member_only_after_it_accepted_one() -> None:
    store, values = Store(), {key(b"t", 0): VALUE.pack(7, -1, ZERO_UUID)}
    store.load(mapped_snapshot({}))
    store.commit(b"g", values, 1)
    store.add_pending(b"g", (1, 0), [*values.items()], 2)
    assert not store.accepts_commits(b"g"), "only a member and a transaction have committed"
    store.commit(b"g", values, 3, without_member=True)
    assert store.accepts_commits(b"g")
    store.delete_group(b"g", 4)
    assert not store.accepts_commits(b"g")
