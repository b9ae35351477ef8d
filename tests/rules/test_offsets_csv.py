"""Examples of Kafka's CSV format of offsets; tests/e2e/live/test_reset_oracle.py compares it with Kafka's own tool."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.errors import BadRequest
from offsetlake.rules.offsets_csv import MAX_OFFSET, MAX_PARTITION, SCHEMA, read_offsets, write_offsets

Row = tuple[str, str, int, int | None]


def table(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def read(content: bytes | str, group_id: str | None = "g") -> list[Row]:
    offsets = read_offsets(content.encode() if isinstance(content, str) else content, group_id)
    assert offsets.schema == SCHEMA
    return [tuple(row.values()) for row in offsets.to_pylist()]


def errors(content: bytes | str, group_id: str | None = "g") -> list[str]:
    with pytest.raises(BadRequest) as raised:
        read(content, group_id)
    head, *lines = str(raised.value).split("\n  ")
    assert head == "Invalid offsets in the file:"
    return lines


def test_lines_with_three_fields_are_of_the_given_group() -> None:
    assert read("t,0,5\nu-v.w_x,12,0\n") == [("g", "t", 0, 5), ("g", "u-v.w_x", 12, 0)]
    assert read('"a-topic-of-a-name-longer-than-quoting",1,2\r\n\r\n\n"t",3,4') == [
        ("g", "a-topic-of-a-name-longer-than-quoting", 1, 2),
        ("g", "t", 3, 4),
    ]
    assert read("t, 0 ,5 \n") == [("g", "t", 0, 5)]
    assert read("") == read("\n\r\n") == []


def test_lines_with_four_fields_name_their_group() -> None:
    content = '"a, ""b""\r日本",t,0,5\n,t,0,6\n'
    assert read(content, None) == read(content) == [('a, "b"\r日本', "t", 0, 5), ("", "t", 0, 6)]


def test_largest_partition_and_offset_are_read() -> None:
    assert read(f"t,{MAX_PARTITION},{MAX_OFFSET}") == [("g", "t", MAX_PARTITION, MAX_OFFSET)]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("t,0", "2 fields, expected topic,partition,offset or group,topic,partition,offset"),
        ("t", "1 field, expected"),
        ("a,b,c,0,5", "5 fields, expected"),
        ("topic,partition,offset", "invalid partition 'partition': expected an integer from 0 to 2147483647"),
        ("t,,5", "invalid partition '': expected an integer"),
        ("t,-1,5", "invalid partition '-1': expected"),
        ("t, 1 1,5", "invalid partition ' 1 1': expected"),
        ("t,2147483648,5", "invalid partition '2147483648': expected"),
        ("t,0,", "invalid offset '': expected an integer from 0 to 9223372036854775807"),
        ("t,0,-1", "invalid offset '-1': expected"),
        ("t,0,1.5", "invalid offset '1.5': expected"),
        ("t,0,٣", "invalid offset '٣': expected"),
        ("t,0,9223372036854775808", "invalid offset '9223372036854775808': expected"),
        (f"t,0,{'9' * 5000}", "invalid offset '9999"),
        (",0,5", "the topic is empty"),
        ('"t,0,5', "not CSV: unexpected end of data"),
        ('"t"x,0,5', "not CSV: "),
        ("\rt,0,5", "not CSV: "),
    ],
)
def test_invalid_line_is_reported_with_its_number(line: str, error: str) -> None:
    [message] = errors(f"t,7,1\n\n{line}\nt,8,1\n")
    assert message.startswith(f"line 3: {error}")


def test_bytes_that_are_not_utf_8_are_reported() -> None:
    assert errors(b"t,0,5\n\xff,0,5\n") == ["line 2: not UTF-8"]


def test_lines_that_contradict_each_other_are_reported() -> None:
    assert errors("t,0,5\ng,t,0,5\n") == ["line 2: 4 fields, but the lines before have 3"]
    assert errors("t,0,5\n", None) == ["line 1: 3 fields, expected group,topic,partition,offset for several groups"]
    assert errors("t,0,5\nt,1,5\nt,0,6\n\nt,0,5\n") == [
        "line 3: duplicate partition, see line 1",
        "line 5: duplicate partition, see line 1",
    ]


def test_first_20_invalid_lines_are_reported_and_the_others_counted() -> None:
    assert len(errors("t\n" * 20)) == 20
    messages = errors("t\n" * 5 + "t,0,5\n" + "t\n" * 18)
    assert [message.split(":")[0] for message in messages] == [f"line {n}" for n in range(1, 22) if n != 6] + [
        "and 3 more"
    ]


def test_offsets_are_written_as_kafka_writes_them() -> None:
    plan = table(("g", "t", 0, 5), ("g", "t" * 25, 1, 0), ("g", "t", 2, None))
    assert write_offsets(plan, with_group=False) == b't,0,5\n"ttttttttttttttttttttttttt",1,0\n'
    quoted = table(('a "b"', "t", 0, 5))
    assert write_offsets(quoted, with_group=True) == b'"a ""b""",t,0,5\n'
    assert write_offsets(table(), with_group=True) == b""
    with pytest.raises(BadRequest, match="line break"):
        write_offsets(table(("a\nb", "t", 0, 5)), with_group=True)


@given(
    st.dictionaries(
        st.tuples(
            st.text(st.characters(exclude_characters="\n", codec="utf-8")),
            st.text("abz.-_09", min_size=1, max_size=30),
            st.integers(0, MAX_PARTITION),
        ),
        st.integers(0, MAX_OFFSET),
        max_size=5,
    )
)
def test_written_offsets_are_read_back(offsets: dict[tuple[str, str, int], int]) -> None:
    plan = table(*((*key, offset) for key, offset in offsets.items()))
    assert read_offsets(write_offsets(plan, with_group=True), None) == plan
