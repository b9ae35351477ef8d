"""Requests that repeat an earlier one with other offsets, as consumers and tools send them again and again.

A template contains the body of the earlier request, the record batch that it was written as, and the positions of the
offsets in both. A request that differs only in its offsets is neither parsed nor encoded field by field: its offsets
are copied to a copy of the batch, whose checksum is computed once.
"""

import struct
from collections.abc import Iterator

import google_crc32c

from offsetlake.kafka.batches.writer import NO_HEADERS, Batch, Headers, record_batch, record_batch_in_steps
from offsetlake.kafka.commits.encoding import OFFSET_IN_VALUE, offset_commit_value, timestamp_in_value
from offsetlake.serve.steps import Steps
from offsetlake.serve.writes.commit_request import CommitRequest
from offsetlake.serve.writes.strided_fields import FIELD_BYTES, Places

MAX_BYTES = 64 << 20
MAX_TEMPLATES_OF_A_KIND = 32  # the members of a group commit partitions of their own
MAX_BODY_BYTES = 100_000
STEP_PARTITIONS = 100
_PARTITION_BYTES = 700  # approximate memory of the objects of a partition
_MAX_SEEN = 10_000
_ZERO = bytes(FIELD_BYTES)
_LENGTH, _CRC, _INT64 = struct.Struct(">i"), struct.Struct(">I"), struct.Struct(">q")
_LENGTH_POSITION, _CRC_POSITION, _CHECKED_POSITION, _FIRST_RECORD = 8, 17, 21, 61  # in a record batch
_BATCH_TIMES = (27, 35)  # positions of its base and its maximum timestamp

Kind = tuple[int, bytes, int]
"""The version of a request, its group, and the size of its body."""


class CommitTemplate:
    """A request without a retention of its own, all of whose partitions were accepted, and its record batch."""

    __slots__ = ("_batch", "_body", "_first_value", "_head", "_in_batch", "_in_body", "_tail", "_times", "request")

    def __init__(self, request: CommitRequest, body: bytes, batch: Batch, values: list[tuple[int, int]]) -> None:
        """Make a template of a request; `values` are begin and end of the values of the records in the batch."""
        self.request, self._batch, self._first_value = request, bytes(batch.data), values[0]
        self._head, self._tail = body[: request.positions[0]], body[request.positions[-1] + FIELD_BYTES :]
        self._in_body = Places(request.positions)
        self._body = self._without_offsets(body)
        self._in_batch = Places([begin + OFFSET_IN_VALUE for begin, _ in values])
        times = [begin + timestamp_in_value(self._batch[begin:end]) for begin, end in values]
        self._times = Places([*_BATCH_TIMES, *times])

    @property
    def kind(self) -> Kind:
        """Return the kind of the requests like this one."""
        return self.request.version, self.request.group, len(self._body)

    def size(self) -> int:
        """Return the approximate memory in bytes."""
        return 2 * len(self._body) + len(self._batch) + _PARTITION_BYTES * self._in_body.number

    def offsets(self, body: bytes) -> bytes:
        """Return the offsets of a request of this kind as int64, none if it differs from this one in more."""
        differs = not (body.startswith(self._head) and body.endswith(self._tail))
        if differs or (self._in_body.number > 1 and self._without_offsets(body) != self._body):
            return b""
        return self._in_body.read(body)

    def _without_offsets(self, body: bytes) -> bytearray:
        copy = bytearray(body)
        self._in_body.fill(copy, _ZERO)
        return copy

    def batch(self, now: int, offsets: bytes, headers: Headers) -> Batch:
        """Return the record batch with other offsets, the time in ms, and headers of the first record."""
        data = bytearray(self._batch)
        self._in_batch.write(data, offsets)
        self._times.fill(data, _INT64.pack(now))
        if headers:
            begin, end = self._first_value
            first = record_batch(now, [(self.request.keys[0], bytes(data[begin:end]))], headers).data
            data[_FIRST_RECORD : end + 1] = first[_FIRST_RECORD:]  # the value is followed by the number of headers, 0
            _LENGTH.pack_into(data, _LENGTH_POSITION, len(data) - _LENGTH_POSITION - _LENGTH.size)
        _CRC.pack_into(data, _CRC_POSITION, google_crc32c.value(bytes(data[_CHECKED_POSITION:])))
        return Batch(data, self._in_body.number)


def commit_values(request: CommitRequest, offsets: bytes, now: int) -> Iterator[bytes]:
    """Yield the values of the records of a request, whose offsets are int64."""
    expiry = -1 if request.retention_ms < 0 else now + request.retention_ms
    numbers = struct.unpack(f">{len(request.keys)}q", offsets)
    for offset, (_, epoch, topic_id, metadata) in zip(numbers, request.stored, strict=True):
        yield offset_commit_value(offset, epoch, metadata, now, expiry, topic_id)


def first_batch(request: CommitRequest, now: int, offsets: bytes, headers: Headers) -> Batch:
    """Return the record batch of a request without a template."""
    return record_batch(now, zip(request.keys, commit_values(request, offsets, now), strict=True), headers)


def make_template(request: CommitRequest, body: bytes) -> Steps[CommitTemplate]:
    """Return a template for requests like this one, in steps; `request.retention_ms` is -1."""
    values = [*commit_values(request, bytes(FIELD_BYTES * len(request.keys)), 0)]
    yield len(values) * _PARTITION_BYTES
    batch = yield from record_batch_in_steps(0, zip(request.keys, values, strict=True), NO_HEADERS, STEP_PARTITIONS)
    found, end = [], _FIRST_RECORD
    for number, (key, value) in enumerate(zip(request.keys, values, strict=True)):
        begin = batch.data.index(value, batch.data.index(key, end) + len(key))
        end = begin + len(value)
        found.append((begin, end))
        if number % STEP_PARTITIONS == 0:
            yield 0
    return CommitTemplate(request, body, batch, found)


class CommitTemplates:
    """The templates that were used last, in at most MAX_BYTES of memory."""

    def __init__(self) -> None:
        self._templates: dict[Kind, list[CommitTemplate]] = {}  # the kinds used last at the end
        self._seen: dict[Kind, None] = {}  # kinds of requests that had no template
        self._bytes = 0

    def find(self, kind: Kind, body: bytes) -> tuple[CommitTemplate, bytes] | None:
        """Return the template of a request, and the offsets of the request as int64; None if there is no template."""
        templates = self._templates.pop(kind, None)
        if templates is None:
            return None
        self._templates[kind] = templates
        for template in templates:
            offsets = template.offsets(body)
            if offsets:
                if template is not templates[0]:
                    templates.remove(template)
                    templates.insert(0, template)
                return template, offsets
        return None

    def is_repeated(self, kind: Kind) -> bool:
        """Return whether another request of this kind was seen before, so that a template is worth its memory."""
        if kind in self._seen:
            del self._seen[kind]
            return True
        self._seen[kind] = None
        if len(self._seen) > _MAX_SEEN:
            del self._seen[next(iter(self._seen))]
        return False

    def keep(self, template: CommitTemplate) -> None:
        """Keep a template, in place of those of the kinds that were not used for longest."""
        templates = self._templates.pop(template.kind, [])
        templates.insert(0, template)
        self._templates[template.kind] = templates
        self._bytes += template.size()
        for dropped in templates[MAX_TEMPLATES_OF_A_KIND:]:
            self._bytes -= dropped.size()
        del templates[MAX_TEMPLATES_OF_A_KIND:]
        while self._bytes > MAX_BYTES:
            oldest = self._templates.pop(next(iter(self._templates)))
            self._bytes -= sum(each.size() for each in oldest)
