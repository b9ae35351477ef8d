"""Groups of all types: which of them are coordinated."""

import pytest

from offsetlake.coordinator import groups
from offsetlake.rules.groups.state import GroupState
from support.coordinator.consumer_groups import GROUP, Host


def test_a_streams_group_is_not_loaded_as_a_group_of_another_type() -> None:
    with pytest.raises(ValueError, match=r"has the type streams, which is not coordinated\.$"):
        groups.loaded(Host().step(), GROUP, GroupState(GROUP, "streams", 0, 0, None).to_dict())
