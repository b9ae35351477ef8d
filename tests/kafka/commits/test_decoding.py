"""`decode_offset_commits` against keys and values built by hand, and against the oracle's decoder."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from offsetlake.kafka.batches.reader import read_batches
from offsetlake.kafka.commits.decoding import RECORD_TYPES, decode_offset_commits
from support.kafka.golden import COMMITTED_AT, TOPIC_ID, golden_keys, golden_values
from support.kafka.made_commits import (
    COMMITS,
    KEY,
    TIME,
    TOMBSTONE,
    VALUE,
    Commit,
    Pair,
    decode,
    decode_one,
    encode,
    row_of,
)
from support.oracle.encoders import offset_key, offset_value
from support.oracle.log_reader import OFFSETS_TOPIC, LogRecord
from support.oracle.random_logs import random_log
from support.oracle.replay import UndecodableError, decode_offset_record


@settings(deadline=None)
@given(commits=st.lists(st.tuples(COMMITS, st.booleans()), max_size=12))
def test_commits_and_tombstones_are_decoded(commits: list[tuple[Commit, bool]]) -> None:
    pairs = [(key, None if dead else value) for commit, dead in commits for key, value in [encode(commit)]]
    expected = [row_of(commit, i) | (TOMBSTONE if dead else {}) for i, (commit, dead) in enumerate(commits)]
    assert decode(pairs) == (expected, {})


@pytest.mark.parametrize("version", range(5))
def test_longest_strings_are_decoded(version: int) -> None:
    group_id, topic, metadata = "g" * 32767, "é" * 16383, "m" * (32767 if version < 4 else 200_000)
    value = offset_value(version, 1, commit_timestamp=TIME, metadata=metadata)
    row = decode_one(offset_key(group_id, topic, 2**31 - 1), value)
    assert (row["group_id"], row["topic"], row["metadata"]) == (group_id, topic, metadata)


def test_golden_values() -> None:
    keys, values = golden_keys(), golden_values()
    plain = {"committed_offset": 42, "metadata": "md", "commit_timestamp": COMMITTED_AT, "leader_epoch": None}
    plain |= {"group_id": "g1", "topic": "tp", "partition": 7, "expire_timestamp": None, "topic_id": None}
    for name, expected in {
        "LegacyOffsetCommitValue v0": plain | {"record_type": 0},
        "OffsetCommitValue v0": plain,
        "OffsetCommitValue v1": plain | {"expire_timestamp": 1_700_000_600_000},
        "OffsetCommitValue v2": plain,
        "OffsetCommitValue v3": plain | {"leader_epoch": 5},
        "OffsetCommitValue v4": plain | {"leader_epoch": 5, "topic_id": TOPIC_ID},
        "OffsetCommitValue v4 noTopicId,emptyMeta": plain | {"metadata": ""},
    }.items():
        row = decode_one(keys[f"{name.partition('Value')[0]}Key"], values[name])
        assert row.items() >= ({"record_type": 1, "value_version": int(name.split()[1][1:])} | expected).items()


def test_producers_and_missing_timestamps() -> None:
    row = decode_one(KEY, VALUE, producer_id=0, producer_epoch=3, is_transactional=True)
    assert (row["producer_id"], row["producer_epoch"]) == (0, 3)
    row = decode_one(KEY, None, producer_id=-1, producer_epoch=9)
    assert (row["producer_id"], row["producer_epoch"]) == (None, None)
    assert decode_one(KEY, VALUE, magic=0)["log_timestamp"] is None
    assert decode_one(KEY, VALUE, append_timestamp=-1)["log_timestamp"] is None


def test_no_records_yield_no_rows() -> None:
    assert decode_offset_commits(read_batches(b"")[0])[0].to_pylist() == []


# --- against the oracle ---


def agrees_with_the_oracle(pairs: Sequence[Pair]) -> int:
    """Decodes as the oracle, but for text that is no UTF-8, which Kafka replaces; gives the number of bad rows."""
    rows, bad = decode(pairs)
    by_offset = {row["log_offset"]: row for row in rows}
    assert by_offset.keys() | bad.keys() == set(range(len(pairs)))
    assert not by_offset.keys() & bad.keys()
    for at, (key, value) in enumerate(pairs):
        record = LogRecord(OFFSETS_TOPIC, 0, at, TIME + at, -1, -1, False, None, key, value)
        try:
            entry = decode_offset_record(record)
        except (UndecodableError, ValueError):  # the oracle reads a varint of any length, but cannot print it
            assert at in bad
            continue
        if at in bad:
            assert bad[at] == "the group ID, the topic or the metadata is not UTF-8"
            continue
        assert entry is not None
        row = by_offset[at]
        assert (row["group_id"], row["topic"], row["partition"]) == entry.key
        assert (row["kind"], row["value_version"], row["record_type"]) == (
            entry.kind,
            entry.value_version,
            entry.key_type,
        )
        if entry.commit is not None:
            assert {name: row[name] for name in entry.commit._fields if name in TOMBSTONE} == {
                name: each for name, each in entry.commit._asdict().items() if name in TOMBSTONE
            }
    return len(bad)


def mutated(pair: Pair, changes: list[tuple[bool, int, bytes]]) -> Pair:
    key, value = pair
    for in_key, at, new in changes:
        if in_key:
            place = 2 + at % (len(key) - 1)
            key = key[:place] + new + key[place + 1 :]
        elif value is not None:
            place = at % (len(value) + 1)
            value = value[:place] + new + value[place + 1 :]
    return key, value


CHANGES = st.lists(st.tuples(st.booleans(), st.integers(0, 80), st.binary(max_size=2)), max_size=2)


@pytest.mark.long
@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(made=st.lists(st.tuples(COMMITS, CHANGES), min_size=1, max_size=10))
def test_changed_bytes_are_decoded_as_the_oracle_does(made: list[tuple[Commit, list[tuple[bool, int, bytes]]]]) -> None:
    agrees_with_the_oracle([mutated(encode(commit), changes) for commit, changes in made])


@settings(deadline=None)
@given(pairs=st.lists(st.tuples(st.binary(max_size=20), st.none() | st.binary(max_size=40)), max_size=5))
@example(pairs=[(b"", b"")])
def test_arbitrary_bytes_are_decoded_as_the_oracle_does(pairs: list[Pair]) -> None:
    agrees_with_the_oracle([(b"\0\1" + key, value) for key, value in pairs])


def test_large_random_log_with_changed_bytes() -> None:
    rng = random.Random(11)
    records = random_log(rng, 3000, log_partitions=1).records()
    pairs = [
        (r.key, r.value) for r in records if r.key and int.from_bytes(r.key[:2]) in RECORD_TYPES and not r.is_control
    ]
    changed = [
        mutated(pair, [(rng.random() < 0.3, rng.randrange(60), rng.randbytes(rng.randrange(2)))])
        if rng.random() < 0.5
        else pair
        for pair in pairs
    ]
    assert 100 < agrees_with_the_oracle(changed) < len(pairs) / 2
