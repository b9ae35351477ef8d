"""Properties of the replay: it can be interrupted anywhere, ignores log compaction, and never fails."""

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.rules.baseline import kept_group_records
from offsetlake.rules.groups import replay as group_replay
from offsetlake.rules.groups.records import GroupRecord
from offsetlake.rules.groups.state import GroupState
from support.rules.group_records import (
    GROUP,
    PARTITION,
    classic,
    classic_member,
    consumer_member,
    current,
    numbered,
    record,
    replayed,
    share_member,
    streams_current,
    streams_member,
    target,
    tasks,
    topology,
)

MEMBERS = ("m1", "m2", "m3")
TOPICS = ("a", "b", "c")
# Record types of each group type: member, group epoch, target assignment, assignment epoch, current assignment.
KINDS = {"consumer": (5, 3, 7, 6, 8), "share": (10, 11, 13, 12, 14), "streams": (19, 17, 21, 20, 22)}


def stored(state: GroupState | None) -> GroupState | None:
    return None if state is None else GroupState.from_dict(json.loads(json.dumps(state.to_dict())))


def tables(state: GroupState | None, *, with_position: bool = True) -> Any:
    if state is None:
        return None
    position = () if with_position else ("log_offset", "log_timestamp")
    return {name: value for name, value in state.row().items() if name not in position}, state.member_rows()


epochs = st.integers(0, 2)
topic_lists = st.lists(st.sampled_from(TOPICS), max_size=2, unique=True)
numbers = st.lists(st.integers(0, 3), max_size=2, unique=True)
currents = st.builds(
    lambda epoch, partitions, state: current(epoch, *partitions, state=state), epochs, numbers, st.integers(0, 3)
)
streams_currents = st.builds(
    lambda epoch, partitions, state: streams_current(epoch, *partitions, state=state), epochs, numbers, epochs
)
targets = st.builds(lambda partitions: target(*partitions), numbers)
classic_members = st.builds(classic_member, st.sampled_from(MEMBERS), st.none() | topic_lists)
VALUES: dict[int, st.SearchStrategy[dict[str, Any]]] = {
    1: st.just({}),
    2: st.builds(
        lambda protocol_type, members: classic(protocol_type, members=members),
        st.sampled_from(["", "consumer"]),
        st.lists(classic_members),
    ),
    4: st.just({"topics": []}),
    15: st.just({"initializingTopics": [], "initializedTopics": [], "deletingTopics": []}),
    16: st.builds(lambda topics: {"topics": topics, "version": 1, "timestamp": 1}, topic_lists),
    19: st.builds(streams_member),
    21: st.builds(lambda partitions: tasks(*partitions), numbers),
    22: streams_currents,
    23: st.builds(topology, topic_lists, topic_lists),
    **dict.fromkeys((3, 11, 17), st.builds(lambda epoch: {"epoch": epoch}, epochs)),
    **dict.fromkeys((6, 12, 20), st.builds(lambda epoch: {"assignmentEpoch": epoch}, epochs)),
    5: st.builds(lambda topics: consumer_member(*topics), topic_lists),
    10: st.builds(lambda topics: share_member(*topics), topic_lists),
    **dict.fromkeys((7, 13), targets),
    **dict.fromkeys((8, 14), currents),
    **dict.fromkeys((9, 18, 24), st.just({})),
}
PARTS = {5: MEMBERS, 7: MEMBERS, 8: MEMBERS, 10: MEMBERS, 13: MEMBERS, 14: MEMBERS, 16: ("x.*", "y.*")}
PARTS |= dict.fromkeys((19, 21, 22), MEMBERS)


@st.composite
def any_record(draw: st.DrawFn) -> GroupRecord:
    # Mostly consumer groups, because few histories of mixed types have a second step.
    record_type = draw(st.one_of(st.sampled_from([3, 5, 6, 7, 8, 16]), st.sampled_from(sorted(VALUES))))
    part = draw(st.sampled_from(PARTS[record_type])) if record_type in PARTS else None
    return record(record_type, draw(st.none() | VALUES[record_type]), part)


@given(st.lists(any_record(), max_size=20), st.sets(st.integers(0, 20)))
def test_replay_of_any_records_can_be_interrupted_anywhere(records: list[GroupRecord], cuts: set[int]) -> None:
    log, state = numbered(records), None
    for next_record in log:
        state = replayed([next_record], stored(state) if next_record.log_offset in cuts else state)
        tables(state)
    whole = replayed(log)
    assert tables(state) == tables(whole)
    assert (state and state.to_dict()) == (whole and whole.to_dict())


def test_replay_does_not_modify_a_stored_state() -> None:
    parts = [
        (5, consumer_member("a"), "m1"),
        (7, target(1), "m1"),
        (16, {"topics": ["x"], "version": 1, "timestamp": 2}, "x.*"),
    ]
    state = replayed(record(*part) for part in parts)
    dictionary = state.to_dict()
    text = json.dumps(dictionary)
    for copy in (state, GroupState.from_dict(dictionary)):
        replayed([record(record_type, None, part) for record_type, _, part in parts], copy)
        assert json.dumps(dictionary) == text


@dataclass
class Coordinator:
    """A group coordinator with one group, which writes the records that a broker writes.

    Each change is one batch of the log. Changes that are impossible in the current state are ignored. `expected` has
    the properties of the group after each batch.
    """

    batches: list[list[GroupRecord]] = field(default_factory=list)
    expected: list[Any] = field(default_factory=list)
    kind: str | None = None
    members: dict[str, list[str]] = field(default_factory=dict)
    epoch: int = 0
    offsets: set[int] = field(default_factory=set)
    regex: bool = False

    def write(self, *batch: GroupRecord) -> None:
        self.batches.append(list(batch))
        topics = {topic for topics in self.members.values() for topic in topics} | ({"x1"} if self.regex else set())
        self.expected.append((self.kind, self.epoch, sorted(self.members), sorted(topics)))

    def commit(self, number: int) -> None:
        if self.kind == "share":
            return
        self.kind = self.kind or "simple"
        self.offsets.add(number)
        self.write(self.offset(number, {}))

    def offset(self, number: int, value: dict[str, Any] | None) -> GroupRecord:
        commit = record(1, value)
        return commit._replace(key=commit.key | {"topic": "a", "partition": number})

    def sync(self, member: str, topics: list[str]) -> None:
        if self.kind in {None, "simple", "classic"}:
            self.kind, self.epoch = "classic", self.epoch + 1
            self.members[member] = topics
            self.write(self.classic_record())

    def classic_record(self) -> GroupRecord:
        members = [classic_member(name, topics) for name, topics in self.members.items()]
        return record(2, classic("consumer", self.epoch, members=members))

    def join(self, kind: str, member: str, topics: list[str]) -> None:
        if self.members and self.kind != kind:
            return
        batch = [] if self.kind == kind else self.tombstones()
        if self.kind != kind:
            self.kind, self.epoch = kind, 0
        self.epoch += 1
        self.members[member] = topics
        self.write(*batch, self.member_record(member), *self.rebalance())

    def member_record(self, member: str) -> GroupRecord:
        metadata: dict[str, Any] = {
            "consumer": consumer_member(*self.members[member]),
            "share": share_member(*self.members[member]),
            "streams": streams_member(),
        }
        return record(KINDS[str(self.kind)][0], metadata[str(self.kind)], member)

    def rebalance(self) -> list[GroupRecord]:
        """Return the records of a new epoch that all members have reached, and of the topology of a streams group."""
        _, epoch, target_type, assignment_epoch, current_type = KINDS[str(self.kind)]
        streams = self.kind == "streams"
        topics = sorted({topic for topics in self.members.values() for topic in topics})
        value, assigned = (streams_current, tasks) if streams else (current, target)
        return [
            *([record(23, topology(topics))] if streams else []),
            record(epoch, {"epoch": self.epoch}),
            *[record(target_type, assigned(number), name) for number, name in enumerate(self.members)],
            record(assignment_epoch, {"assignmentEpoch": self.epoch}),
            *[record(current_type, value(self.epoch, number), name) for number, name in enumerate(self.members)],
        ]

    def leave(self, member: str) -> None:
        if member not in self.members:
            return
        del self.members[member]
        self.epoch += 1
        if self.kind == "classic":
            self.write(self.classic_record())
            return
        metadata, epoch, target_type, _, current_type = KINDS[str(self.kind)]
        tombstones = [record(record_type, None, member) for record_type in (current_type, target_type, metadata)]
        if self.regex and not self.members:
            self.regex = False
            tombstones.append(record(16, None, "x.*"))
        records = self.rebalance() if self.members else [record(epoch, {"epoch": self.epoch})]
        self.write(*tombstones, *records)

    def resolve(self) -> None:
        if self.kind == "consumer" and self.members:
            self.regex = True
            self.epoch += 1
            self.write(record(16, {"topics": ["x1"], "version": 1, "timestamp": 1}, "x.*"), *self.rebalance())

    def upgrade(self) -> None:
        if self.kind == "classic" and self.members:
            self.kind = "consumer"
            self.epoch += 1
            self.write(record(2, None), *[self.member_record(name) for name in self.members], *self.rebalance())

    def downgrade(self) -> None:
        if self.kind == "consumer" and self.members:
            tombstones = self.tombstones()
            self.kind, self.regex = "classic", False
            self.write(*tombstones, self.classic_record())

    def delete(self) -> None:
        if self.kind is not None and not self.members:
            batch = [self.offset(number, None) for number in sorted(self.offsets)] + self.tombstones()
            self.kind, self.epoch = None, 0
            self.offsets.clear()
            self.write(*batch)

    def tombstones(self) -> list[GroupRecord]:
        if self.kind is None:
            return []
        if self.kind in {"simple", "classic"}:
            return [record(2, None)]
        member, epoch, target_type, assignment_epoch, current_type = KINDS[self.kind]
        return [
            *[record(record_type, None, name) for record_type in (current_type, target_type) for name in self.members],
            record(assignment_epoch, None),
            *[record(member, None, name) for name in self.members],
            *([record(16, None, "x.*")] if self.regex else []),
            *([record(4, None)] if self.kind == "consumer" else []),
            *([record(15, None)] if self.kind == "share" else []),
            record(epoch, None),
            *([record(23, None)] if self.kind == "streams" else []),
        ]


member_ids = st.sampled_from(MEMBERS)
actions = st.one_of(
    st.tuples(st.just("commit"), st.integers(0, 1)),
    st.tuples(st.just("sync"), member_ids, topic_lists),
    st.tuples(st.just("join"), st.sampled_from(sorted(KINDS)), member_ids, topic_lists),
    st.tuples(st.just("leave"), member_ids),
    st.tuples(st.sampled_from(["resolve", "upgrade", "downgrade", "delete"])),
)


@st.composite
def histories(draw: st.DrawFn) -> Coordinator:
    coordinator = Coordinator()
    for name, *arguments in draw(st.lists(actions, min_size=1, max_size=15)):
        getattr(coordinator, name)(*arguments)
    return coordinator


def properties(state: GroupState | None) -> Any:
    """Return the properties of a replayed group that `Coordinator.expected` has."""
    if state is None:
        return None, 0, [], []
    row = state.row()
    if row["protocol_type"] is None:
        return "simple", 0, [], []
    epoch = row["generation"] if row["group_type"] == "classic" else row["epoch"]
    members = [member["member_id"] for member in state.member_rows()]
    assert row["member_count"] == len(members)
    assert row["state"] == ("Stable" if members else "Empty")
    return row["group_type"], epoch, members, row["subscribed_topics"]


@given(histories())
def test_replayed_state_is_that_of_the_coordinator(coordinator: Coordinator) -> None:
    state = None
    for batch, expected in zip(coordinator.batches, coordinator.expected, strict=True):
        state = replayed(batch, state)
        assert properties(state) == expected


def compacted(log: list[GroupRecord], *, drop_tombstones: bool) -> list[GroupRecord]:
    newest = {(entry.record_type, json.dumps(entry.key)): entry.log_offset for entry in log}
    kept = [entry for entry in log if entry.log_offset in newest.values()]
    return [entry for entry in kept if entry.value is not None or not drop_tombstones]


@given(histories(), st.data(), st.booleans())
def test_log_compaction_does_not_change_the_state(
    coordinator: Coordinator, data: st.DataObject, drop_tombstones: bool
) -> None:
    log = numbered(entry for batch in coordinator.batches for entry in batch)
    ends = [sum(map(len, coordinator.batches[:count])) for count in range(len(coordinator.batches) + 1)]
    cleaned = data.draw(st.sampled_from(ends), label="compacted records")
    whole = replayed(log)
    short = replayed([*compacted(log[:cleaned], drop_tombstones=drop_tombstones), *log[cleaned:]])
    # The position of a simple group is that of its first commit, which log compaction may remove.
    with_position = whole is not None and not whole.is_simple()
    assert tables(short, with_position=with_position) == tables(whole, with_position=with_position)


def any_log(coordinator: Coordinator) -> list[GroupRecord]:
    return [entry for batch in coordinator.batches for entry in batch]


@given(st.one_of(histories().map(any_log), st.lists(any_record(), max_size=20)), st.data())
def test_baseline_of_earlier_records_does_not_change_the_state(records: list[GroupRecord], data: st.DataObject) -> None:
    """Of all earlier records, only the baseline and the newest commit remain, the latter only if it is needed."""
    log = numbered(records)
    cut = data.draw(st.integers(0, len(log)), label="dropped records")
    rows = [_row(entry) for entry in log[:cut] if entry.record_type != 1]
    commits = [entry for entry in log if entry.record_type == 1 and entry.value is not None]
    earlier = [entry for entry in commits if entry.log_offset < cut]
    newest = [_commit_row(entry) for entry in earlier[-1:]]
    others = earlier[:1] if data.draw(st.booleans(), label="the first commit is kept") else []
    holding = {GROUP} if others else set[str]()
    kept = kept_group_records(pa.Table.from_pylist(rows, _RECORDS), pa.Table.from_pylist(newest, _COMMITS), holding)
    offsets = {*kept.records["log_offset"].to_pylist()}
    remaining = [entry for entry in log if entry.record_type != 1 and entry.log_offset in {*offsets, *range(cut, 99)}]
    later = [each for each in commits if each.log_offset >= cut or GROUP not in kept.without_commit]
    whole = _replayed([entry for entry in log if entry.record_type != 1], commits[-1:])
    assert tables(_replayed(remaining, (others + later)[-1:])) == tables(whole)
    again = kept_group_records(kept.records, pa.Table.from_pylist(newest, _COMMITS), holding)
    assert again.records.equals(kept.records)


_POSITION = [("log_partition", pa.int32()), ("log_offset", pa.int64()), ("log_timestamp", pa.int64())]
_RECORDS = pa.schema(
    [("group_id", pa.string()), *_POSITION, ("record_type", pa.int32()), ("key", pa.string()), ("value", pa.string())]
)
_COMMITS = pa.schema([("group_id", pa.string()), *_POSITION])


def _commit_row(entry: GroupRecord) -> dict[str, Any]:
    return {"group_id": GROUP, "log_partition": PARTITION, "log_offset": entry.log_offset}


def _row(entry: GroupRecord) -> dict[str, Any]:
    value = None if entry.value is None else json.dumps(entry.value)
    more = {"log_timestamp": entry.log_timestamp, "record_type": entry.record_type, "key": json.dumps(entry.key)}
    return {**_commit_row(entry), **more, "value": value}


def _replayed(records: list[GroupRecord], newest: list[GroupRecord]) -> GroupState | None:
    commit = group_replay.commit_record(_commit_row(newest[0])) if newest else None
    return group_replay.replayed(None, records, commit)
