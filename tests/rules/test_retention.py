"""Retention judges as a coordinator's cleanup pass does: against a pass in plain Python, and fact by fact."""

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
    GroupFacts,
    Verdicts,
    groups_left_with_nothing,
    verdicts,
)
from support.oracle.expiry import Group, Key, Offset, Tombstones, cleanup_pass

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
    """As the table `groups` has them."""
    rows = []
    for name, group in groups.items():
        simple = group.group_type == "classic" and group.protocol_type is None
        other = group.group_type == "classic" and group.protocol_type not in (None, "consumer")
        told = "everything" if group.any_topic or group.members_topics is None else "known"
        rows.append(
            {
                "group_id": name,
                "group_type": group.group_type,
                "state": group.state,
                "protocol_type": group.protocol_type,
                "state_timestamp": group.state_timestamp,
                "subscription": "none" if simple else "unknown" if other else told,
                "subscribed_topics": [] if simple or other else sorted(group.members_topics or ()),
            }
        )
    return GroupFacts(pa.Table.from_pylist(rows, schema=GROUPS_SCHEMA))


def offsets_of(offsets: Mapping[str, Mapping[Key, Offset]]) -> pa.Table:
    rows = [
        {"group_id": name, "topic": topic, "partition": partition, **vars(offset)}
        for name, of_group in offsets.items()
        for (topic, partition), offset in of_group.items()
    ]
    return pa.Table.from_pylist(rows, schema=OFFSETS_SCHEMA)


def keys(pending: set[tuple[str, str, int]]) -> pa.Table:
    rows = [dict(zip(("group_id", "topic", "partition"), key, strict=True)) for key in sorted(pending)]
    return pa.Table.from_pylist(rows, schema=pa.schema(list(OFFSETS_SCHEMA)[:3]))


def judge(
    groups: Mapping[str, Group],
    offsets: Mapping[str, Mapping[Key, Offset]],
    pending: set[tuple[str, str, int]] | None = None,
    now: int = NOW,
    policy: RetentionPolicy = POLICY,
) -> tuple[Verdicts, Tombstones]:
    rows, known, held = offsets_of(offsets), groups_of(groups), keys(pending or set())
    found = verdicts(rows, known, held, now, policy.retention(rows))
    count = len(groups)
    stored = np.bincount(found.group, minlength=count + 1)[:count]
    expired = np.bincount(found.group[found.expires], minlength=count + 1)[:count]
    goes = groups_left_with_nothing(known, stored, expired, held)
    going = rows.filter(pa.array(found.expires)).select(["group_id", "topic", "partition"])
    return found, Tombstones(
        {tuple(row.values()) for row in going.to_pylist()},
        {name for name, gone in zip(groups, goes, strict=True) if gone},
    )


def rule(group: Group | None, offset: Offset, **more: object) -> str:
    """Rule for one offset of topic orders of group fraud, under the default policy."""
    held = {("fraud", "orders", 0)} if more.pop("pending", False) else set()
    groups = {} if group is None else {"fraud": group}
    found, _ = judge(groups, {"fraud": {("orders", 0): offset}}, held, policy=RetentionPolicy(7 * DAY))
    return RULES[found.rule[0]]


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
def test_a_pass_of_a_coordinator_says_the_same(
    groups: dict[str, Group], offsets: dict[str, dict[Key, Offset]], pending: set[tuple[str, str, int]]
) -> None:
    found, written = judge(groups, offsets, pending)
    assert written == cleanup_pass(groups, offsets, pending, NOW, AS_LIST)
    assert (found.rule[found.group == len(groups)] == RULES.index("no_group")).all()


@given(
    group=any_group,
    offsets=st.dictionaries(any_key, any_offset, min_size=1, max_size=5),
)
def test_expires_at_is_when_it_would_go_if_nothing_else_happened(group: Group, offsets: dict[Key, Offset]) -> None:
    found, _ = judge({"fraud": group}, {"fraud": offsets})
    for (key, offset), instant in zip(offsets.items(), found.expires_at.tolist(), strict=True):
        only = {"fraud": {key: offset}}
        if instant == NEVER:
            assert not judge({"fraud": group}, only, now=NOW + 1000 * DAY)[1].offsets
        else:
            assert judge({"fraud": group}, only, now=instant)[1].offsets
            assert not judge({"fraud": group}, only, now=instant - 1)[1].offsets


OLD, FRESH = Offset(NOW - 8 * DAY), Offset(NOW - DAY)


def test_a_fresh_commit_does_not_help_an_empty_classic_group() -> None:
    assert rule(Group("classic", "Empty", "consumer", NOW - 7 * DAY), FRESH) == "group_empty"
    assert rule(Group("classic", "Empty", "consumer", NOW - 7 * DAY + 1), OLD) == "within_retention"
    assert rule(Group("classic", "Empty", "consumer", None), OLD) == "commit_age"  # group value older than version 2


def test_a_consumer_group_has_no_clock_of_its_own() -> None:
    stable = Group("consumer", "Stable", "consumer", members_topics={"orders"})
    assert rule(stable, OLD) == "subscribed"
    assert rule(Group("consumer", "Empty", "consumer"), OLD) == "commit_age"
    assert rule(Group("consumer", "Stable", "consumer", members_topics={"payments"}), OLD) == "unsubscribed"


def test_a_pending_transaction_protects_its_partition() -> None:
    assert rule(Group("classic", "Empty"), OLD, pending=True) == "pending_transaction"
    groups, offsets = {"fraud": Group("classic", "Empty")}, {"fraud": {("orders", 0): OLD, ("orders", 1): OLD}}
    _, written = judge(groups, offsets, {("fraud", "orders", 0)})
    assert written == Tombstones({("fraud", "orders", 1)}, set())


def test_explicit_retention_of_an_old_client() -> None:
    due, later = Offset(NOW, NOW), Offset(NOW - 90 * DAY, NOW + 1)
    assert rule(Group("classic", "Empty", "consumer", NOW), due) == "explicit"
    assert rule(Group("classic", "Empty", "consumer", NOW - 90 * DAY), later) == "within_retention"
    subscribed = Group("classic", "Stable", "consumer", NOW, {"orders"})
    assert rule(subscribed, due) == "subscribed"
    assert rule(Group("classic", "PreparingRebalance", "consumer", NOW, {"orders"}), due) == "active_group"


def test_stable_classic_groups_lose_only_topics_they_are_not_subscribed_to() -> None:
    assert rule(Group("classic", "Stable", "consumer", NOW, {"payments"}), OLD) == "unsubscribed"
    assert rule(Group("classic", "Stable", "consumer", NOW, {"orders"}), OLD) == "subscribed"
    assert rule(Group("classic", "Stable", "consumer", NOW, None), OLD) == "active_group"
    assert rule(Group("classic", "Stable", "connect", NOW), OLD) == "active_group"


def test_share_groups_are_never_asked() -> None:
    assert rule(Group("share", "Empty", "share"), OLD) == "share_group"
    assert judge({"s": Group("share", "Empty", "share")}, {})[1] == Tombstones()


def test_an_offset_behind_the_tombstone_of_its_group_stays() -> None:
    assert rule(None, OLD) == "no_group"


def test_an_empty_group_without_offsets_goes_whatever_its_age() -> None:
    groups = {"fraud": Group("classic", "Empty", "consumer", NOW), "billing-1": Group("consumer", "Stable", "consumer")}
    assert judge(groups, {})[1] == Tombstones(set(), {"fraud"})
    assert judge(groups, {}, {("fraud", "orders", 0)})[1] == Tombstones()


def test_offsets_of_deleted_topics_go_whatever_protects_them() -> None:
    groups = groups_of({"fraud": Group("consumer", "Stable", "consumer", members_topics={"orders"})})
    rows = offsets_of({"fraud": {("orders", 0): FRESH, ("payments", 0): OLD}})
    found = verdicts(rows, groups, keys({("fraud", "orders", 0)}), NOW, POLICY.retention(rows), ["orders"])
    assert [RULES[number] for number in found.rule] == ["topic_deleted", "unsubscribed"]
    assert found.expires_at.tolist()[0] == NOW


def test_the_evidence_names_the_clock_that_counts() -> None:
    groups = {"a": Group("classic", "Empty", "consumer", NOW - DAY), "b": Group("classic", "Empty")}
    offsets = {"a": {("t", 0): OLD, ("t", 1): Offset(NOW - 3, NOW - 2)}, "b": {("t", 0): OLD}}
    found, _ = judge(groups, offsets)
    assert [CLOCKS[clock] for clock in found.clock] == ["state_timestamp", "expire_timestamp", "commit_timestamp"]
    assert found.clock_ms.tolist() == [NOW - DAY, NOW - 2, OLD.commit_timestamp]


def test_a_time_beyond_all_times_is_not_over() -> None:
    assert rule(Group("classic", "Empty"), Offset(NEVER - 1)) == "within_retention"


def test_the_first_override_that_fits_holds() -> None:
    policy = RetentionPolicy(1, (Override("a*", "t?", 2), Override("a[bc]", "*", 3), Override("*", "x", 4)))
    pairs = [("a", "t1"), ("ab", "t1"), ("ab", "t"), ("ad", "x"), ("é", "y")]
    rows = pa.table({"group_id": [group for group, _ in pairs], "topic": [topic for _, topic in pairs]})
    assert policy.retention(rows).tolist() == [2, 2, 3, 4, 1]
