"""The lock of a lake in an object store: a lease, an object that its holder renews and others may take over.

| field    | meaning |
|----------|---------|
| epoch    | grows with each holder |
| token    | the holder: random, so that a process knows its own lease |
| holder   | the holder for people: job, process and machine |
| since    | when the holder took it, by its clock, for people only |
| renewal  | grows with each renewal |
| released | whether the holder has finished |

The object is created with `If-None-Match` and replaced with `If-Match`, so only one process can take a lease. No clocks
are compared: a process that waits takes a lease over if the object has not changed for TTL_SECONDS of its own clock.
A holder that was paused for longer finds that out at its next renewal or check. Because it may be paused once more
between a check and its commit, the process that took the lease over first commits its epoch to every table: a commit
that was prepared before that has the name of an entry that exists, and is refused (`lake.delta.open_tables`).
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from offsetlake.errors import LakeBusy, LakeUnusable
from offsetlake.lake.location.location import LOCK, WAIT_SECONDS, Lease
from offsetlake.util.times import now_ms, to_iso

if TYPE_CHECKING:
    from obstore.store import ObjectStore

TTL_SECONDS = 30.0
RENEWAL_SECONDS = 10.0
_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Holder:
    """The content of a lease object."""

    epoch: int
    token: str
    holder: str
    since: str
    renewal: int = 0
    released: bool = False


class _Object:
    """The lease object of a location."""

    def __init__(self, client: "ObjectStore", location: str) -> None:
        self._client, self.location = client, location

    def get(self) -> tuple[Holder | None, str | None]:
        """Return the content of the object with its ETag; None if it does not exist. Raises LakeUnusable."""
        try:
            found = obstore.get(self._client, LOCK)
            return Holder(**json.loads(bytes(found.bytes()))), found.meta["e_tag"]
        except FileNotFoundError:
            return None, None
        except (TypeError, ValueError) as error:
            raise LakeUnusable(
                f"{self.location}/{LOCK} is not a lease ({error}): make sure that no job writes to the lake, then "
                "remove the object"
            ) from error

    def put(self, holder: Holder, etag: str | None) -> str | None:
        """Replace the object with this ETag, or create it if None; return its new ETag, or None if it has another.

        If the answer to a put that succeeded was lost, the client has sent it again, and was refused.
        """
        try:
            content = json.dumps(asdict(holder)).encode()
            return obstore.put(self._client, LOCK, content, mode={"e_tag": etag} if etag else "create")["e_tag"]
        except (AlreadyExistsError, PreconditionError):
            current, current_etag = self.get()
            return current_etag if current == holder else None


class StoreLease(Lease):
    """A lease that a thread of this process renews until it is released or lost."""

    def __init__(self, target: _Object, holder: Holder, etag: str, *, taken_over: bool) -> None:
        self.epoch, self.taken_over, self.fenced = holder.epoch, taken_over, not taken_over
        self._object, self._holder, self._etag = target, holder, etag
        self._renewed = time.monotonic()
        self._lost = False
        self._guard, self._end = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._renew_until_end, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Renew the lease unless that was done recently; raise LakeBusy if another process has taken it over."""
        if time.monotonic() - self._renewed >= RENEWAL_SECONDS:
            self._renew()
        if self._lost:
            raise self._taken()

    def release(self) -> None:
        """Write that the holder has finished, so that the next one need not wait; not if the fence is incomplete."""
        self._end.set()
        self._thread.join()
        if self.fenced and not self._lost:
            with suppress(BaseError):  # the store is unavailable: the lease expires
                self._object.put(replace(self._holder, released=True), self._etag)

    def _renew_until_end(self) -> None:
        while not self._end.wait(RENEWAL_SECONDS) and not self._lost:
            try:
                self._renew()
            except BaseError:  # the store is unavailable: `check` raises the error, if a commit comes before it is back
                continue

    def _renew(self) -> None:
        with self._guard:
            renewed = replace(self._holder, renewal=self._holder.renewal + 1)
            etag = self._object.put(renewed, self._etag)
            if etag is None:
                self._lost = True
            else:
                self._holder, self._etag, self._renewed = renewed, etag, time.monotonic()

    def _taken(self) -> LakeBusy:
        current, _ = self._object.get()
        by = f" by {current.holder}, which has it since {current.since}" if current else ""
        return LakeBusy(
            f"this job had not renewed its lease on {self._object.location} for {TTL_SECONDS:.0f} s, and it was taken "
            f"over{by}: nothing more was committed; run the command again"
        )


@contextmanager
def acquire(client: "ObjectStore", location: str, job: str, waiting: Callable[[str], None]) -> Iterator[StoreLease]:
    """Take the lease of a location, and release it at the end; raise LakeBusy if that takes more than WAIT_SECONDS."""
    lease = _take(_Object(client, location), f"{job} (process {os.getpid()} on {socket.gethostname()})", waiting)
    try:
        yield lease
    finally:
        lease.release()


def _take(target: _Object, name: str, waiting: Callable[[str], None]) -> StoreLease:
    current, etag = target.get()
    seen_at = deadline = time.monotonic()
    deadline += WAIT_SECONDS
    reported = False
    while True:
        expired = current is not None and time.monotonic() - seen_at >= TTL_SECONDS
        if current is None or current.released or expired:
            epoch = current.epoch + 1 if current else 1
            holder = Holder(epoch, uuid.uuid4().hex, name, to_iso(now_ms()))
            taken = target.put(holder, etag)
            if taken is not None:
                return StoreLease(target, holder, taken, taken_over=expired)
        elif time.monotonic() > deadline:
            raise LakeBusy(
                f"{current.holder} still writes to {target.location} after {WAIT_SECONDS} s, since {current.since}: "
                "try again"
            )
        elif not reported:
            waiting(
                f"waiting for {current.holder}, which writes to {target.location} since {current.since}; if it has "
                f"ended, this job continues after {TTL_SECONDS:.0f} s"
            )
            reported = True
        time.sleep(_POLL_SECONDS if current and not current.released else 0)
        current, newest = target.get()
        if newest != etag:
            etag, seen_at = newest, time.monotonic()
