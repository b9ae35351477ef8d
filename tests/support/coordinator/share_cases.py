"""Runs the cases of `tests/fixtures/share-partition-4.2.0.txt`, whose first lines describe the format."""

import re
from pathlib import Path

import pytest

from offsetlake.coordinator.share_partition.batch import RecordState
from offsetlake.coordinator.share_partition.partition import SharePartition
from offsetlake.coordinator.share_partition.requests import (
    AcknowledgementBatch,
    AcquireMode,
    AcquireRequest,
    FetchedAbortedTransaction,
    FetchedBatch,
    PersisterWrite,
)
from offsetlake.coordinator.share_partition.settings import ShareSettings
from offsetlake.coordinator.share_partition.window import InvalidShareState
from offsetlake.kafka import error_codes
from offsetlake.rules.share_state import ShareSnapshot, StateBatch
from offsetlake.serve.steps import complete

FIXTURE = Path(__file__).parents[2] / "fixtures" / "share-partition-4.2.0.txt"
_DEFAULTS = {"in-flight": 200, "deliveries": 5, "lock": 30_000}
_MEMBER = "m1"


def cases() -> dict[str, list[str]]:
    """Return the steps of each case by the name of the test of Kafka."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in FIXTURE.read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            found[name] += line.strip().split("; ")
        elif not line.startswith("#"):
            name = line
            assert name not in found
            found[name] = []
    return found


class Case:
    """A share partition, the time, and the writes so far, whose outcome is reported once."""

    def __init__(self) -> None:
        self._now, self._writes = 0, list[PersisterWrite]()
        self.load("")

    def run(self, step: str) -> None:
        """Run a step, and check what it expects."""
        kind, _, text = step.partition(" ")
        getattr(self, kind)(text)

    def load(self, text: str) -> None:
        """Load a persisted state."""
        settings, _, state = text.partition("from ")
        given = _DEFAULTS | {name: int(number) for name, number in re.findall(r"(\S+)=(\d+)", settings)}
        start, _, batches = state.partition(": ")
        snapshot = ShareSnapshot(0, 3, 0, int(start or 0), tuple(_batches(batches)))
        limits = ShareSettings(given["in-flight"], given["deliveries"], given["lock"])
        self._partition = SharePartition(limits, snapshot)

    def invalid(self, text: str) -> None:
        """Expect that a state is refused."""
        with pytest.raises(InvalidShareState):
            self.load(text)

    def fetch(self, text: str) -> None:
        """Fetch for a member, and compare what it acquires."""
        words, _, expected = text.partition(" -> ")
        offset, *rest = words.split()
        batches, aborted, options = list[FetchedBatch](), list[FetchedAbortedTransaction](), dict[str, str]()
        mode = AcquireMode.BATCH_OPTIMIZED
        while rest:
            word = rest.pop(0)
            if word == "exact":
                mode = AcquireMode.RECORD_LIMIT
            elif word in {"max", "size", "by"}:
                options[word] = rest.pop(0)
            elif word == "aborted":
                while rest and "@" in rest[0]:
                    aborted.append(FetchedAbortedTransaction(*map(int, rest.pop(0).split("@"))))
            else:
                batches.append(_fetched(word))
        limits = int(options.get("max", 2**31 - 1)), int(options.get("size", 500))
        request = AcquireRequest(options.get("by", _MEMBER), *limits, int(offset[:-1]), batches, aborted, mode)
        acquired = [
            f"{_text(first, last)}*{count}" for first, last, count in self._partition.acquire(self._now, request)
        ]
        assert acquired == expected.removeprefix("nothing").split()

    def acknowledge(self, text: str) -> None:
        """Acknowledge records, and compare the error code."""
        words, _, expected = text.partition(" -> ")
        given, _, member = words.partition(" by ")
        batches = []
        for word in given.split():
            range_, _, types = word.partition(":")
            batches.append(AcknowledgementBatch(*_range(range_), [int(each) for each in types.split(",")]))
        result = complete(self._partition.acknowledge(self._now, member or _MEMBER, batches))
        assert result.error_code == getattr(error_codes, expected)
        self._add(result.write)

    def release(self, member: str) -> None:
        """Release the records of a member."""
        self._add(self._partition.release(member))

    def advance(self, ms: str) -> None:
        """Advance the time, and run the timer if it is due."""
        self._now += int(ms)
        due = self._partition.next_timeout_ms
        if due is not None and due <= self._now:
            self._add(self._partition.time_out(self._now))

    def log_start(self, offset: str) -> None:
        """Move the log start offset."""
        self._partition.log_start_moved(int(offset))

    def written(self, number: str) -> None:
        """Report that a write is durable."""
        self._partition.persisted(self._now, self._writes[int(number) - 1])

    def failed(self, number: str) -> None:
        """Report that a write has failed."""
        self._partition.not_persisted(self._now, self._writes[int(number) - 1])

    def start(self, offset: str) -> None:
        """Expect a start offset."""
        assert self._partition.start_offset == int(offset)

    def end(self, offset: str) -> None:
        """Expect a last offset in flight."""
        assert self._partition.end_offset == int(offset)

    def next(self, offset: str) -> None:
        """Expect an offset to fetch from."""
        assert self._partition.next_fetch_offset() == int(offset)

    def complete(self, count: str) -> None:
        """Expect a number of acknowledged and archived records in flight."""
        assert self._partition.delivery_complete_count == int(count)

    def can_acquire(self, expected: str) -> None:
        """Expect that records can be acquired, or cannot."""
        assert self._partition.can_acquire() == (expected == "yes")

    def state(self, text: str) -> None:
        """Expect the state and the delivery count of records, and the member that has acquired them."""
        range_, state, count, *member = text.split()
        first, last = _range(range_)
        expected = dict.fromkeys(range(first, last + 1), (state, int(count), *member))
        found = {
            offset: (status.state.name, status.delivery_count, *_holder(status.state, status.member_id))
            for span_first, span_last, status in self._partition.spans()
            for offset in range(max(span_first, first), min(span_last, last) + 1)
        }
        assert found == expected

    def _add(self, write: PersisterWrite | None) -> None:
        if write is not None:
            self._writes.append(write)


def _holder(state: RecordState, member: str) -> tuple[str, ...]:
    return (member,) if state is RecordState.ACQUIRED else ()


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _text(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _fetched(word: str) -> FetchedBatch:
    range_, _, producer = word.removesuffix("!").partition("@")
    if not producer:
        return FetchedBatch(*_range(range_))
    return FetchedBatch(*_range(range_), int(producer), True, word.endswith("!"))


def _batches(text: str) -> list[StateBatch]:
    found: list[StateBatch] = []
    for entry in filter(None, text.split(", ")):
        range_, state, count = entry.removeprefix("each ").split()
        first, last = _range(range_)
        ranges = [(at, at) for at in range(first, last + 1)] if entry.startswith("each ") else [(first, last)]
        found += [StateBatch(*each, int(count), RecordState[state]) for each in ranges]
    return found
