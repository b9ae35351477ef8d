"""UUIDs as text; the expected texts come from `org.apache.kafka.common.Uuid.toString`."""

import pytest

from offsetlake.kafka.uuid import ZERO_UUID, ZERO_UUID_TEXT, uuid_bytes, uuid_text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (ZERO_UUID, ZERO_UUID_TEXT),
        (bytes(15) + b"\x01", "AAAAAAAAAAAAAAAAAAAAAQ"),  # Uuid.METADATA_TOPIC_ID
        (b"\xff" * 16, "_____________________w"),
        (b"\xfb\xef\xbe" * 5 + b"\xfb", "--------------------" + "-w"),
    ],
)
def test_bytes_and_text_are_converted_both_ways(data: bytes, text: str) -> None:
    assert uuid_text(data) == text
    assert uuid_bytes(text) == data


@pytest.mark.parametrize("text", ["", "A", "A" * 21, "A" * 23, "+" * 22, "é" * 22, "None"])
def test_text_that_is_not_a_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid UUID"):
        uuid_bytes(text)
