"""Groups whose newest record may be among missing ones are in no state that an evaluation may decide on."""

import pyarrow as pa

from offsetlake.pipeline.expire.missing_records import with_unknown_states

GROUPS = pa.table(
    {
        "group_id": ["before", "after", "modern", "simple"],
        "group_type": ["classic", "classic", "consumer", "classic"],
        "state": ["Empty"] * 4,
        "log_offset": [9, 10, 11, None],
    }
)


def test_only_whole_states_after_missing_records_are_known() -> None:
    assert with_unknown_states(GROUPS, 10)["state"].to_pylist() == ["Unknown", "Empty", "Unknown", "Unknown"]
    assert with_unknown_states(GROUPS, None) is GROUPS
