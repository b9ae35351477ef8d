"""Kafka's CSV of offsets by hand; against Kafka's own tool it is tests/e2e/test_reset_oracle.py."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.errors import BadRequest
from offsetlake.rules.offsets_csv import LARGEST_OFFSET, LARGEST_PARTITION, SCHEMA, read_offsets, write_offsets

Row = tuple[str, str, int, int | None]


def table(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def read(content: bytes | str, group_id: str | None = "g") -> list[Row]:
    found = read_offsets(content.encode() if isinstance(content, str) else content, group_id)
    assert found.schema == SCHEMA
    return [tuple(row.values()) for row in found.to_pylist()]


def refused(content: bytes | str, group_id: str | None = "g") -> list[str]:
    with pytest.raises(BadRequest) as raised:
        read(content, group_id)
    head, *lines = str(raised.value).split("\n  ")
    assert head == "the file cannot be used:"
    return lines


def test_lines_of_one_group() -> None:
    assert read("t,0,5\nu-v.w_x,12,0\n") == [("g", "t", 0, 5), ("g", "u-v.w_x", 12, 0)]
    assert read('"a-topic-of-a-name-longer-than-quoting",1,2\r\n\r\n\n"t",3,4') == [
        ("g", "a-topic-of-a-name-longer-than-quoting", 1, 2),
        ("g", "t", 3, 4),
    ]
    assert read("t, 0 ,5 \n") == [("g", "t", 0, 5)]
    assert read("") == read("\n\r\n") == []


def test_lines_of_several_groups() -> None:
    content = '"a, ""b""\r日本",t,0,5\n,t,0,6\n'
    assert read(content, None) == read(content) == [('a, "b"\r日本', "t", 0, 5), ("", "t", 0, 6)]


def test_numbers_up_to_the_largest() -> None:
    assert read(f"t,{LARGEST_PARTITION},{LARGEST_OFFSET}") == [("g", "t", LARGEST_PARTITION, LARGEST_OFFSET)]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("t,0", "2 fields: it is topic,partition,offset or group,topic,partition,offset"),
        ("t", "1 fields: it is"),
        ("a,b,c,0,5", "5 fields: it is"),
        ("topic,partition,offset", "partition 'partition': it is a whole number from 0 to 2147483647"),
        ("t,,5", "partition '': it is a whole number"),
        ("t,-1,5", "partition '-1': it is"),
        ("t, 1 1,5", "partition ' 1 1': it is"),
        ("t,2147483648,5", "partition '2147483648': it is"),
        ("t,0,", "offset '': it is a whole number from 0 to 9223372036854775807"),
        ("t,0,-1", "offset '-1': it is"),
        ("t,0,1.5", "offset '1.5': it is"),
        ("t,0,٣", "offset '٣': it is"),
        ("t,0,9223372036854775808", "offset '9223372036854775808': it is"),
        (f"t,0,{'9' * 5000}", "offset '9999"),
        (",0,5", "no topic"),
        ('"t,0,5', "no CSV: unexpected end of data"),
        ('"t"x,0,5', "no CSV: "),
        ("\rt,0,5", "no CSV: "),
    ],
)
def test_a_bad_line_is_named(line: str, says: str) -> None:
    [said] = refused(f"t,7,1\n\n{line}\nt,8,1\n")
    assert said.startswith(f"line 3: {says}")


def test_bytes_that_are_no_text() -> None:
    assert refused(b"t,0,5\n\xff,0,5\n") == ["line 2: no UTF-8"]


def test_lines_that_do_not_go_together() -> None:
    assert refused("t,0,5\ng,t,0,5\n") == ["line 2: 4 fields, but 3 in the lines before"]
    assert refused("t,0,5\n", None) == ["line 1: 3 fields: with several groups it is group,topic,partition,offset"]
    assert refused("t,0,5\nt,1,5\nt,0,6\n\nt,0,5\n") == [
        "line 3: for the same partition as line 1",
        "line 5: for the same partition as line 1",
    ]


def test_every_bad_line_counts() -> None:
    assert len(refused("t\n" * 20)) == 20
    said = refused("t\n" * 5 + "t,0,5\n" + "t\n" * 18)
    assert [each.split(":")[0] for each in said] == [f"line {n}" for n in range(1, 22) if n != 6] + ["and 3 more"]


def test_written_as_kafka_does() -> None:
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
            st.integers(0, LARGEST_PARTITION),
        ),
        st.integers(0, LARGEST_OFFSET),
        max_size=5,
    )
)
def test_what_is_written_is_read_back(offsets: dict[tuple[str, str, int], int]) -> None:
    plan = table(*((*key, offset) for key, offset in offsets.items()))
    assert read_offsets(write_offsets(plan, with_group=True), None) == plan
