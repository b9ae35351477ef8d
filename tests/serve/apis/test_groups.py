"""ListGroups, DescribeGroups and ConsumerGroupDescribe."""

import base64

from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.serve.protocol import api_keys as apis
from support.serve.commands import (
    ABSENT,
    CONSUMER,
    EMPTY,
    EMPTY_CONSUMER,
    OPEN,
    SHARE,
    commit,
    listed,
)
from support.serve.in_process import InProcess


def test_groups_are_listed_by_state_and_type(served: InProcess) -> None:
    everything = listed(served)
    assert {EMPTY, EMPTY_CONSUMER, CONSUMER, SHARE, OPEN} < everything
    assert listed(served, states_filter=["STABLE"]) == {CONSUMER}
    assert listed(served, types_filter=["Consumer"]) == {CONSUMER, EMPTY_CONSUMER}
    assert listed(served, types_filter=["share", "no such"], states_filter=["empty"]) == {SHARE}
    assert listed(served, states_filter=["no such"]) == set()
    commit(served, "new", "t", 0, 1)
    assert listed(served) == everything | {"new"}


def test_groups_are_described_by_their_type(served: InProcess) -> None:
    asked = [EMPTY, OPEN, CONSUMER, SHARE, ABSENT]
    new, old = (
        {group["group_id"]: group for group in served.ask(apis.DESCRIBE_GROUPS, version, groups=asked)["groups"]}
        for version in (6, 5)
    )
    assert {name: (group["error_code"], group["group_state"]) for name, group in new.items()} == {
        EMPTY: (0, "Empty"),
        OPEN: (0, "Empty"),
        CONSUMER: (69, "Dead"),
        SHARE: (69, "Dead"),
        ABSENT: (69, "Dead"),
    }
    assert {group["error_code"] for group in old.values()} == {0}
    assert (new[EMPTY]["protocol_type"], new[OPEN]["protocol_type"]) == ("consumer", "")
    assert new[ABSENT]["error_message"] == f"Group {ABSENT} not found."
    asked = [CONSUMER, EMPTY_CONSUMER, EMPTY, ABSENT]
    groups = served.ask(apis.CONSUMER_GROUP_DESCRIBE, 1, group_ids=asked)["groups"]
    found = [(group["error_code"], group["group_state"], group["group_epoch"]) for group in groups]
    assert found == [(0, "Stable", 1), (0, "Empty", 2), (69, "", 0), (69, "", 0)]
    (member,) = groups[0]["members"]
    assert member["subscribed_topic_names"] == ["orders", "payments"]


def test_assignment_contains_the_names_of_topics_with_known_ids(served: InProcess) -> None:
    live = served.parts.membership.live(CONSUMER.encode())
    assert isinstance(live, ConsumerGroup)
    (member,) = live.members()
    ids = {base64.urlsafe_b64decode(f"{text}=="): sorted(partitions) for text, partitions in member.assigned.items()}
    assert len(ids) == 2
    served.topics.learn({name: (0, id_) for name, id_ in zip((b"orders", b"payments"), ids, strict=True)})
    (group,) = served.ask(apis.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[CONSUMER])["groups"]
    for which in ("assignment", "target_assignment"):
        found = {row["topic_name"]: row["partitions"] for row in group["members"][0][which]["topic_partitions"]}
        assert found == dict(zip(("orders", "payments"), ids.values(), strict=True))


def test_error_message_with_a_long_name_fits_into_a_string(shared: InProcess) -> None:
    """A string of the protocol has at most 32,767 bytes, and a name can be that long."""
    name = "é" * 16_383
    for api, version, field in ((apis.DESCRIBE_GROUPS, 6, "groups"), (apis.CONSUMER_GROUP_DESCRIBE, 0, "group_ids")):
        [group] = shared.ask(api, version, **{field: [name]})["groups"]
        assert (group["group_id"], group["error_code"]) == (name, 69)
        assert len(group["error_message"].encode()) < 2**15
