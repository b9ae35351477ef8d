"""A request that repeats the one before on its connection has the same effects as on a new connection."""

import asyncio
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetlake.log.writer.appender import Appender
from offsetlake.serve.apis.dispatch import Service
from offsetlake.serve.apis.offset_fetch import OffsetFetch
from offsetlake.serve.auth.principals import Client
from offsetlake.serve.protocol import wire
from offsetlake.serve.protocol.api_keys import OFFSET_COMMIT
from offsetlake.serve.protocol.topics import MAX_OFFSET, Topics
from offsetlake.serve.storage.group_details import NO_MEMBER
from offsetlake.serve.storage.store import Store
from offsetlake.serve.writes import offset_commit
from offsetlake.serve.writes.commit_request import CommitRequest
from offsetlake.serve.writes.offset_commit import OffsetCommit
from offsetlake.serve.writes.rounds import Flush, Writes
from support.oracle.log_reader import read_log
from support.serve.in_process import given_to
from support.serve.kio_requests import request
from support.serve.mapped_snapshots import mapped_snapshot

DELETE = "delete the group"
VERSIONS = (2, 5, 7, 9)

offsets = st.sampled_from([0, 1, 2**62, -1, MAX_OFFSET])
commits = st.fixed_dictionaries(
    {
        "version": st.sampled_from(VERSIONS),
        "group": st.sampled_from(["group", "other", ""]),
        "member": st.sampled_from(["", "", "", "nobody"]),
        "retention": st.sampled_from([-1, -1, 60_000]),
        "partitions": st.sampled_from([(0,), (1,), (0, 1), (0, 7)]),
        "offsets": st.tuples(offsets, offsets),
        "epoch": st.sampled_from([-1, 3]),
        "metadata": st.sampled_from(["", "a", "b"]),
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
            "committed_metadata": fields["metadata"],
        }
        for partition, offset in zip(fields["partitions"], fields["offsets"], strict=False)
    ]
    values: dict[str, Any] = {"group_id": fields["group"], "member_id": fields["member"], "group_instance_id": None}
    values |= {"generation_id": -1, "generation_id_or_member_epoch": -1, "retention_time_ms": fields["retention"]}
    data = bytearray(
        request(OFFSET_COMMIT, fields["version"], values | {"topics": [{"name": "t", "partitions": rows}]})
    )
    struct.pack_into(">i", data, 4, correlation)
    return bytes(data)


Records = list[tuple[int, int, bytes | None, bytes | None]]


def outcome(steps: Sequence[Any], folder: Path, *, reconnect: bool) -> tuple[list[bytes], list[Any], Records]:
    """Send the requests; return the answers, the served offsets, and the records in the log without their headers.

    The audit headers differ, as the first commit of a connection has them.
    """
    loop = asyncio.new_event_loop()
    appender = Appender(folder, lambda _: 0)
    store, topics = Store(), Topics({b"t": 3}, 50)
    store.load(mapped_snapshot({("group", "t", 0): {"committed_offset": 5}}))
    commits = OffsetCommit(store, topics, Writes(appender, Flush.OS, loop), 1)
    services = [Service(commits, OffsetFetch(store, topics), cast("Any", None), Client()) for _ in steps]
    answers: list[bytes] = []
    for number, step in enumerate(steps):
        if step == DELETE:
            store.delete_group(b"group", appender.end(0))
            continue
        data, answer = frame(step, number), loop.create_future()
        service = services[number if reconnect else 0]
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
        assert outcome(steps, one, reconnect=False) == outcome(steps, other, reconnect=True)


def test_request_is_repeated_only_if_nothing_but_its_offsets_differs() -> None:
    def variant(member: str = "", correlation: int = 1, **changed: Any) -> bytes:
        fields = {"version": 7, "group": "g", "retention": -1, "partitions": (0, 1), "offsets": (5, 6), "epoch": -1}
        return frame(fields | {"member": member, "metadata": "m"} | changed, correlation)

    first = variant()
    known = CommitRequest(b"g", 7, -1, 0, NO_MEMBER)
    known.results.append((b"t", [(0, 0), (1, 0)]))
    for number, offset in enumerate((5, 6)):
        known.add(b"key", (b"t", -1, b"", b"m"), first.index(struct.pack(">iq", number, offset)) + 4)
    assert known.repeated(first) == ()  # the frame is not remembered yet
    known.remember(first)
    assert known.repeated(variant(correlation=9, offsets=(2**62, -1))) == (2**62, -1)
    for another in (
        variant("x"),
        variant(group="h"),
        variant(partitions=(0, 2)),
        variant(epoch=1),
        variant(metadata="n"),
        variant(version=6),
    ):
        assert known.repeated(another) == ()
