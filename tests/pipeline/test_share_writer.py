"""Writes about share groups, for start offsets that changed since their plan was made."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from offsetlake.pipeline.emit.results import Written
from offsetlake.pipeline.emit.share_writer import CHANGED, ShareGroupWriter

Partition = tuple[str, int]


class ShareGroup:
    """A share group of a cluster, by start offsets."""

    def __init__(self, offsets: Mapping[Partition, int]) -> None:
        self.offsets = {**offsets}

    def start_offsets(self, _group_id: str) -> dict[Partition, int]:
        return {**self.offsets}

    def delete(self, _group_id: str, topics: Collection[str]) -> dict[str, str | None]:
        self.offsets = {where: start for where, start in self.offsets.items() if where[0] not in topics}
        return dict.fromkeys(topics)


def deleted(group: Any, planned: Mapping[Partition, int]) -> dict[int, str]:
    """Delete share partitions with their planned start offsets; return the reasons of refused writes."""
    rows = [
        {"index": index, "topic": topic, "partition": partition, "kind": "tombstone", "stale": None,
         "expected_offset": start, "committed_offset": None}
        for index, ((topic, partition), start) in enumerate(planned.items())
    ]  # fmt: skip
    written = Written(np.full(len(rows), -1))
    ShareGroupWriter(group, group).write("g", rows, written)
    return written.refused


def test_topic_with_a_start_offset_that_changed_is_not_deleted() -> None:
    group = ShareGroup({("moved", 0): 5, ("moved", 1): 7, ("same", 0): 3})
    refused = deleted(group, {("moved", 0): 4, ("moved", 1): 7, ("same", 0): 3})
    assert refused == {0: "the start offset is 5 now, not 4", 1: CHANGED}
    assert group.offsets == {("moved", 0): 5, ("moved", 1): 7}


def test_topic_with_a_start_offset_that_is_not_planned_is_not_deleted() -> None:
    group = ShareGroup({("grown", 0): 5, ("grown", 1): 7, ("undecided", 0): 3, ("undecided", 1): -1})
    assert deleted(group, {("grown", 0): 5, ("undecided", 0): 3}) == {0: CHANGED}
    assert group.offsets == {("grown", 0): 5, ("grown", 1): 7}
