"""CSV files of offsets with a header, as spreadsheets and `offsets --format csv` write them."""

import codecs

import pytest

from offsetlake.errors import BadRequest
from offsetlake.lake.definitions import definition
from offsetlake.rules.csv_header import IGNORED, NAMES
from offsetlake.rules.offsets_csv import read_offsets

ROW = ("g", "t", 1, 5)


def read(text: str | bytes, group_id: str | None = None) -> tuple[list[tuple[object, ...]], list[str]]:
    ignored: list[str] = []
    content = text.encode() if isinstance(text, str) else text
    rows = read_offsets(content, group_id, "o.csv", 0, ignored.extend).to_pylist()
    return [tuple(row.values()) for row in rows], ignored


def refused(text: str, group_id: str | None = None) -> str:
    with pytest.raises(BadRequest, match=r"Invalid offsets in o\.csv:") as error:
        read(text, group_id)
    return str(error.value).split("\n  ", 1)[1]


@pytest.mark.parametrize(
    "text",
    [
        "group_id,topic,partition,committed_offset\ng,t,1,5\n",
        "Group ID;Topic;Partition;Committed Offset\r\ng;t;1;5\r\n",
        "GROUP\tTOPIC\tPARTITION\tCURRENT-OFFSET\ng\tt\t1\t5\n",
        "offset,partition,topic,group\n5,1,t,g\n",
        '"Partition","Offset","groupId","TOPIC"\n"1","5","g","t"\n',
        " group , topic , partition , offset \ng,t,1,5\n",
        "sep=;\r\ngroup;topic;partition;offset\r\ng;t;1;5\r\n",
        "SEP=,\ng,t,1,5\n",
        "\n\ntopic;group;offset;partition\n\nt;g;5;1\n",
        "group;topic;partition;offset;;\ng;t;1;5;;\n",
        "group;topic;partition;offset\rg;t;1;5\r",
    ],
)
def test_columns_are_found_by_their_names(text: str) -> None:
    assert read(text) == ([ROW], [])
    assert read(codecs.BOM_UTF8 + text.encode()) == read(text.encode("utf-16")) == ([ROW], [])


def test_group_of_the_command_is_that_of_files_without_one() -> None:
    assert read("offset;topic;partition\n5;t;1\n", "g") == ([ROW], [])
    assert read("offset;topic;group;partition\n5;t;g;1\n", "other") == ([ROW], [])


def test_output_of_offsets_is_read_and_ignored_columns_are_named() -> None:
    names = definition("offsets").column_names
    assert {*names} <= {*IGNORED, "group_id", "topic", "partition", "committed_offset"}
    values = dict.fromkeys(names, "x,y") | {"group_id": "g", "topic": "t", "partition": "1", "committed_offset": "5"}
    text = ",".join(names) + "\n" + ",".join(f'"{values[name]}"' for name in names) + "\n"
    assert read(text) == ([ROW], [name for name in names if name in IGNORED])


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("group,topic,partition", "line 1: no column offset: expected group, topic, partition, offset, found group, "),
        ("Gruppe;Topic;Partition;Offset", "line 1: no column group; unknown column Gruppe: expected group, topic"),
        ("Gruppe;Thema;Teil;Versatz", "unknown columns Gruppe, Thema, Teil, Versatz: expected group, topic, partition"),
        ("group,topic,partition,offset,comment", "line 1: unknown column comment: expected group, topic, partition"),
        ("group,topic,partition,offset,Offset", "line 1: several columns for offset: expected"),
        ("group,topic,partition,committed_offset,new_offset", "line 1: several columns for offset: expected"),
        ("topic,partition,offset", "line 1: no column group: expected group, topic, partition, offset, found topic, "),
        ("offset", "line 1: no column group and no column topic and no column partition: expected"),
    ],
)
def test_other_headers_are_refused_with_the_names_expected_and_found(header: str, message: str) -> None:
    assert message in refused(f"{header}\ng,t,1,5\n")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1.234;1;t;g", "invalid offset '1.234'"),
        ("1,234;1;t;g", "invalid offset '1,234'"),
        ("1.2E+05;1;t;g", "invalid offset '1.2E+05'"),
        ("1,2E+05;1;t;g", "invalid offset '1,2E+05'"),
        ("5,00;1;t;g", "invalid offset '5,00'"),
        ("1\u00a0234;1;t;g", "invalid offset '1\\xa0234'"),
        ("'5;1;t;g", 'invalid offset "\'5"'),
        ("5;1,0;t;g", "invalid partition '1,0'"),
        ("#REF!;1;t;g", "invalid offset '#REF!'"),
        ("5;1;t", "3 fields, but the header has 4"),
        ("5;1;t;g;", "5 fields, but the header has 4"),
        ("5;1;;g", "the topic is empty"),
        ("5;7;t;g", "duplicate partition, see line 2"),
        ('5;1;"t;g', "not CSV: unexpected end of data"),
    ],
)
def test_lines_of_a_german_spreadsheet_are_refused_one_by_one(line: str, reason: str) -> None:
    assert refused(f"Offset;Partition;Topic;Group\n1;7;t;g\n{line}\n2;8;t;g\n").startswith(f"line 3: {reason}")


def test_header_in_the_middle_is_a_line_that_is_refused() -> None:
    assert refused("g,t,0,1\ngroup,topic,partition,offset\n").startswith("line 2: invalid partition 'partition'")


def test_names_of_columns_are_unambiguous() -> None:
    every = [name for names in NAMES.values() for name in names] + [name.replace("_", "") for name in IGNORED]
    assert len(every) == len({*every})
