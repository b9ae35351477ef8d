"""The memory of share groups, which limits how many of them are accepted."""

import json
import tracemalloc

from offsetlake.coordinator.share import offsets
from offsetlake.coordinator.share.group import ShareGroup
from offsetlake.rules.groups.state import GroupState
from support.coordinator.consumer_groups import GROUP, Host

PARTITIONS = 10_000


def test_the_size_contains_the_share_partitions() -> None:
    host = Host(group=ShareGroup(GROUP))
    topic_id = host.topics.create("t", PARTITIONS)
    offsets.alter(altering := host.step(), host.group, {"t": dict.fromkeys(range(PARTITIONS), 0)}, 1)
    host.run(altering)
    offsets.initialized(step := host.step(), host.group, {topic_id: frozenset(range(PARTITIONS))})
    state = json.dumps(host.group.state.to_dict())
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    loaded = ShareGroup(GROUP, GroupState.from_dict(json.loads(state)))
    memory = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert loaded.size_bytes == host.group.size_bytes
    assert 0.7 < loaded.size_bytes / memory < 2
    for undo in (*reversed(step.undo), *reversed(altering.undo)):
        undo(host.step(), 0)
    assert host.group.size_bytes == 0
