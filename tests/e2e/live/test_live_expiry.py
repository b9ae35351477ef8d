"""A live broker lets offsets go by itself: at every pass it has tombstoned what `expire` plans for that instant.

One broker keeps offsets for a minute, the shortest it can, and looks every two seconds. Its log is copied before
anything is a minute old; from that copy alone `expire` must tell what the broker does to it later, and when. No
assertion depends on how fast the machine is: the broker's own timestamps are the instants asked about.
"""

import shutil
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from confluent_kafka import Consumer

from offsetlake.lake.lake import Lake
from offsetlake.pipeline.expire.job import expire
from offsetlake.rules.policy import RetentionPolicy
from support.broker import workload
from support.broker.broker import Broker
from support.broker.workload import OpenTransaction
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle, rows
from support.lakes import new_lake
from support.oracle.log_reader import LogRecord, read_log

pytestmark = [pytest.mark.broker, pytest.mark.slow]

RETENTION_MS = 60_000
CHECK_MS = 2_000
PASS_MS = 1_000  # from a pass's look at the clock to its records' timestamp; more than that is no working broker
EXPLICIT_MS = 45_000  # shorter than retention, longer than the making of all groups may take on a busy machine
TICKS = 10
WAIT_SECONDS = 150

READ, UNREAD, TICK = "expiry-read", "expiry-unread", "expiry-tick"
GROUP_RECORDS = (2, 3, 11, 17)  # classic and simple, KIP-848, share, streams: one of these is a group's tombstone

Gone = tuple[str, str | None, int | None]
"""group_id, topic, partition of what a tombstone lets go; topic and partition None: the group itself."""

OVERRIDES = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": str(CHECK_MS),
    # Each log partition has passes of its own; with one, an earlier point of the log is an earlier instant.
    "offsets.topic.num.partitions": "1",
    # Nothing shares a batch with what came just before it, so the log can be cut behind any record.
    "group.coordinator.append.linger.ms": "0",
}

BOTH = {(READ, 0): 1, (READ, 1): 1}

Rules = dict[str, list[tuple[str | None, int | None]]]
"""Topic and partition of what each rule lets go of a group."""

OF_A_SIMPLE_GROUP: Rules = {"commit_age": [(READ, 0), (READ, 1)], "nothing_left": [(None, None)]}
PLANNED: dict[str, Rules] = {
    "simple": OF_A_SIMPLE_GROUP,
    "classic-left": {"group_empty": [(READ, 0), (READ, 1)], "nothing_left": [(None, None)]},
    "classic-fresh": {"group_empty": [(READ, 0), (READ, 1)], "nothing_left": [(None, None)]},
    "classic-live": {"unsubscribed": [(UNREAD, 0)], "explicit": [(UNREAD, 1)]},
    "848-live": {"unsubscribed": [(UNREAD, 0)], "explicit": [(UNREAD, 1)]},
    "848-pattern": {"unsubscribed": [(UNREAD, 0)]},
    "848-left": OF_A_SIMPLE_GROUP,
    "848-fresh": OF_A_SIMPLE_GROUP,
    "transaction": {"commit_age": [(READ, 1)]},
    "unmarked": {"commit_age": [(READ, 0)], "nothing_left": [(None, None)]},
    "old-client": {"explicit": [(READ, 0)], "commit_age": [(READ, 1)], "nothing_left": [(None, None)]},
    "emptied": {"nothing_left": [(None, None)]},
    "tick": {"commit_age": [(TICK, tick) for tick in range(TICKS)], "nothing_left": [(None, None)]},
}
"""What must be gone a minute after the last commit, by group and rule; "share", "connect" and "waiting" stay whole."""


@dataclass(frozen=True, slots=True)
class Expired:
    """A broker that has let everything go that is a minute old, and a lake of its log before that.

    `written` is what it tombstoned behind the end of that lake's log, with the timestamps of the records.
    """

    broker: Broker
    lake: Lake
    written: dict[Gone, int]
    open_transactions: dict[str, OpenTransaction]


@pytest.fixture(scope="module")
def expired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Expired]:
    folder = tmp_path_factory.mktemp("expiry")
    (folder / "broker").mkdir()
    with Broker(folder / "broker", OVERRIDES) as broker, ExitStack() as alive:
        open_transactions = _all_kinds_of_groups(broker.bootstrap, alive)
        copy = _log_up_to(broker, _newest(broker, ("emptied", READ, 0)), folder / "log")
        lake = new_lake(folder / "lake")
        cycle(InProcess(), lake, copy)
        end = read_log(copy)[-1].log_offset
        _await_gone(broker, end, ("tick", None, None))
        yield Expired(broker, lake, _written(broker, end), open_transactions)


@pytest.mark.long
def test_broker_expires_exactly_the_planned_offsets(expired: Expired, tmp_path: Path) -> None:
    newest = max(row["commit_timestamp"] for row in rows(expired.lake, "offsets"))
    planned = _plan(expired.lake, newest + RETENTION_MS, tmp_path / "lake")
    by_hand = {(group, *key): rule for group, of in PLANNED.items() for rule, keys in of.items() for key in keys}
    assert planned == by_hand
    assert expired.written.keys() == planned.keys()


@pytest.mark.long
def test_plan_for_the_time_of_each_broker_pass_equals_its_deletions(expired: Expired, tmp_path: Path) -> None:
    passes = sorted(set(expired.written.values()))
    assert len(passes) > 3, "all at once would tell nothing of clocks"
    for instant in passes:
        done = {gone for gone, timestamp in expired.written.items() if timestamp <= instant}
        must = _plan(expired.lake, instant - PASS_MS, tmp_path / f"{instant}-must").keys()
        may = _plan(expired.lake, instant, tmp_path / f"{instant}-may").keys()
        assert must <= done <= may, f"pass at {instant}"


@pytest.mark.long
@pytest.mark.parametrize(
    ("group", "end", "expected"),
    [
        # Its base is its own commit: the marker's time would keep it for a minute more.
        ("transaction", OpenTransaction.commit, {(READ, 0): "commit_age", (None, None): "nothing_left"}),
        # What an aborted transaction leaves behind is a group that never had an offset.
        ("waiting", OpenTransaction.abort, {(None, None): "nothing_left"}),
    ],
)
def test_group_expires_after_a_transaction_older_than_retention_ends(
    expired: Expired,
    tmp_path: Path,
    group: str,
    end: Callable[[OpenTransaction], None],
    expected: dict[tuple[str | None, int | None], str],
) -> None:
    end(expired.open_transactions[group])
    marker = next(record for record in reversed(read_log(expired.broker.data_dir)) if record.is_control)
    lake = new_lake(tmp_path / "lake")
    cycle(InProcess(), lake, _log_up_to(expired.broker, marker, tmp_path / "log"))
    planned = _plan(lake, marker.log_timestamp, tmp_path / "planned")
    assert planned == {(group, *key): rule for key, rule in expected.items()}
    _await_gone(expired.broker, marker.log_offset, (group, None, None))
    written = _written(expired.broker, marker.log_offset)
    assert written.keys() == planned.keys()
    assert max(written.values()) < marker.log_timestamp + RETENTION_MS


def _all_kinds_of_groups(bootstrap: str, alive: ExitStack) -> dict[str, OpenTransaction]:
    """Make the groups of PLANNED; gives the open transactions by group."""
    for topic, partitions in ((READ, 2), (UNREAD, 2), (TICK, TICKS)):
        workload.create_topic(bootstrap, topic, partitions)
    workload.produce(bootstrap, READ, 5)
    workload.share_group(bootstrap, "share", READ, 5)  # first: it starts a JVM, while nothing here is old yet
    _groups_with_members(bootstrap, alive)
    workload.simple_commit(bootstrap, "simple", BOTH)
    workload.old_client_commit(bootstrap, "old-client", {(READ, 0): 1}, EXPLICIT_MS)
    workload.old_client_commit(bootstrap, "old-client", {(READ, 1): 1}, -1)
    workload.simple_commit(bootstrap, "transaction", BOTH)
    open_transactions = {
        group: workload.open_transaction(bootstrap, f"of-{group}", group, {(READ, 0): 2})
        for group in ("transaction", "waiting", "unmarked")
    }
    # A deletion takes the open transaction's hold off the key, so that the next commit can expire.
    workload.delete_offsets(bootstrap, "unmarked", READ, [0])
    workload.simple_commit(bootstrap, "unmarked", {(READ, 0): 3})
    # A metronome: from a minute after its start on, nearly every pass of the broker has something to write.
    for tick in range(TICKS):
        workload.old_client_commit(bootstrap, "tick", {(TICK, tick): 1}, -1)
        if tick == TICKS - 3:
            # Some passes later than the offset beside it, which tells what clock a late commit goes by.
            workload.admin_reset(bootstrap, "classic-fresh", {(READ, 1): 0})
            workload.admin_reset(bootstrap, "848-fresh", {(READ, 1): 0})
        time.sleep(1)
    workload.delete_offsets(bootstrap, "emptied", READ, [0])  # last: the group goes at the next pass
    return open_transactions


def _groups_with_members(bootstrap: str, alive: ExitStack) -> None:
    """Make the groups that have members, or had some."""
    protocols: dict[str, Literal["classic", "consumer"]] = {"classic": "classic", "848": "consumer"}
    for name, protocol in protocols.items():
        workload.member(bootstrap, f"{name}-left", BOTH, protocol).close()
        workload.member(bootstrap, f"{name}-fresh", BOTH, protocol).close()
        live = f"{name}-live"
        # A time of its own does not help an offset out while its group is subscribed to the topic.
        workload.old_client_commit(bootstrap, live, {(READ, 1): 1, (UNREAD, 1): 1}, EXPLICIT_MS)
        member = workload.member(bootstrap, live, {(READ, 0): 1}, protocol)
        workload.commit(member, {(UNREAD, 0): 1})  # before the thread polls: with it, a commit was seen to hang
        alive.enter_context(_polled(member))
    member = workload.member(bootstrap, "848-pattern", BOTH, "consumer", pattern=f"^{READ}$")
    workload.commit(member, {(UNREAD, 0): 1})
    alive.enter_context(_polled(member))
    workload.old_client_commit(bootstrap, "connect", {(READ, 0): 1}, -1)
    workload.old_client_commit(bootstrap, "connect", {(READ, 1): 1}, EXPLICIT_MS)
    workload.connect_member(bootstrap, "connect")
    workload.member(bootstrap, "emptied", {(READ, 0): 1}, "classic").close()


@contextmanager
def _polled(member: Consumer) -> Iterator[None]:
    """Keep a member in its group as its application would, and let it leave at the end."""
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            member.poll(0.5)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        member.close()


def _plan(lake: Lake, now: int, folder: Path) -> dict[Gone, str]:
    """Run `expire` on a copy of the lake, so that every plan starts from nothing decided; gives the rules."""
    shutil.copytree(lake.location.path, folder)
    copy = Lake.open(folder)
    spark: Any = InProcess()
    expire(lambda: spark, copy, RetentionPolicy(RETENTION_MS), now, lambda _: None)
    return {(row["group_id"], row["topic"], row["partition"]): row["rule"] for row in rows(copy, "tombstones")}


def _written(broker: Broker, after: int) -> dict[Gone, int]:
    """Tombstones of offsets and groups behind a log offset, and when they were written; none comes twice."""
    found: dict[Gone, int] = {}
    for record in read_log(broker.data_dir):
        gone = _gone(record) if record.log_offset > after else None
        if gone is not None:
            assert gone not in found, f"{gone} was tombstoned twice"
            found[gone] = record.log_timestamp
    return found


def _gone(record: LogRecord) -> Gone | None:
    """Read the key of a tombstone; None for any other record and for tombstones of a group's parts."""
    if record.is_control or record.value is not None or record.key is None:
        return None
    (key_type,) = struct.unpack_from(">h", record.key)
    group_id, position = _string(record.key, 2)
    if key_type == 1:
        topic, position = _string(record.key, position)
        return group_id, topic, struct.unpack_from(">i", record.key, position)[0]
    return (group_id, None, None) if key_type in GROUP_RECORDS else None


def _string(data: bytes, position: int) -> tuple[str, int]:
    start = position + 2
    end = start + struct.unpack_from(">h", data, position)[0]
    return data[start:end].decode(), end


def _newest(broker: Broker, gone: Gone) -> LogRecord:
    return next(record for record in reversed(read_log(broker.data_dir)) if _gone(record) == gone)


def _await_gone(broker: Broker, after: int, gone: Gone) -> None:
    """Wait until the broker has written a tombstone, and for one pass more: it shows what comes of nothing being due.

    Gives up quietly: what is missing is the caller's to say.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while gone not in _written(broker, after) and time.monotonic() < deadline:
        time.sleep(0.5)
    time.sleep(CHECK_MS / 1000 + 1)


def _log_up_to(broker: Broker, last: LogRecord, folder: Path) -> Path:
    """Copy a broker's offset log as it was when `last` was its newest record, whatever has come behind it since."""
    partition = folder / "__consumer_offsets-0"
    partition.mkdir(parents=True)
    shutil.copy(broker.data_dir / "meta.properties", folder)
    (segment,) = (broker.data_dir / partition.name).glob("*.log")
    data, end = segment.read_bytes(), 0
    while struct.unpack_from(">q", data, end)[0] <= last.log_offset:
        end += 12 + struct.unpack_from(">i", data, end + 8)[0]
        if end == len(data):
            break
    (partition / segment.name).write_bytes(data[:end])
    assert read_log(folder)[-1] == last
    return folder
