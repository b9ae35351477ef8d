"""Offsets of a group that records which cannot be decoded leave unknown."""

from collections.abc import Collection, Mapping
from typing import NamedTuple


class Doubt(NamedTuple):
    """Which offsets of a group are unknown; keys are `offsetlake.serve.storage.store.key`.

    | Field   | Description |
    |---------|-------------|
    | keys    | The keys whose newest record cannot be decoded, or may be in a batch that cannot be read |
    | others  | Whether a batch that cannot be read may have the only offset of any other key |
    | decided | The keys that were committed or deleted since, so that they are known |
    """

    keys: Collection[bytes]
    others: bool
    decided: Collection[bytes]

    def concerns(self, name: bytes, *, is_stored: bool) -> bool:
        """Return whether the offset of a key is unknown; `is_stored` is whether the key has an offset."""
        return name not in self.decided and (name in self.keys or (self.others and not is_stored))

    def with_keys(self, partitions: Mapping[bytes, list[int]]) -> dict[bytes, list[int]]:
        """Return partitions by topic, with those of the keys that are unknown."""
        added = {topic: [*numbers] for topic, numbers in partitions.items()}
        for name in sorted({*self.keys} - {*self.decided}):
            topic, number = name[:-4], int.from_bytes(name[-4:], signed=True)
            if number not in added.setdefault(topic, []):
                added[topic].append(number)
        return added
