"""A request that repeats an earlier one with other offsets has the same effects as one that is read field by field."""

import asyncio
import struct
import tempfile
from collections.abc import Sequence
from itertools import accumulate, cycle
from pathlib import Path
from random import Random
from typing import Any, cast
from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlake.kafka.batches.writer import record_batch
from offsetlake.kafka.commits.encoding import offset_commit_key
from offsetlake.kafka.uuid import ZERO_UUID
from offsetlake.log.writer.appender import Appender
from offsetlake.serve.apis.dispatch import Service
from offsetlake.serve.apis.offset_fetch import OffsetFetch
from offsetlake.serve.net.client import Client
from offsetlake.serve.protocol import wire
from offsetlake.serve.protocol.api_keys import OFFSET_COMMIT
from offsetlake.serve.protocol.topics import MAX_OFFSET, Topics
from offsetlake.serve.steps import complete
from offsetlake.serve.storage.group_details import NO_MEMBER
from offsetlake.serve.storage.store import Store
from offsetlake.serve.writes import commit_templates, offset_commit
from offsetlake.serve.writes.commit_request import CommitRequest
from offsetlake.serve.writes.commit_templates import CommitTemplates, commit_values, make_template
from offsetlake.serve.writes.offset_commit import OffsetCommit
from offsetlake.serve.writes.rounds import Flush, Writes
from offsetlake.serve.writes.strided_fields import Places
from support.oracle.log_reader import read_log
from support.serve.in_process import given_to
from support.serve.kio_requests import request
from support.serve.mapped_snapshots import mapped_snapshot

DELETE = "delete the group"
VERSIONS = (2, 5, 7, 9, 10)
MANY = tuple(range(70))  # from record 64 on, the number of a record takes two bytes
TOPIC_ID = Topics({b"t": 100}, 50).id_of(b"t")

offsets = st.sampled_from([0, 1, 2**62, -1, MAX_OFFSET])
commits = st.fixed_dictionaries(
    {
        "version": st.sampled_from(VERSIONS),
        "group": st.sampled_from(["group", "other", ""]),
        "member": st.sampled_from(["", "", "", "nobody"]),
        "retention": st.sampled_from([-1, -1, 60_000]),
        "partitions": st.sampled_from([(0,), (1,), (0, 1), (0, 700), MANY]),
        "offsets": st.tuples(offsets, offsets),
        "epoch": st.sampled_from([-1, 3]),
        "metadata": st.sampled_from(["", "a", "b", "lengths differ"]),
    }
)
repeated = st.tuples(commits, st.lists(st.tuples(offsets, offsets), min_size=1, max_size=4))


@st.composite
def requests(draw: st.DrawFn) -> list[Any]:
    """Draw runs of requests that differ only in their offsets, some interrupted by a deletion."""
    steps: list[Any] = []
    for like, others in draw(st.lists(repeated, min_size=1, max_size=5)):
        steps += [like, *({**like, "offsets": values} for values in others)]
        steps += [DELETE] * draw(st.sampled_from([0, 0, 1])) + [like]
    return steps


def frame(fields: dict[str, Any], correlation: int) -> bytes:
    rows = [
        {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": fields["epoch"],
            "committed_metadata": fields["metadata"][: partition + 1],
        }
        for partition, offset in zip(fields["partitions"], cycle(fields["offsets"]))
    ]
    values: dict[str, Any] = {"group_id": fields["group"], "member_id": fields["member"], "group_instance_id": None}
    values |= {"generation_id": -1, "generation_id_or_member_epoch": -1, "retention_time_ms": fields["retention"]}
    data = bytearray(
        request(
            OFFSET_COMMIT,
            fields["version"],
            values | {"topics": [{"name": "t", "topic_id": UUID(bytes=TOPIC_ID), "partitions": rows}]},
        )
    )
    struct.pack_into(">i", data, 4, correlation)
    return bytes(data)


Records = list[tuple[int, int, bytes | None, bytes | None]]


def outcome(steps: Sequence[Any], folder: Path, *, repeated: bool) -> tuple[list[bytes], list[Any], Records]:
    """Send the requests; return the answers, the served offsets, and the records in the log without their headers.

    The audit headers differ, as the first commit of a connection has them.
    """
    loop = asyncio.new_event_loop()
    appender = Appender(folder, lambda _: 0)
    store, topics = Store(), Topics({b"t": 100}, 50)
    store.load(mapped_snapshot({("group", "t", 0): {"committed_offset": 5}}))
    writes = Writes(appender, Flush.OS, loop)
    handlers = [OffsetCommit(store, topics, writes, 1) for _ in steps]  # each has its own templates
    fetches = OffsetFetch(store, topics)
    services = [Service(commits, fetches, cast("Any", None), Client()) for commits in handlers]
    answers: list[bytes] = []
    for number, step in enumerate(steps):
        if step == DELETE:
            store.delete_group(b"group", appender.end(0))
            continue
        data, answer = frame(step, number), loop.create_future()
        service = services[0 if repeated else number]
        service.take(data, wire.read_header(data), given_to(answer))
        answers.append(loop.run_until_complete(answer))
    served = [sorted(store.offsets(group).items()) for group in (b"group", b"other", b"")]
    written = [(record.log_offset, record.log_timestamp, record.key, record.value) for record in read_log(folder)]
    appender.close()
    loop.close()
    return answers, served, written


@pytest.mark.long
@settings(max_examples=60)
@given(requests())
def test_repeated_requests_have_the_same_effects_as_first_ones(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder, patch.object(offset_commit, "now_ms", lambda: 1_700_000_000_000):
        (one := Path(folder, "one")).mkdir()
        (other := Path(folder, "other")).mkdir()
        assert outcome(steps, one, repeated=True) == outcome(steps, other, repeated=False)


@given(
    st.lists(st.integers(8, 20), max_size=100).map(lambda steps: [*accumulate(steps, initial=5)]),
    st.randoms(use_true_random=False),
)
def test_places_are_read_and_written_as_single_fields(positions: list[int], random: Random) -> None:
    fields = [random.randbytes(8) for _ in positions]
    expected = bytearray(random.randbytes(positions[-1] + 20))
    places, buffer = Places(positions), bytearray(expected)
    for position, field in zip(positions, fields, strict=True):
        expected[position : position + 8] = field
    places.write(buffer, b"".join(fields))
    assert buffer == expected
    assert places.read(bytes(buffer)) == b"".join(fields)
    places.fill(buffer, fields[0])
    assert all(buffer[position : position + 8] == fields[0] for position in positions)


def test_request_is_repeated_only_if_nothing_but_its_offsets_differs() -> None:
    def variant(member: str = "", **changed: Any) -> bytes:
        fields = {"version": 7, "group": "g", "retention": -1, "partitions": (0, 1), "offsets": (5, 6), "epoch": -1}
        data = frame(fields | {"member": member, "metadata": "m"} | changed, 1)
        return data[wire.read_header(data).body :]

    first = variant()
    known = CommitRequest(b"g", 7, -1, 0, NO_MEMBER)
    known.results.append((b"t", [(0, 0), (1, 0)]))
    for number, offset in enumerate((5, 6)):
        known.add(b"key", (b"t", -1, ZERO_UUID, b"m"), first.index(struct.pack(">iq", number, offset)) + 4)
    template = complete(make_template(known, first))
    assert template.offsets(variant(offsets=(2**62, -1))) == struct.pack(">2q", 2**62, -1)
    for another in (
        variant("x"),
        variant(group="h"),
        variant(partitions=(0, 2)),
        variant(epoch=1),
        variant(metadata="n"),
    ):
        assert template.offsets(another) == b""


@given(st.lists(st.tuples(st.integers(0, 2**62), st.text("ab", max_size=20), st.booleans()), min_size=1, max_size=80))
def test_batch_of_a_template_is_the_batch_of_its_records(partitions: list[tuple[int, str, bool]]) -> None:
    request_, headers = CommitRequest(b"g", 10, -1, 0, NO_MEMBER), [("act.what", b"commit")]
    body, offsets = bytearray(), b""
    for number, (offset, metadata, has_id) in enumerate(partitions):
        key = offset_commit_key(b"g", b"t") + struct.pack(">i", number)
        request_.add(key, (b"t", number - 1, TOPIC_ID if has_id else ZERO_UUID, metadata.encode()), len(body))
        body, offsets = body + bytes(8), offsets + struct.pack(">q", offset)
    template = complete(make_template(request_, bytes(body)))
    now = 1_700_000_000_000
    records = [*zip(request_.keys, commit_values(request_, offsets, now), strict=True)]
    assert template.batch(now, offsets, []) == record_batch(now, records)
    assert template.batch(now, offsets, headers) == record_batch(now, records, headers)


def test_templates_have_bounded_memory() -> None:
    templates, size = CommitTemplates(), 0
    with patch.object(commit_templates, "MAX_BYTES", 100_000):
        for number in range(1000):
            group = f"group-{number:04}".encode()
            known = CommitRequest(group, 7, -1, 0, NO_MEMBER)
            known.add(b"key", (b"t", -1, ZERO_UUID, b""), 0)
            template = complete(make_template(known, bytes(8)))
            templates.keep(template)
            size = template.size()
        kept = [number for number in range(1000) if templates.find((7, f"group-{number:04}".encode(), 8), bytes(8))]
    assert kept == [*range(1000 - 100_000 // size, 1000)]
