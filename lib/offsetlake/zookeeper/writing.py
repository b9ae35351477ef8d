"""Writes the offsets of groups to znodes, only where these were not changed since they were read.

The changes of a group are one request of ZooKeeper (`multi`), which is atomic, unless the request is larger than
MAX_REQUEST_BYTES: then each of several requests is.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError, RolledBackError, RuntimeInconsistency

from offsetlake.errors import BadRequest
from offsetlake.zookeeper.active_consumers import ROOT, active_consumers
from offsetlake.zookeeper.client import LOST, read_many

MAX_REQUEST_BYTES = 512 * 1024
"""Half of what a server accepts by default (jute.maxbuffer), because it stores more than it receives."""

CHANGED_MEANWHILE = "a znode of the group was changed meanwhile: run the command again"
_MAX_PENDING_REQUESTS = 10
_CHANGE_BYTES = 64  # of a change beside its path and content
_PROGRESS_CHANGES = 50_000
_NO_NAME = re.compile("[\0-\x1f/\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")  # org.apache.zookeeper.common.PathUtils


@dataclass(slots=True)
class OffsetChange:
    """The change of the znode of an offset.

    | Field    | Description |
    |----------|-------------|
    | content  | The content to write; None deletes the znode. |
    | previous | The content, None for no znode; set by `compare`. |
    | version  | The version of the znode with that content. |
    | outcome  | planned, unchanged, refused or done. |
    | reason   | Why the change is refused. |
    """

    group_id: str
    topic: str
    partition: int
    content: bytes | None
    reason: str | None = None
    previous: bytes | None = None
    version: int | None = None
    outcome: str = "planned"

    @property
    def path(self) -> str:
        """The path of the znode, without the chroot."""
        return f"{ROOT}/{self.group_id}/offsets/{self.topic}/{self.partition}"

    def refuse(self, reason: str) -> None:
        """Set the outcome to refused, unless it was refused for another reason."""
        self.outcome, self.reason = "refused", self.reason or reason


def is_name(name: str) -> bool:
    """Check whether a name can be that of a znode."""
    return name not in {"", ".", ".."} and _NO_NAME.search(name) is None


def _name_problem(change: OffsetChange) -> str | None:
    """Return why a change has no path; None if it has one."""
    for kind, name in (("group", change.group_id), ("topic", change.topic)):
        if not is_name(name):
            return f"the name of the {kind} cannot be the name of a znode"
    return None


def compare(client: KazooClient, changes: Sequence[OffsetChange], *, spares_active: bool = True) -> None:
    """Set what the znodes contain and the outcome of each change: planned, unchanged or refused.

    Changes with a reason, of groups with active consumers if `spares_active` is set, and of groups whose name cannot
    be that of a znode, are refused.

    Raises:
        BadRequest: `/consumers` does not exist.
    """
    if client.retry(client.exists, ROOT) is None:
        raise BadRequest(f"ZooKeeper has no znode {client.chroot}{ROOT}: check the chroot of the cluster.")
    for change in changes:
        problem = _name_problem(change) or change.reason
        if problem is not None:
            change.refuse(problem)
    possible = [change for change in changes if change.outcome == "planned"]
    groups = dict.fromkeys(change.group_id for change in possible)
    active = active_consumers(client, groups) if spares_active else {}
    responses = read_many(client, "get", (change.path for change in possible))
    for change, (_, response) in zip(possible, responses, strict=True):
        if not isinstance(response, KazooException):
            change.previous, stat = response
            change.version = stat.version
        elif not isinstance(response, NoNodeError):
            change.refuse(f"{change.path} cannot be read ({type(response).__name__}): check its ACL")
        if change.previous == change.content:
            change.outcome = "unchanged"
        elif change.group_id in active:
            change.refuse(active[change.group_id])


def requests(changes: Iterable[OffsetChange]) -> Iterator[list[OffsetChange]]:
    """Yield the planned changes of each request. The changes of a group follow each other."""
    planned = (change for change in changes if change.outcome == "planned")
    for _, of_group in groupby(planned, lambda change: change.group_id):
        request: list[OffsetChange] = []
        size = 0
        for change in of_group:
            own = len(change.path.encode()) * 2 + _CHANGE_BYTES  # its parents are shorter than it
            if request and size + own > MAX_REQUEST_BYTES:
                yield request
                request, size = [], 0
            request.append(change)
            size += own
        yield request


def write(client: KazooClient, changes: Sequence[OffsetChange], progress: Callable[[int], None]) -> None:
    """Make the planned changes, and set their outcome: done, or refused if a znode was changed since `compare`.

    Args:
        client: The client. A request whose connection was lost is repeated unless it was executed.
        changes: Changes after `compare`.
        progress: Called with the number of changes that were tried, now and then.
    """
    pending: deque[tuple[list[OffsetChange], Any]] = deque()
    missing = _missing_parents(client, changes)
    count = 0
    for request in requests([*changes]):
        pending.append((request, _send(client, request, missing)))
        missing -= {*_parents(request)}
        if len(pending) >= _MAX_PENDING_REQUESTS:
            _finish(client, *pending.popleft())
        if (count + len(request)) // _PROGRESS_CHANGES > count // _PROGRESS_CHANGES:
            progress(count + len(request))
        count += len(request)
    while pending:
        _finish(client, *pending.popleft())


def _parents(changes: Iterable[OffsetChange]) -> dict[str, None]:
    """Return the parents of znodes below `/consumers`, each after its own parent."""
    parents: dict[str, None] = {}
    for change in changes:
        group = f"{ROOT}/{change.group_id}"
        parents |= dict.fromkeys((group, f"{group}/offsets", f"{group}/offsets/{change.topic}"))
    return parents


def _missing_parents(client: KazooClient, changes: Iterable[OffsetChange]) -> set[str]:
    created = [change for change in changes if change.outcome == "planned" and change.version is None]
    responses = read_many(client, "get", _parents(created))
    return {path for path, response in responses if isinstance(response, NoNodeError)}


def _send(client: KazooClient, request: list[OffsetChange], missing: set[str]) -> Any:
    """Send a request that also creates the parents that are missing; return kazoo's asynchronous result."""
    transaction = client.transaction()
    for path in _parents(request):
        if path in missing:
            transaction.create(path)
    for change in request:
        if change.content is None:
            transaction.delete(change.path, change.version)
        elif change.version is None:
            transaction.create(change.path, change.content)
        else:
            transaction.set_data(change.path, change.content, change.version)
    return transaction.commit_async()


def _finish(client: KazooClient, request: list[OffsetChange], result: Any) -> None:
    """Wait for the result of a request, and set the outcome of its changes."""
    while True:
        try:
            problems = [each for each in result.get() if isinstance(each, KazooException)]
        except LOST:
            problems = None
        if problems == [] or _was_executed(client, request):
            break
        if problems is not None:
            for change in request:
                change.refuse(_problem(problems))
            return
        result = _send(client, request, _missing_parents(client, request))
    for change in request:
        change.outcome = "done"


def _was_executed(client: KazooClient, request: list[OffsetChange]) -> bool:
    """Return whether all znodes have the contents of a request whose response was lost, or which was repeated."""
    for change, (_, response) in zip(request, read_many(client, "get", (each.path for each in request)), strict=True):
        if isinstance(response, NoNodeError):
            is_same = change.content is None
        else:
            is_same = not isinstance(response, KazooException) and response[0] == change.content
        if not is_same:
            return False
    return True


def _problem(problems: list[KazooException]) -> str:
    own = [each for each in problems if not isinstance(each, RolledBackError | RuntimeInconsistency)]
    if any(isinstance(each, NoAuthError) for each in own):
        return "an ACL forbids to write a znode of the group: check --zookeeper-config"
    return CHANGED_MEANWHILE
