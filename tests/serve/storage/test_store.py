"""The store against a plain dict, whatever is written, frozen, folded and thawed in whatever order."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.serve.storage.store import VALUE, Store, key
from support.serve.mapped_snapshots import Key, mapped_snapshot

names = st.sampled_from(["", "g", "h", "gé", "😀"])
topics = st.sampled_from(["t", "u", "ü"])
partitions = st.integers(0, 3)
keys = st.tuples(names, topics, partitions)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), keys, st.integers(-1, 2**62), st.text(max_size=3)),
        st.tuples(st.just("delete_offset"), keys),
        st.tuples(st.just("delete_group"), names),
        st.tuples(st.sampled_from(["freeze", "fold", "thaw"])),
    ),
    max_size=40,
)


@dataclass
class Model:
    """Offsets by key, and the groups there are."""

    offsets: dict[Key, tuple[int, str]] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)

    def base(self) -> "Store":
        store = Store()
        rows = {
            of: {"committed_offset": offset, "metadata": metadata} for of, (offset, metadata) in self.offsets.items()
        }
        groups = [{"group_id": name, "group_type": "classic", "state": "Empty"} for name in self.groups]
        store.load(mapped_snapshot(rows, groups))
        return store

    def copy(self) -> "Model":
        return Model(dict(self.offsets), set(self.groups))


def check(store: Store, model: Model) -> None:
    for group in ("", "g", "h", "gé", "😀"):
        for topic in ("t", "u", "ü"):
            for partition in range(4):
                found = store.find(group.encode(), topic.encode(), partition)
                expected = model.offsets.get((group, topic, partition))
                if expected is None:
                    assert found is None
                else:
                    assert found is not None
                    assert (VALUE.unpack_from(found)[0], found[VALUE.size :].decode()) == expected
        stored = {of[:-4].decode(): of for of in store.offsets(group.encode())}
        assert {*stored} == {topic for name, topic, _ in model.offsets if name == group}
        assert len(store.offsets(group.encode())) == sum(name == group for name, _, _ in model.offsets)
        assert (store.group(group.encode()) is not None) == (group in model.groups)
    assert {name.decode() for name, _ in store.groups()} == model.groups


@given(st.dictionaries(keys, st.tuples(st.integers(0, 2**40), st.text(max_size=3)), max_size=8), steps)
def test_what_is_found_is_what_was_written_last(
    stored: dict[Key, tuple[int, str]], written: list[tuple[object, ...]]
) -> None:
    model = Model(dict(stored), {group for group, _, _ in stored})
    store, frozen = model.base(), None
    for log_offset, step in enumerate(written):
        match step:
            case ("commit", (str(group), str(topic), int(partition)), int(offset), str(metadata)):
                value = VALUE.pack(offset, -1, ZERO_UUID) + metadata.encode()
                store.commit(group.encode(), {key(topic.encode(), partition): value}, log_offset)
                model.offsets[group, topic, partition] = offset, metadata
                model.groups.add(group)
            case ("delete_offset", (str(group), str(topic), int(partition))):
                store.delete_offsets(group.encode(), [(topic.encode(), partition)], log_offset)
                model.offsets.pop((group, topic, partition), None)
            case ("delete_group", str(group)):
                store.delete_group(group.encode(), log_offset)
                model.offsets = {of: value for of, value in model.offsets.items() if of[0] != group}
                model.groups.discard(group)
            case ("freeze",):
                store.freeze()
                frozen = model.copy()
            case ("fold",) if frozen is not None:
                store.fold(frozen.base().base)
                frozen = None
            case ("thaw",) if frozen is not None:
                store.thaw()
                frozen = None
        check(store, model)


def test_offsets_of_open_transactions_are_unstable_until_they_are_deleted() -> None:
    store = Store()
    store.load(mapped_snapshot({("g", "t", 0): {}}, pending=[("g", "t", 1), ("g", "t", 2)]))
    held = [store.is_unstable(b"g", b"t", partition) for partition in range(3)]
    store.delete_offsets(b"g", [(b"t", 1)], 7)
    store.commit(b"g", {key(b"t", 1): VALUE.pack(1, -1, ZERO_UUID), key(b"t", 2): VALUE.pack(1, -1, ZERO_UUID)}, 9)
    assert (held, [store.is_unstable(b"g", b"t", partition) for partition in range(3)]) == (
        [False, True, True],
        [False, False, True],
    )


def test_what_was_frozen_is_still_there_when_the_next_fold_begins() -> None:
    store, value = Store(), VALUE.pack(7, -1, ZERO_UUID)
    store.load(mapped_snapshot({}))
    for topic in (b"t", b"u"):
        store.commit(b"g", {key(topic, 0): value}, 1)
        store.freeze()
    assert store.offsets(b"g") == {key(topic, 0): value for topic in (b"t", b"u")}


def test_a_group_takes_commits_of_nobody_once_it_has_taken_one_and_for_no_other_reason() -> None:
    store, values = Store(), {key(b"t", 0): VALUE.pack(7, -1, ZERO_UUID)}
    store.load(mapped_snapshot({}))
    store.commit(b"g", values, 1)
    store.hold(b"g", (1, 0), [*values.items()], 2)
    assert not store.takes_commits(b"g"), "a member has, a transaction has"
    store.commit(b"g", values, 3, of_nobody=True)
    assert store.takes_commits(b"g")
    store.delete_group(b"g", 4)
    assert not store.takes_commits(b"g")
