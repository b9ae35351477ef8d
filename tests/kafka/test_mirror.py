"""Offset syncs and checkpoints are decoded, and records that are neither are omitted."""

import struct

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlake.kafka.mirror import CHECKPOINT_PAIR_AT, SYNC_PAIR_AT, checkpoint_key, read_pairs, sync_key
from support.kafka.made_commits import records_of
from support.oracle.encoders import string

NAMES = ["orders", "größe", ""]
OFFSETS = st.integers(0, 2**63 - 1)
SYNCS = st.tuples(st.sampled_from(NAMES), st.integers(0, 2), OFFSETS, OFFSETS)


@settings(deadline=None)  # the first example compiles
@given(st.lists(SYNCS, min_size=1, max_size=20))
def test_pairs_of_wanted_keys_are_read_in_order(syncs: list[tuple[str, int, int, int]]) -> None:
    wanted = [(name, partition) for name in NAMES[:2] for partition in range(2)]
    keys = {key: string(key[0]) + struct.pack(">i", key[1]) for key in {*wanted, *((s[0], s[1]) for s in syncs)}}
    expected = [(wanted.index(s[:2]), *s[2:]) for s in syncs if s[:2] in wanted]
    found = [sync_key(*key) for key in wanted]
    assert found == [keys[key] for key in wanted]
    records = records_of([(keys[name, partition], struct.pack(">qq", up, down)) for name, partition, up, down in syncs])
    pairs = read_pairs(records, pa.array(found, pa.binary()), SYNC_PAIR_AT)
    assert [*zip(*(column.tolist() for column in pairs), strict=True)] == expected
    checkpoints = records_of(
        [
            (string("billing") + keys[name, partition], struct.pack(">hqq", 0, up, down) + string("metadata"))
            for name, partition, up, down in syncs
        ]
    )
    found = [checkpoint_key("billing", *key) for key in wanted]
    pairs = read_pairs(checkpoints, pa.array(found, pa.binary()), CHECKPOINT_PAIR_AT)
    assert [*zip(*(column.tolist() for column in pairs), strict=True)] == expected


def test_records_without_a_pair_are_omitted() -> None:
    key, good = sync_key("orders", 0), struct.pack(">qq", 5, 4)
    values = [None, b"", good[:-1], struct.pack(">qq", -1, 4), struct.pack(">qq", 5, -1), good]
    records = records_of([(b"", good), (key[:-1], good), *((key, value) for value in values)])
    pairs = read_pairs(records, pa.array([key], pa.binary()), SYNC_PAIR_AT)
    assert [column.tolist() for column in pairs] == [[0], [5], [4]]
