"""The mapped snapshot compared with the rows that it was built from."""

import base64
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from offsetlake.kafka.uuid import ZERO_UUID
from support.serve.mapped_snapshots import Key, mapped_snapshot


def text_of(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
keys = st.tuples(names, names, st.integers(0, 2**31 - 1))
columns = st.fixed_dictionaries(
    {
        "committed_offset": st.integers(-(2**63), 2**63 - 1),
        "leader_epoch": st.none() | st.integers(-2, 2**31 - 1),
        "metadata": names,
        "topic_id": st.none() | st.binary(min_size=16, max_size=16).map(text_of),
    }
)


def expected(row: dict[str, Any]) -> tuple[int, int, bytes, bytes]:
    epoch, topic_id = row["leader_epoch"], row["topic_id"]
    return (
        row["committed_offset"],
        -1 if epoch is None else epoch,
        row["metadata"].encode(),
        ZERO_UUID if topic_id is None else base64.urlsafe_b64decode(f"{topic_id}=="),
    )


divisions = st.sampled_from(
    [
        lambda _: 0,
        lambda key: len(key[0]) % 3,  # by group, as log partitions are
        lambda key: key[2] % 3,  # groups in several log partitions: their number was changed
    ]
)


@given(st.dictionaries(keys, columns, max_size=12), st.lists(keys, max_size=4), divisions)
def test_every_row_and_nothing_else_is_found(
    rows: dict[Key, dict[str, Any]], others: list[Key], part_of: Callable[[Key], int]
) -> None:
    snapshot = mapped_snapshot(rows, part_of=part_of)
    assert (len(snapshot), len(snapshot.groups)) == (len(rows), len({group for group, _, _ in rows}))
    for group, topic, partition in [*rows, *others]:
        number = snapshot.group(group.encode())
        entry = snapshot.find(snapshot.run(number, topic.encode()), partition) if number >= 0 else -1
        row = rows.get((group, topic, partition))
        assert (None if entry < 0 else snapshot.entry(entry)) == (None if row is None else expected(row))
    listed = {
        (snapshot.name(number).decode(), topic.decode(), partition): entry
        for number in snapshot.groups
        for topic, partition, entry in snapshot.entries(number)
    }
    assert listed == {key: expected(row) for key, row in rows.items()}
    ids: dict[bytes, set[bytes]] = {}
    for (_, topic, _), row in rows.items():
        ids.setdefault(topic.encode(), set()).add(expected(row)[3])
    assert snapshot.topic_ids() == ids


def test_partitions_are_found_in_complete_runs_and_in_runs_with_gaps() -> None:
    whole = {("g", "whole", partition): {"committed_offset": partition} for partition in range(100)}
    holes = {("g", "holes", partition): {"committed_offset": partition} for partition in (0, 3, 4, 200)}
    snapshot = mapped_snapshot(whole | holes)
    number = snapshot.group(b"g")
    found = {
        topic: [snapshot.find(snapshot.run(number, topic), at) for at in range(-1, 202)]
        for topic in (b"whole", b"holes")
    }
    assert [at for at, entry in enumerate(found[b"whole"], -1) if entry >= 0] == [*range(100)]
    assert [at for at, entry in enumerate(found[b"holes"], -1) if entry >= 0] == [0, 3, 4, 200]
    assert all(snapshot.offsets[entry] == at for at, entry in enumerate(found[b"holes"], -1) if entry >= 0)


def test_groups_keep_their_kind_and_an_entry_takes_less_than_13_bytes() -> None:
    groups = [
        {"group_id": "k", "group_type": "consumer", "state": "Empty", "protocol_type": "consumer"},
        {"group_id": "m", "group_type": "classic", "state": "Empty", "protocol_type": "consumer"},
    ]
    rows = {("g", "t", partition): {"committed_offset": 10**9} for partition in range(10_000)}
    snapshot = mapped_snapshot(rows, groups)
    kinds = {name: snapshot.kind(snapshot.group(name))["group_type"] for name in (b"g", b"k", b"m")}
    assert kinds == {b"g": "classic", b"k": "consumer", b"m": "classic"}
    assert snapshot.size < 13 * len(snapshot)


def test_members_of_streams_groups_are_kept_and_those_of_coordinated_groups_are_not() -> None:
    groups = [
        {"group_id": name, "group_type": name, "state": "Stable", "member_count": 1, "epoch": 7}
        for name in ("classic", "consumer", "streams")
    ]
    members = [{"group_id": group["group_id"], "member_id": "m", "member_epoch": 5} for group in groups]
    snapshot = mapped_snapshot({}, groups, members=members)
    classic, consumer, streams = (
        snapshot.details(snapshot.group(name)) for name in (b"classic", b"consumer", b"streams")
    )
    assert classic == {}
    assert (consumer["epoch"], consumer["members"]) == (7, [])
    assert [(member["member_id"], member["member_epoch"]) for member in streams["members"]] == [("m", 5)]
