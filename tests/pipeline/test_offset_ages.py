"""Counts of expired offsets by units of time, against an evaluation that reads every offset."""

import random
from pathlib import Path

import pytest

from offsetlake.errors import BadRequest
from offsetlake.lake.lake import Lake
from offsetlake.pipeline.expire.offset_ages import HOUR_MS, offset_ages, unit_of
from offsetlake.pipeline.expire.what_if import what_if
from offsetlake.rules.policy import Override, RetentionPolicy
from support.queries.lakes import small_lake

NOW = 1_000 * HOUR_MS
DAY_MS = 24 * HOUR_MS
POLICIES = (
    RetentionPolicy(0),
    RetentionPolicy(7 * DAY_MS),
    RetentionPolicy(3 * DAY_MS, (Override("g1*", "*", HOUR_MS), Override("*", "t1", 30 * DAY_MS))),
    RetentionPolicy(30_000, (Override("g1*", "*", HOUR_MS), Override("g2*", "*", 90 * 60_000))),
    RetentionPolicy(1),
    RetentionPolicy(5 * HOUR_MS, (Override("g?", "t[02]", 0), Override("g*", "t2", 200 * HOUR_MS))),
)


def around(chosen: random.Random) -> int:
    """Return a time near a whole number of hours, at which an error of a millisecond shows."""
    return NOW - chosen.randrange(300) * HOUR_MS + chosen.choice([-1, 0, 1, chosen.randrange(HOUR_MS)])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    chosen = random.Random(3)
    groups = [
        {
            "group_id": f"g{number}",
            "log_partition": number % 3,
            "state": (state := chosen.choice(["Empty", "Stable"])),
            "group_type": chosen.choice(["classic", "consumer", "share"]),
            "protocol_type": chosen.choice([None, "consumer"]),
            "state_timestamp": around(chosen) if state == "Empty" and chosen.random() < 0.7 else None,
            "subscription": chosen.choice(["known", "everything"]) if state == "Stable" else "known",
            "subscribed_topics": [f"t{chosen.randrange(3)}"] if state == "Stable" else [],
            "member_count": int(state == "Stable"),
        }
        for number in range(60)
    ]
    offsets = [
        {
            "group_id": f"g{number}",
            "log_partition": number % 3,
            "topic": f"t{topic}",
            "partition": partition,
            "committed_offset": 5,
            "log_offset": number * 100 + topic * 10 + partition,
            "commit_timestamp": around(chosen),
            "expire_timestamp": around(chosen) + 100 * HOUR_MS if chosen.random() < 0.2 else None,
        }
        for number in range(70)  # ten groups do not exist
        for topic in range(chosen.randrange(4))
        for partition in range(2)
    ]
    pending = [{**offsets[4], "log_offset": 9_999, "producer_id": 7}]
    pending[0].pop("expire_timestamp")
    path = tmp_path_factory.mktemp("ages") / "lake"
    small_lake(path, groups=groups, offsets=offsets, pending_offsets=pending)
    return Lake.open(path)


@pytest.mark.parametrize("policy", POLICIES)
def test_any_policy_expires_as_many_offsets_and_groups_as_an_evaluation(lake: Lake, policy: RetentionPolicy) -> None:
    ages = offset_ages(lake, unit_of(policy))
    for now in (NOW, NOW - 100 * HOUR_MS, NOW + 50 * HOUR_MS):
        expected = what_if(lake, policy, None, now)
        expired = ages.expired(policy, now)
        assert ages.groups["group_id"].to_pylist() == expected["group_id"].to_pylist()
        assert expired.tolist() == expected["now"].to_pylist()
        assert ages.deleted(expired).tolist() == expected["group_goes"].to_pylist()
        assert ages.groups["offsets"].to_pylist() == expected["offsets"].to_pylist()
    assert 0 < sum(expired) < sum(expected["offsets"].to_pylist())


def test_a_retention_that_is_not_a_multiple_of_the_unit_is_refused(lake: Lake) -> None:
    with pytest.raises(BadRequest, match="Invalid retention 90m: what-if needs a multiple of 1h, such as 3d or 36h"):
        offset_ages(lake, HOUR_MS).expired(RetentionPolicy(DAY_MS, (Override("*", "*", 90 * 60_000),)), NOW)


def test_a_lake_without_groups_has_no_ages(tmp_path: Path) -> None:
    small_lake(tmp_path / "lake")
    ages = offset_ages(Lake.open(tmp_path / "lake"), HOUR_MS)
    assert ages.expired(POLICIES[2], NOW).tolist() == []
