"""What `decode_offset_commits` says of records that are no offset commits; they never cost another row."""

import struct
from uuid import UUID

import pytest

from support.kafka.made_commits import KEY, TIME, VALUE, Pair, decode, decode_one
from support.oracle.encoders import offset_value

CUT_KEY = "the offset commit key is truncated or contains a negative length"
CUT_VALUE = "the offset commit value is truncated or malformed"


def reason(key: bytes, value: bytes | None) -> str:
    """The reason of a record between two good ones, which are decoded."""
    rows, bad = decode([(KEY, VALUE), (key, value), (KEY, None)])
    assert [row["log_offset"] for row in rows] == [0, 2]
    assert list(bad) == [1]
    return bad[1]


@pytest.mark.parametrize("size", range(2, len(KEY)))
def test_truncated_key_is_undecodable(size: int) -> None:
    assert reason(KEY[:size], VALUE) == CUT_KEY
    assert reason(KEY[:size], None) == CUT_KEY


@pytest.mark.parametrize("length", [-1, -2, -(2**15), 4, 2**15 - 1])
def test_key_with_wrong_length_is_undecodable(length: int) -> None:
    wrong = struct.pack(">h", length)
    assert reason(b"\0\1" + wrong + b"\0\1t\0\0\0\0", VALUE) == CUT_KEY
    assert reason(b"\0\1\0\1g" + wrong + b"\0\0\0", VALUE) == CUT_KEY


@pytest.mark.parametrize("version", range(5))
def test_truncated_value_is_undecodable(version: int) -> None:
    topic_id = UUID(int=77) if version == 4 else None
    value = offset_value(version, 5, commit_timestamp=TIME, metadata="meta", topic_id=topic_id)
    assert decode_one(KEY, value)["committed_offset"] == 5
    for size in range(1, len(value)):
        assert reason(KEY, value[:size]) == CUT_VALUE


def test_empty_value_is_undecodable() -> None:
    assert reason(KEY, b"") == "the offset commit value is empty; the value of a tombstone is null"


@pytest.mark.parametrize("version", [-1, 5, -(2**15), 2**15 - 1])
@pytest.mark.parametrize("key_type", [0, 1])
def test_unknown_value_version_is_undecodable(version: int, key_type: int) -> None:
    key = struct.pack(">h", key_type) + KEY[2:]
    expected = f"the offset commit value version {version} is unknown: expected 0 to 4"
    assert reason(key, struct.pack(">h", version) + VALUE[2:]) == expected
    assert reason(key, struct.pack(">h", version)) == expected


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_key_of_type_0_requires_value_version_0(version: int) -> None:
    value = offset_value(version, 5, commit_timestamp=TIME)
    assert reason(b"\0\0" + KEY[2:], value) == f"the key has type 0, which requires value version 0, not {version}"


HEAD = struct.pack(">hqi", 4, 7, -1)
TAIL = struct.pack(">q", TIME)


@pytest.mark.parametrize(
    "value",
    [
        HEAD + b"\0" + TAIL + b"\0",  # null metadata: not nullable
        HEAD + b"\x0b" + TAIL + b"\0",
        HEAD + b"\xff" * 9 + b"\x01" + TAIL + b"\0",
        HEAD + b"\xff" * 9 + b"\x7f" + TAIL + b"\0",
        HEAD + b"\x80" * 10 + b"\x01" + TAIL + b"\0",
        HEAD + b"\xff\xff\xff\xff\x07" + TAIL + b"\0",
        HEAD + b"\1" + TAIL + b"\1",
        HEAD + b"\1" + TAIL + b"\1\5",
        HEAD + b"\1" + TAIL + b"\1\5\3xx",
        HEAD + b"\1" + TAIL + b"\1\0\x0f" + bytes(15),  # a topic id of 15 bytes
        HEAD + b"\1" + TAIL + b"\1\0\x11" + bytes(17),
        HEAD + b"\1" + TAIL + b"\1\0\0",
        HEAD + b"\1" + TAIL + b"\1\0\x10" + bytes(15),
        HEAD + b"\1" + TAIL + b"\2\0\x10" + bytes(16),
        HEAD + b"\1" + TAIL + b"\xff" * 9 + b"\x01",
        HEAD + b"\1" + TAIL + b"\xff" * 9 + b"\x01\5\0\6\0\7\0",
        HEAD + b"\1" + TAIL + b"\1\5" + b"\xff" * 9 + b"\x01abc",
        HEAD + b"\1" + TAIL + b"\1\5" + b"\xff" * 8 + b"\x7fabc",
        HEAD + b"\1" + TAIL + b"\1" + b"\x80" * 11 + b"\0\0",
        struct.pack(">hqh", 0, 7, -1) + TAIL,
        struct.pack(">hqh", 2, 7, 32767) + TAIL,
        struct.pack(">hqih", 3, 7, 5, -2) + TAIL,
    ],
)
def test_malformed_value_is_undecodable(value: bytes) -> None:
    assert reason(KEY, value) == CUT_VALUE


NOT_UTF8 = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\xe2\x82", b"\x80", b"\xf0\x80\x80\x80"]


@pytest.mark.parametrize("text", NOT_UTF8)
@pytest.mark.parametrize("field", ["group_id", "topic", "metadata"])
def test_invalid_utf8_affects_only_its_row(text: bytes, field: str) -> None:
    sized = struct.pack(">h", len(text)) + text
    key = b"\0\1" + (sized if field == "group_id" else b"\0\1g") + (sized if field == "topic" else b"\0\1t") + bytes(4)
    metadata = sized if field == "metadata" else b"\0\1m"
    value = struct.pack(">hq", 2, 7) + metadata + TAIL
    assert reason(key, value) == "the group ID, the topic or the metadata is not UTF-8"
    if field != "metadata":
        assert reason(key, None) == "the group ID, the topic or the metadata is not UTF-8"


def test_strings_that_are_utf8_only_side_by_side_are_not() -> None:
    halves = [b"\xe2", b"\x82\xac"]  # of one character, in two rows that stand side by side in a column
    keys = [b"\0\1" + struct.pack(">h", len(half)) + half + b"\0\1t\0\0\0\0" for half in halves]
    rows, bad = decode([(KEY, VALUE), *((key, VALUE) for key in keys), (KEY, VALUE)])
    assert list(bad) == [1, 2]
    assert [row["log_offset"] for row in rows] == [0, 3]


def test_each_bad_record_has_its_own_row_and_reason() -> None:
    cases: list[tuple[Pair, str | None]] = [
        ((KEY, b""), "empty"),
        ((KEY, VALUE), None),
        ((KEY[:5], VALUE), "key is truncated"),
        ((b"\0\1\0\1\xff\0\1t\0\0\0\0", None), "UTF-8"),
        ((KEY, b"\0\x09"), "version 9"),
        ((KEY, None), None),
        ((b"\0\0" + KEY[2:], VALUE), "type 0"),
        ((KEY, VALUE[:-1]), "value is truncated"),
    ]
    rows, bad = decode([pair for pair, _ in cases])
    assert [row["log_offset"] for row in rows] == [at for at, (_, why) in enumerate(cases) if why is None]
    assert sorted(bad) == [at for at, (_, why) in enumerate(cases) if why]
    assert all((why or "") in bad[at] for at, (_, why) in enumerate(cases) if why)
