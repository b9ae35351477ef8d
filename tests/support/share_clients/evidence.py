"""Compares what share consumers wrote about records with the states in `__share_group_state` and in the tables.

Consumers and the log share no code. A result counts as a promise if it came before the lock can have expired: a later
one is ignored without an error once the start offset has moved past the record, as in Kafka.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from support.share_clients.output import ACCEPT, OK, REJECT, RELEASE, read_output
from support.share_clients.state_log import ACKNOWLEDGED, ARCHIVED, AVAILABLE, STATES, State

MAX_DELIVERIES = 5
MAX_WRITE_MS = 10_000
"""How long the write of an expired lock, which is not awaited, may be lost by a kill."""

TERMINAL = {ACKNOWLEDGED, ARCHIVED}
Histories = Mapping[int, Sequence[State]]


class Delivery(NamedTuple):
    """A delivery of one record; `earliest_ms` is when it can have been acquired, `ms` when its line was written."""

    member: str
    count: int
    type: str
    ms: int | None
    earliest_ms: int


class Promise(NamedTuple):
    """A successful acknowledgement of one record, before its lock expired."""

    ms: int
    count: int
    type: str


class Consumed:
    """What the members of a group have written, by partition and offset."""

    def __init__(self) -> None:
        self.deliveries: dict[tuple[int, int], list[Delivery]] = defaultdict(list)
        self.promises: dict[tuple[int, int], list[Promise]] = defaultdict(list)
        self.results: Counter[str] = Counter()
        """Acknowledged records by result; `late` if it came when the lock may have expired."""

    def add(self, member: str, output: Path, lock_ms: int) -> None:
        """Add the output of a member."""
        delivered, acknowledged = read_output(output)
        acquired: dict[tuple[int, int, int], list[Delivery]] = defaultdict(list)
        for each in delivered:
            delivery = Delivery(member, each.count, each.type, each.ms, each.earliest_ms)
            for offset in range(each.first, each.last + 1):
                self.deliveries[each.partition, offset].append(delivery)
                acquired[each.partition, offset, each.count].append(delivery)
        for result in acknowledged:
            promise = Promise(result.ms, result.count, result.type)
            for offset in range(result.first, result.last + 1):
                earlier = acquired[result.partition, offset, result.count]
                last = max(each.earliest_ms for each in earlier if (each.ms or 0) <= result.ms)
                is_late = result.ms - last >= lock_ms
                self.results["late" if is_late and result.result == OK else result.result] += 1
                if result.result == OK and not is_late:
                    self.promises[result.partition, offset].append(promise)


def wrong_finally(
    consumed: Consumed, partition: int, end: int, histories: Histories, outages: Sequence[tuple[int, int]]
) -> Iterator[str]:
    """Yield what must not have happened to the records of a partition, all of which are completed."""
    for offset in range(end):
        states = histories.get(offset, ())
        if [each.state in TERMINAL for each in states] != [False] * (len(states) - 1) + [True]:
            yield f"record {partition}:{offset} was not completed exactly once: {states}"
            continue
        deliveries = consumed.deliveries.get((partition, offset), [])
        for reason in (
            _wrong_end(states[-1], deliveries),
            _wrong_counts(states, deliveries, outages),
            *(_broken(promise, states) for promise in consumed.promises.get((partition, offset), ())),
        ):
            if reason:
                yield f"record {partition}:{offset} {reason}: {states}, {deliveries}"


def _wrong_end(last: State, deliveries: Sequence[Delivery]) -> str:
    """Return what is wrong about the last state, which the decision of a consumer must explain."""
    types = {delivery.type for delivery in deliveries if delivery.count == last.count}
    if last.state == ACKNOWLEDGED and ACCEPT not in types:
        return "was acknowledged, but not accepted"
    if last.state == ARCHIVED and last.count < MAX_DELIVERIES and REJECT not in types:
        return "was archived before the last delivery, but not rejected"
    if last.state == ARCHIVED and last.count > MAX_DELIVERIES:
        return "was delivered too often"
    return ""


def _wrong_counts(states: Sequence[State], deliveries: Sequence[Delivery], outages: Sequence[tuple[int, int]]) -> str:
    """Return what is wrong about delivery counts: they increase, and each of them is that of one delivery.

    A delivery that was not completed before the process was killed does not count, so that the next one has its number.
    """
    available = [each.count for each in states if each.state == AVAILABLE]
    if available != sorted(set(available)):
        return "has delivery counts that do not increase"
    for delivery in deliveries:
        is_first = delivery.count == 1 or delivery.count - 1 in available
        is_cut = delivery.ms is None or _was_killed(delivery.earliest_ms, delivery.ms + MAX_WRITE_MS, outages)
        if not 1 <= delivery.count <= MAX_DELIVERIES or not (is_first or is_cut):
            return f"was delivered for the {delivery.count}th time, but not released before"
    timed = sorted((each for each in deliveries if each.ms is not None), key=lambda each: (each.count, each.ms))
    for former, later in itertools.pairwise(timed):
        begin = min(former.earliest_ms, later.earliest_ms)
        if former.count == later.count and not _was_killed(begin, later.ms or 0, outages):
            return "was delivered to two members at the same time"
    return ""


def _was_killed(begin_ms: int, end_ms: int, outages: Sequence[tuple[int, int]]) -> bool:
    return any(begin_ms <= end and start <= end_ms for start, end in outages)


def _broken(promise: Promise, states: Sequence[State]) -> str:
    """Return what is wrong if a successful acknowledgement is not in the log."""
    state = {ACCEPT: ACKNOWLEDGED, REJECT: ARCHIVED, RELEASE: AVAILABLE}[promise.type]
    if state == AVAILABLE and promise.count == MAX_DELIVERIES:
        state = ARCHIVED
    return "" if State(state, promise.count) in states else f"has lost the acknowledgement {promise}"


def wrong_tables(
    rows: Mapping[tuple[str, int], Mapping[str, Any]],
    key: tuple[str, int],
    histories: Histories,
    consumed: Consumed,
    killed_ms: int,
) -> Iterator[str]:
    """Yield how a share partition in the tables differs from the log and from what consumers wrote before a kill."""
    row = rows.get(key)
    if row is None:
        if histories:
            yield f"the tables do not contain the share partition {key}"
        return
    start = row["start_offset"] or 0  # None: no member has read it
    states = {
        offset: (batch["delivery_state"], batch["delivery_count"])
        for batch in row["batches"]
        for offset in range(batch["first_offset"], batch["last_offset"] + 1)
    }
    expected = {
        offset: (STATES[each[-1].state], each[-1].count) for offset, each in histories.items() if offset >= start
    }
    if states != expected:
        different = sorted(offset for offset in {*states, *expected} if states.get(offset) != expected.get(offset))
        yield f"the tables differ from the log in {key} at {different[:5]}"
    if open_before := [
        offset for offset in range(start) if histories.get(offset, [State(0, 0)])[-1].state not in TERMINAL
    ]:
        yield f"the start offset {start} in the tables is after open records of {key}: {open_before[:5]}"
    for (partition, offset), promises in consumed.promises.items():
        for promise in promises if partition == key[1] and offset >= start else ():
            state, count = states.get(offset, ("none", 0))
            is_kept = count > promise.count or (
                count == promise.count and (promise.type == RELEASE or state != "available")
            )
            if promise.ms < killed_ms and not is_kept:
                yield f"the tables do not contain {promise} of {key} at {offset}: {state}, {count}"
