import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlake.errors import UndecodableRecord
from offsetlake.kafka.records.codec import decode, encode
from offsetlake.kafka.records.schema import Field, Schema, load_schema, load_schemas
from support.kafka.golden import KEYS, VALUES, golden_keys, golden_values

COMMIT = load_schema("OffsetCommitValue")
GROUP = load_schema("GroupMetadataValue")
MEMBER = load_schema("ConsumerGroupMemberMetadataValue")

SCHEMAS = list(load_schemas())
VERSIONS = [
    pytest.param(schema, version, id=f"{schema.name}-v{version}")
    for schema in SCHEMAS
    for version in range(schema.valid.first, schema.valid.last + 1)
]
MESSAGES = [
    *((name, 0, KEYS[name], raw) for name, raw in golden_keys().items()),
    *((title.split()[0], int(title.split()[1][1:]), VALUES[title], raw) for title, raw in golden_values().items()),
]

LIMITS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
UUID = st.binary(min_size=16, max_size=16).map(lambda raw: base64.urlsafe_b64encode(raw)[:22].decode())


def structs(fields: tuple[Field, ...], version: int) -> st.SearchStrategy[dict[str, Any]]:
    plain = {f.name: values(f, version) for f in fields if f.versions.has(version) and not f.tagged.has(version)}
    tagged = {f.name: values(f, version) for f in fields if f.tagged.has(version)}
    return st.fixed_dictionaries(plain, optional=tagged)


def values(field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.fields is not None:
        one: st.SearchStrategy[Any] = structs(field.fields, version)
    elif field.type in LIMITS:
        one = st.integers(*LIMITS[field.type])
    else:
        one = {"string": TEXT, "bytes": st.binary(max_size=200), "uuid": UUID}[field.type]
    if field.is_array:
        one = st.lists(one, max_size=3)
    if field.tagged.has(version):  # what equals the default is absent once read
        one = one.filter(lambda value: value != field.default)
        return one if not field.nullable.has(version) or field.default is None else st.none() | one
    return st.none() | one if field.nullable.has(version) else one


@pytest.mark.parametrize(("name", "version", "value", "raw"), MESSAGES)
def test_golden_bytes_are_decoded(name: str, version: int, value: dict[str, Any], raw: bytes) -> None:
    assert decode(load_schema(name), version, raw, 2) == (value, len(raw))


@pytest.mark.parametrize(("name", "version", "value", "raw"), MESSAGES)
def test_values_are_encoded_to_golden_bytes(name: str, version: int, value: dict[str, Any], raw: bytes) -> None:
    assert encode(load_schema(name), version, value) == raw[2:]


@pytest.mark.parametrize(("name", "version", "value", "raw"), MESSAGES)
def test_truncated_message_is_undecodable(name: str, version: int, value: dict[str, Any], raw: bytes) -> None:
    for end in range(2, len(raw)):
        with pytest.raises(UndecodableRecord, match=rf"^{name}.* at byte \d+ .*truncated"):
            decode(load_schema(name), version, raw[:end], 2)


def test_every_golden_line_has_an_expectation() -> None:
    assert golden_keys().keys() == KEYS.keys()
    assert golden_values().keys() == VALUES.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("schema", "version"), VERSIONS)
@settings(max_examples=12, deadline=None)
@given(data=st.data(), before=st.binary(max_size=4), behind=st.binary(max_size=4))
def test_encoded_message_decodes_to_same_value(
    schema: Schema, version: int, data: st.DataObject, before: bytes, behind: bytes
) -> None:
    value = data.draw(structs(schema.fields, version))
    raw = encode(schema, version, value)
    assert decode(schema, version, before + raw + behind, len(before)) == (value, len(before) + len(raw))


@pytest.mark.slow
@pytest.mark.parametrize(("schema", "version"), VERSIONS)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_damaged_bytes_raise_only_undecodable_record(schema: Schema, version: int, data: st.DataObject) -> None:
    raw = bytearray(encode(schema, version, data.draw(structs(schema.fields, version))))
    for at in data.draw(st.lists(st.integers(0, max(len(raw) - 1, 0)), max_size=4)):
        raw[at : at + 1] = data.draw(st.binary(max_size=2) | st.sampled_from([b"\x00", b"\x7f", b"\x80", b"\xff"]))
    try:
        value, end = decode(schema, version, bytes(raw))
    except UndecodableRecord as error:
        assert str(error).startswith(schema.name)  # noqa: PT017 - bytes that still are a message are as good
    else:
        assert end <= len(raw)
        assert decode(schema, version, encode(schema, version, value))[0] == value


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(VERSIONS), st.binary(max_size=80))
def test_arbitrary_bytes_raise_only_undecodable_record(parameters: Any, raw: bytes) -> None:
    schema, version = parameters.values
    try:
        _, end = decode(schema, version, raw)
    except UndecodableRecord:
        return
    assert end <= len(raw)


@pytest.mark.parametrize(
    ("schema", "version", "raw", "message"),
    [
        (COMMIT, 5, "", "OffsetCommitValue version 5 is unknown: expected 0 to 4"),
        (COMMIT, -1, "", "OffsetCommitValue version -1 is unknown: expected 0 to 4"),
        (MEMBER, 1, "", "ConsumerGroupMemberMetadataValue version 1 is unknown: expected 0"),
        (COMMIT, 0, "000000000000002a fffe", "OffsetCommitValue.metadata at byte 8 has the invalid length -2"),
        (
            COMMIT,
            0,
            "000000000000002a ffff",
            "OffsetCommitValue.metadata at byte 8 is null, but the field is not nullable",
        ),
        (COMMIT, 0, "000000000000002a 0002 6dff 00", "OffsetCommitValue.metadata at byte 8 is not UTF-8"),
        # an encoded surrogate and an overlong NUL are no UTF-8 either
        (COMMIT, 0, "000000000000002a 0003 eda080 00", "OffsetCommitValue.metadata at byte 8 is not UTF-8"),
        (COMMIT, 0, "000000000000002a 0002 c080 00", "OffsetCommitValue.metadata at byte 8 is not UTF-8"),
        (
            COMMIT,
            4,
            "000000000000002a 00000005 00",
            "OffsetCommitValue.metadata at byte 12 is null, but the field is not nullable",
        ),
        (COMMIT, 4, "000000000000002a 00000005 ffffffff07", "OffsetCommitValue.metadata at byte 12 is truncated"),
        (
            COMMIT,
            4,
            "000000000000002a 00000005 ffffffff08",
            "OffsetCommitValue.metadata at byte 12 has a length, count or tag above 2147483647",
        ),
        (
            COMMIT,
            4,
            "000000000000002a 00000005 808080808001",
            "OffsetCommitValue.metadata at byte 12 has a length, count or tag above 2147483647",
        ),
        (
            COMMIT,
            4,
            "000000000000002a 00000005 818002" + "61" * 32_768,
            "OffsetCommitValue.metadata at byte 12 has 32768 bytes, but a string has at most 32767",
        ),
        (
            COMMIT,
            4,
            "000000000000002a 00000005 01 0000018bcfe56800 01 00 0f" + "00" * 16,
            "OffsetCommitValue.topicId at byte 24 has 16 bytes, but its tag states 15",
        ),
        (
            COMMIT,
            4,
            "000000000000002a 00000005 01 0000018bcfe56800 01 63 05 00",
            "OffsetCommitValue, tag 99 at byte 24 is truncated",
        ),
        (
            GROUP,
            0,
            "0000 00000003 ffff ffff 7fffffff",
            (
                "GroupMetadataValue.members at byte 10 is truncated: "
                "its elements need at least 2147483647 bytes, but 0 remain"
            ),
        ),
        (
            GROUP,
            0,
            "0000 00000003 ffff ffff 80000000",
            "GroupMetadataValue.members at byte 10 has the invalid length -2147483648",
        ),
        (
            load_schema("ConsumerProtocolAssignment"),
            0,
            "00000001 0002 7461 00000002 00000007",
            (
                "ConsumerProtocolAssignment.assignedPartitions.partitions at byte 8 is truncated: "
                "its elements need at least 8 bytes, but 4 remain"
            ),
        ),
        (
            load_schema("ConsumerGroupRegularExpressionValue"),
            0,
            "ffffffff07",
            (
                "ConsumerGroupRegularExpressionValue.topics at byte 0 is truncated: "
                "its elements need at least 2147483646 bytes, but 0 remain"
            ),
        ),
    ],
)
def test_undecodable_message_names_field_and_byte(schema: Schema, version: int, raw: str, message: str) -> None:
    with pytest.raises(UndecodableRecord) as caught:
        decode(schema, version, bytes.fromhex(raw))
    assert str(caught.value) == message


def test_unknown_tags_are_skipped() -> None:
    raw = bytes.fromhex("000000000000002a 00000005 01 0000018bcfe56800 03 00 10" + "01" * 16 + "05 00 8001 02 ffff 99")
    value, end = decode(COMMIT, 4, raw)
    assert value["topicId"] == "AQEBAQEBAQEBAQEBAQEBAQ"
    assert end == len(raw) - 1


def test_tagged_fields_at_default_are_absent() -> None:
    raw = bytes.fromhex("000000000000002a 00000005 01 0000018bcfe56800 01 00 10" + "00" * 16)
    assert "topicId" not in decode(COMMIT, 4, raw)[0]
    assert decode(load_schema("ConsumerGroupMetadataValue"), 0, bytes.fromhex("0000000a 01 00 08" + "00" * 8))[0] == {
        "epoch": 10
    }


def test_a_tagged_struct_differs_between_null_and_its_default() -> None:
    member = VALUES["ConsumerGroupMemberMetadataValue v0"]
    written = {
        None: encode(MEMBER, 0, member | {"classicMemberMetadata": None}),
        "default": encode(
            MEMBER, 0, member | {"classicMemberMetadata": {"sessionTimeoutMs": 0, "supportedProtocols": []}}
        ),
    }
    assert written[None].endswith(bytes.fromhex("01 00 01 00"))
    assert written["default"] == encode(MEMBER, 0, member)
    assert decode(MEMBER, 0, written[None])[0] == member | {"classicMemberMetadata": None}


def test_fields_of_other_versions_are_dropped_on_write() -> None:
    everything = VALUES["OffsetCommitValue v4"] | {"expireTimestamp": 1_700_000_600_000}
    for title, raw in golden_values().items():
        if title.startswith("OffsetCommitValue") and title.count(" ") == 1:
            assert encode(COMMIT, int(title[-1]), everything) == raw[2:]


def test_fields_with_a_default_may_be_left_out_on_write() -> None:
    value = {"offset": 42, "metadata": "", "commitTimestamp": 1_700_000_000_000}
    assert encode(COMMIT, 4, value) == golden_values()["OffsetCommitValue v4 noTopicId,emptyMeta"][2:]


@pytest.mark.parametrize(
    ("version", "change", "message"),
    [
        (5, {}, "expected version 0 to 4"),
        (4, {"offset": 2**63}, "offset: 9223372036854775808 is not an int64"),
        (4, {"offset": "1"}, "offset: '1' is not an int64"),
        (4, {"metadata": None}, "metadata: the field is not nullable"),
        (4, {"metadata": "x" * 32_768}, "metadata: the string has 32768 bytes, but the maximum is 32767"),
        (4, {"metadata": "\ud800"}, "surrogates not allowed"),
        (4, {"topicId": "AAAA"}, "topicId: Invalid UUID 'AAAA'"),
    ],
)
def test_value_that_cannot_be_encoded_is_refused(version: int, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r"^OffsetCommitValue version \d cannot be encoded") as caught:
        encode(COMMIT, version, VALUES["OffsetCommitValue v4"] | change)
    assert message in str(caught.value)


def test_missing_field_is_refused() -> None:
    with pytest.raises(ValueError, match="offset is required"):
        encode(COMMIT, 3, {"metadata": "", "commitTimestamp": 0})


def test_tags_are_written_in_ascending_order() -> None:
    value = {
        "lastAssignmentConfigs": [{"key": "k", "value": "v"}],
        "validatedTopologyEpoch": 3,
        "epoch": 1,
        "metadataHash": 2,
    }
    assert encode(load_schema("StreamsGroupMetadataValue"), 0, value) == bytes.fromhex(
        "00000001 0000000000000002 02  00 04 00000003  01 06 02 026b 0276 00"
    )
