"""Compares the evaluation of retention with a clean-up pass of a coordinator in plain Python, and checks each rule."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.rules.policy import Override, RetentionPolicy
from offsetlake.rules.retention import (
    CLOCKS,
    NEVER,
    RULES,
    Evaluations,
    GroupFacts,
    Rule,
    evaluate,
    groups_left_with_nothing,
    share_groups_idle_since,
)
from support.oracle.expiry import Group, Key, Offset, ShareGroup, Tombstones, cleanup_pass, idle_share_groups

DAY = 86_400_000
NOW = 100 * DAY
NAMES, TOPICS = ("billing-1", "billing-2", "fraud"), ("orders", "orders.eu", "payments")
POLICY = RetentionPolicy(7 * DAY, (Override("billing-*", "orders*", 30 * DAY), Override("fraud", "*", 0)))
AS_LIST = [("billing-*", "orders*", 30 * DAY), ("fraud", "*", 0), ("*", "*", 7 * DAY)]

OFFSETS_SCHEMA = pa.schema(
    [
        ("group_id", pa.string()), ("topic", pa.string()), ("partition", pa.int32()),
        ("commit_timestamp", pa.int64()), ("expire_timestamp", pa.int64()),
    ]
)  # fmt: skip
GROUPS_SCHEMA = pa.schema(
    [
        ("group_id", pa.string()), ("group_type", pa.string()), ("state", pa.string()), ("protocol_type", pa.string()),
        ("state_timestamp", pa.int64()), ("subscription", pa.string()), ("subscribed_topics", pa.list_(pa.string())),
    ]
)  # fmt: skip


def groups_of(groups: Mapping[str, Group]) -> GroupFacts:
    """Return the rows of the table `groups`."""
    rows = []
    for name, group in groups.items():
        simple = group.group_type == "classic" and group.protocol_type is None
        other = group.group_type == "classic" and group.protocol_type not in (None, "consumer")
        subscription = "everything" if group.any_topic or group.members_topics is None else "known"
        rows.append(
            {
                "group_id": name,
                "group_type": group.group_type,
                "state": group.state,
                "protocol_type": group.protocol_type,
                "state_timestamp": group.state_timestamp,
                "subscription": "none" if simple else "unknown" if other else subscription,
                "subscribed_topics": [] if simple or other else sorted(group.members_topics or ()),
            }
        )
    return GroupFacts(pa.Table.from_pylist(rows, schema=GROUPS_SCHEMA))


def offsets_of(offsets: Mapping[str, Mapping[Key, Offset]]) -> pa.Table:
    rows = [
        {"group_id": name, "topic": topic, "partition": partition, **vars(offset)}
        for name, group_offsets in offsets.items()
        for (topic, partition), offset in group_offsets.items()
    ]
    return pa.Table.from_pylist(rows, schema=OFFSETS_SCHEMA)


def keys(pending: set[tuple[str, str, int]]) -> pa.Table:
    rows = [dict(zip(("group_id", "topic", "partition"), key, strict=True)) for key in sorted(pending)]
    return pa.Table.from_pylist(rows, schema=pa.schema(list(OFFSETS_SCHEMA)[:3]))


def evaluated(
    groups: Mapping[str, Group],
    offsets: Mapping[str, Mapping[Key, Offset]],
    pending: set[tuple[str, str, int]] | None = None,
    now: int = NOW,
    policy: RetentionPolicy = POLICY,
) -> tuple[Evaluations, Tombstones]:
    rows, facts, pending_keys = offsets_of(offsets), groups_of(groups), keys(pending or set())
    results = evaluate(rows, facts, pending_keys, now, policy.retention(rows))
    count = len(groups)
    stored = np.bincount(results.group, minlength=count + 1)[:count]
    expired = np.bincount(results.group[results.expires], minlength=count + 1)[:count]
    deleted = groups_left_with_nothing(facts, stored, expired, pending_keys)
    tombstones = rows.filter(pa.array(results.expires)).select(["group_id", "topic", "partition"])
    return results, Tombstones(
        {tuple(row.values()) for row in tombstones.to_pylist()},
        {name for name, is_deleted in zip(groups, deleted, strict=True) if is_deleted},
    )


def rule(group: Group | None, offset: Offset, **more: object) -> str:
    """Return the rule for one offset of topic orders of group fraud, under the default retention."""
    pending = {("fraud", "orders", 0)} if more.pop("pending", False) else set()
    groups = {} if group is None else {"fraud": group}
    results, _ = evaluated(groups, {"fraud": {("orders", 0): offset}}, pending, policy=RetentionPolicy(7 * DAY))
    return RULES[results.rule[0]]


instants = st.sampled_from([NOW - 40 * DAY, NOW - 30 * DAY, NOW - 30 * DAY + 1, NOW - 7 * DAY, NOW - 7 * DAY + 1, NOW])
topics = st.frozensets(st.sampled_from(TOPICS))
classic = st.builds(
    Group,
    st.just("classic"),
    st.sampled_from(["Empty", "Stable", "PreparingRebalance", "CompletingRebalance"]),
    st.sampled_from(["consumer", "connect"]),
    st.none() | instants,
    st.none() | topics,
)
empty = st.builds(Group, st.just("classic"), st.just("Empty"), st.just("consumer"), st.none() | instants)
simple = st.builds(Group, st.just("classic"), st.sampled_from(["Empty", "Stable"]))
modern = st.builds(
    Group,
    st.sampled_from(["consumer", "share", "streams"]),
    st.sampled_from(["Empty", "Stable", "Reconciling"]),
    st.just("consumer"),
    members_topics=topics,
    any_topic=st.booleans(),
)
any_group = classic | empty | simple | modern
any_offset = st.builds(Offset, instants, st.none() | st.sampled_from([NOW - 1, NOW, NOW + 1]))
any_key = st.tuples(st.sampled_from(TOPICS), st.integers(0, 2))


@given(
    groups=st.dictionaries(st.sampled_from(NAMES), any_group, min_size=1),
    offsets=st.dictionaries(st.sampled_from(NAMES), st.dictionaries(any_key, any_offset, max_size=5)),
    pending=st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(TOPICS), st.integers(0, 2)), max_size=3),
)
def test_tombstones_are_those_of_a_coordinator(
    groups: dict[str, Group], offsets: dict[str, dict[Key, Offset]], pending: set[tuple[str, str, int]]
) -> None:
    results, written = evaluated(groups, offsets, pending)
    assert written == cleanup_pass(groups, offsets, pending, NOW, AS_LIST)
    assert (results.rule[results.group == len(groups)] == Rule.NO_GROUP).all()


@given(
    group=any_group,
    offsets=st.dictionaries(any_key, any_offset, min_size=1, max_size=5),
)
def test_offset_expires_at_expires_at_and_not_before(group: Group, offsets: dict[Key, Offset]) -> None:
    results, _ = evaluated({"fraud": group}, {"fraud": offsets})
    for (key, offset), instant in zip(offsets.items(), results.expires_at.tolist(), strict=True):
        only = {"fraud": {key: offset}}
        if instant == NEVER:
            assert not evaluated({"fraud": group}, only, now=NOW + 1000 * DAY)[1].offsets
        else:
            assert evaluated({"fraud": group}, only, now=instant)[1].offsets
            assert not evaluated({"fraud": group}, only, now=instant - 1)[1].offsets


OLD, RECENT = Offset(NOW - 8 * DAY), Offset(NOW - DAY)


def test_empty_classic_group_expires_by_its_state_timestamp_despite_a_recent_commit() -> None:
    assert rule(Group("classic", "Empty", "consumer", NOW - 7 * DAY), RECENT) == "group_empty"
    assert rule(Group("classic", "Empty", "consumer", NOW - 7 * DAY + 1), OLD) == "within_retention"
    assert rule(Group("classic", "Empty", "consumer", None), OLD) == "commit_age"  # group value of version 0 or 1


def test_consumer_group_expires_by_commit_timestamp() -> None:
    stable = Group("consumer", "Stable", "consumer", members_topics={"orders"})
    assert rule(stable, OLD) == "subscribed"
    assert rule(Group("consumer", "Empty", "consumer"), OLD) == "commit_age"
    assert rule(Group("consumer", "Stable", "consumer", members_topics={"payments"}), OLD) == "unsubscribed"


def test_offset_with_a_pending_transaction_is_kept() -> None:
    assert rule(Group("classic", "Empty"), OLD, pending=True) == "pending_transaction"
    groups, offsets = {"fraud": Group("classic", "Empty")}, {"fraud": {("orders", 0): OLD, ("orders", 1): OLD}}
    _, written = evaluated(groups, offsets, {("fraud", "orders", 0)})
    assert written == Tombstones({("fraud", "orders", 1)}, set())


def test_explicit_retention_of_an_old_client_applies_unless_subscribed_or_active() -> None:
    due, later = Offset(NOW, NOW), Offset(NOW - 90 * DAY, NOW + 1)
    assert rule(Group("classic", "Empty", "consumer", NOW), due) == "explicit"
    assert rule(Group("classic", "Empty", "consumer", NOW - 90 * DAY), later) == "within_retention"
    subscribed = Group("classic", "Stable", "consumer", NOW, {"orders"})
    assert rule(subscribed, due) == "subscribed"
    assert rule(Group("classic", "PreparingRebalance", "consumer", NOW, {"orders"}), due) == "active_group"


def test_stable_classic_group_expires_only_topics_it_is_not_subscribed_to() -> None:
    assert rule(Group("classic", "Stable", "consumer", NOW, {"payments"}), OLD) == "unsubscribed"
    assert rule(Group("classic", "Stable", "consumer", NOW, {"orders"}), OLD) == "subscribed"
    assert rule(Group("classic", "Stable", "consumer", NOW, None), OLD) == "active_group"
    assert rule(Group("classic", "Stable", "connect", NOW), OLD) == "active_group"


def test_offsets_of_share_groups_are_kept() -> None:
    assert rule(Group("share", "Empty", "share"), OLD) == "share_group"
    assert evaluated({"s": Group("share", "Empty", "share")}, {})[1] == Tombstones()


def test_offset_without_a_group_is_kept() -> None:
    assert rule(None, OLD) == "no_group"


def test_empty_group_without_offsets_is_deleted_at_any_age() -> None:
    groups = {"fraud": Group("classic", "Empty", "consumer", NOW), "billing-1": Group("consumer", "Stable", "consumer")}
    assert evaluated(groups, {})[1] == Tombstones(set(), {"fraud"})
    assert evaluated(groups, {}, {("fraud", "orders", 0)})[1] == Tombstones()


def test_offset_of_a_deleted_topic_expires_despite_other_rules() -> None:
    groups = groups_of({"fraud": Group("consumer", "Stable", "consumer", members_topics={"orders"})})
    rows = offsets_of({"fraud": {("orders", 0): RECENT, ("payments", 0): OLD}})
    results = evaluate(rows, groups, keys({("fraud", "orders", 0)}), NOW, POLICY.retention(rows), ["orders"])
    assert [RULES[number] for number in results.rule] == ["topic_deleted", "unsubscribed"]
    assert results.expires_at.tolist()[0] == NOW


def test_clock_and_its_value_are_returned() -> None:
    groups = {"a": Group("classic", "Empty", "consumer", NOW - DAY), "b": Group("classic", "Empty")}
    offsets = {"a": {("t", 0): OLD, ("t", 1): Offset(NOW - 3, NOW - 2)}, "b": {("t", 0): OLD}}
    results, _ = evaluated(groups, offsets)
    assert [CLOCKS[clock] for clock in results.clock] == ["state_timestamp", "expire_timestamp", "commit_timestamp"]
    assert results.clock_ms.tolist() == [NOW - DAY, NOW - 2, OLD.commit_timestamp]


def test_retention_beyond_the_largest_timestamp_does_not_overflow() -> None:
    assert rule(Group("classic", "Empty"), Offset(NEVER - 1)) == "within_retention"


def test_first_matching_override_applies() -> None:
    policy = RetentionPolicy(1, (Override("a*", "t?", 2), Override("a[bc]", "*", 3), Override("*", "x", 4)))
    pairs = [("a", "t1"), ("ab", "t1"), ("ab", "t"), ("ad", "x"), ("é", "y")]
    rows = pa.table({"group_id": [group for group, _ in pairs], "topic": [topic for _, topic in pairs]})
    assert policy.retention(rows).tolist() == [2, 2, 3, 4, 1]


TIMES = st.none() | st.integers(0, 20)
SHARE_GROUPS = st.builds(
    ShareGroup,
    st.sampled_from(["share", "share", "consumer", "classic"]),
    st.sampled_from(["Empty", "Empty", "Stable"]),
    TIMES,
    st.lists(TIMES, max_size=3),
)


def idle_since(
    groups: Mapping[str, ShareGroup], stored: list[int] | None = None, pending: pa.Table | None = None
) -> dict[str, int]:
    facts = groups_of({name: Group(group.group_type, group.state, group.group_type) for name, group in groups.items()})
    facts.rows = facts.rows.append_column(
        "log_timestamp", pa.array([group.changed for group in groups.values()], pa.int64())
    )
    newest = {
        name: None if None in group.updated else max(at for at in group.updated if at is not None)
        for name, group in groups.items()
        if group.updated
    }
    updates = pa.table(
        {"group_id": pa.array([*newest], pa.string()), "updated_timestamp": pa.array([*newest.values()], pa.int64())}
    )
    counts = np.array(stored or [0] * len(groups), np.int64)
    since = share_groups_idle_since(facts, updates, counts, keys(set()) if pending is None else pending)
    return dict(zip(groups, since.tolist(), strict=True))


@given(groups=st.dictionaries(st.sampled_from("abcdef"), SHARE_GROUPS), idle=st.integers(0, 20), now=st.integers(0, 40))
def test_idle_share_groups_are_those_of_the_oracle(groups: dict[str, ShareGroup], idle: int, now: int) -> None:
    found = {name for name, since in idle_since(groups).items() if since <= now - idle}
    assert found == idle_share_groups(groups, now, idle)


def test_share_group_with_offsets_or_pending_offsets_is_kept() -> None:
    groups = {"fraud": ShareGroup("share", "Empty", 7)}
    assert idle_since(groups) == {"fraud": 7}
    assert idle_since(groups, [1]) == idle_since(groups, pending=keys({("fraud", "orders", 0)})) == {"fraud": NEVER}
