import base64
import struct

from hypothesis import given
from hypothesis import strategies as st

from offsetlake.kafka.records.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

NAMES = st.text(alphabet="aé😀", max_size=5)
VERSIONS = st.integers(0, 3)
USER_DATA = st.none() | st.binary(max_size=5)
PARTITIONS = st.lists(st.tuples(NAMES, st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3)), max_size=3)


def text(value: str | None) -> bytes:
    data = b"" if value is None else value.encode()
    return struct.pack(">h", -1 if value is None else len(data)) + data


def blob(value: bytes | None) -> bytes:
    return struct.pack(">i", -1 if value is None else len(value)) + (value or b"")


def partitions(topics: list[tuple[str, list[int]]]) -> bytes:
    entries = [text(name) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers) for name, numbers in topics]
    return struct.pack(">i", len(entries)) + b"".join(entries)


@st.composite
def subscriptions(draw: st.DrawFn) -> bytes:
    version = draw(VERSIONS)
    topics = draw(st.lists(NAMES, max_size=3))
    parts = [struct.pack(">hi", version, len(topics)), *map(text, topics), blob(draw(USER_DATA))]
    if version >= 1:
        parts.append(partitions(draw(PARTITIONS)))
    if version >= 2:
        parts.append(struct.pack(">i", draw(st.integers(-1, 2**31 - 1))))
    if version >= 3:
        parts.append(text(draw(st.none() | NAMES)))
    return b"".join(parts)


@st.composite
def assignments(draw: st.DrawFn) -> bytes:
    return struct.pack(">h", draw(VERSIONS)) + partitions(draw(PARTITIONS)) + blob(draw(USER_DATA))


@given(data=subscriptions(), rest=st.binary(max_size=2))
def test_a_decoded_subscription_is_encoded_to_the_same_bytes(data: bytes, rest: bytes) -> None:
    value, complete = decode_subscription(data + rest)
    assert value is not None
    assert complete == (not rest)
    assert encode_subscription(value) == data


@given(data=assignments(), rest=st.binary(max_size=2))
def test_a_decoded_assignment_is_encoded_to_the_same_bytes(data: bytes, rest: bytes) -> None:
    value, complete = decode_assignment(data + rest)
    assert value is not None
    assert complete == (not rest)
    assert encode_assignment(value, subscription=data) == data


@given(data=st.binary(max_size=20).map(lambda rest: b"\0" + rest))
def test_what_is_decoded_completely_is_encoded_to_the_same_bytes(data: bytes) -> None:
    subscription, complete = decode_subscription(data)
    if complete:
        assert subscription is not None
        assert encode_subscription(subscription) == data
    assignment, complete = decode_assignment(data)
    if complete:
        assert assignment is not None
        assert encode_assignment(assignment, subscription=data) == data


def test_user_data_may_be_base64_text() -> None:
    data = struct.pack(">hi", 1, 0) + blob(b"\0u") + partitions([])
    value, _ = decode_subscription(data)
    assert value is not None
    assert encode_subscription({**value, "userData": base64.b64encode(b"\0u").decode()}) == data


def test_the_version_of_an_assignment_is_at_most_3() -> None:
    value = {"assignedPartitions": [], "userData": None}
    for stated, version in ((b"\0\7", 3), (b"\xff\xff", 0), (b"", 0), (b"\0\2", 2)):
        assert encode_assignment(value, subscription=stated) == struct.pack(">hii", version, 0, -1)
