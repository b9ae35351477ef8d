"""Whether a group had members when an offset was set is decided as by the views, for groups of all types."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from offsetlake.queries.exploring.changes import classified, rows_of
from offsetlake.queries.exploring.keys import Key
from offsetlake.queries.exploring.steps import key_steps
from support.queries.lakes import commit, small_lake

CLASSIC = "GroupMetadata"
VALUES = (
    '{"generation":0,"members":[]}', '{"generation":3,"members":[]}', '{"generation":4,"members":[{"id":"m"}]}', None,
)  # fmt: skip


def record(random: Random, name: str, log_offset: int) -> dict[str, Any]:
    common = {"group_id": "g", "log_offset": log_offset, "log_partition": random.choice([0, 0, 1]), "record_name": name}
    if name == CLASSIC:
        value = random.choice(VALUES)
        return {**common, "kind": "tombstone" if value is None else "value", "value": value}
    member, value = random.choice(["classic", "m1", "m2"]), random.choice(["{}", None])
    return {**common, "kind": "tombstone" if value is None else "value", "member_id": member, "value": value}


@pytest.mark.parametrize(
    "names",
    [
        (CLASSIC,),
        ("ConsumerGroupMemberMetadata",),
        ("StreamsGroupMemberMetadata", "StreamsGroupMetadata"),
        (CLASSIC, "ConsumerGroupMemberMetadata"),
    ],
)
def test_changes_while_a_group_had_no_members_are_those_of_the_view(tmp_path: Path, names: tuple[str, ...]) -> None:
    random = Random(len(names))
    records = [record(random, random.choice(names), offset) for offset in range(0, 200, 2)]
    commits = [commit(offset, offset, log_partition=random.choice([0, 1])) for offset in range(1, 200, 2)]
    random.shuffle(records)
    lake, key = small_lake(tmp_path, offset_commits=commits, group_records=records), Key("g")
    expected = lake.query("SELECT * FROM changes ORDER BY log_partition, log_offset").drop_columns(["producer_id"])
    assert rows_of(key, classified(lake, key, key_steps(lake, key))) == expected.to_pylist()
    assert {"commit", "reset"} <= {row["change"] for row in expected.to_pylist()}
