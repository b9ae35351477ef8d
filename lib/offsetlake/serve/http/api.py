"""What is answered by HTTP: health, groups and their offsets, now or at an instant, commits that compare, deletions."""

import asyncio
import math
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from offsetlake.errors import LogUnavailable
from offsetlake.kafka import error_codes
from offsetlake.kafka.audit import headers as audit_headers
from offsetlake.serve.auth.acl import ADMIN, COMMIT, READ
from offsetlake.serve.components import ServerComponents
from offsetlake.serve.http import answers
from offsetlake.serve.http.access import audit_headers_of, client_of, guarded
from offsetlake.serve.http.answers import Problem, VisibleJSONResponse, documented
from offsetlake.serve.http.compare_and_commit import CompareAndCommit, ExpectedCommit, Outcome
from offsetlake.serve.http.group_pages import page
from offsetlake.serve.http.offsets import read_offsets
from offsetlake.serve.http.prometheus import ThrottledGroupsCollector
from offsetlake.serve.steps import complete_in_turns
from offsetlake.serve.storage.child_process import ChildFailed, ask
from offsetlake.serve.writes.deletions import Deletions
from offsetlake.util.times import to_iso, to_ms

HISTORY_SECONDS = 60.0  # a question about an instant may take, and wait for others before it
_IN_USE = "its members commit for it: stop them first"

_OF_CODES = {
    error_codes.UNKNOWN_MEMBER_ID: ("group-in-use", f"group {{group!r}} has members, and {_IN_USE}"),
    error_codes.NON_EMPTY_GROUP: ("group-in-use", f"group {{group!r}} has members, and {_IN_USE}"),
    error_codes.GROUP_SUBSCRIBED_TO_TOPIC: (
        "group-in-use",
        "group {group!r} is subscribed to the topic, and " + _IN_USE,
    ),
    error_codes.UNSTABLE_OFFSET_COMMIT: (
        "transaction-open",
        "an open transaction holds an offset of group {group!r}: nothing was written, try again when it has ended",
    ),
    error_codes.GROUP_ID_NOT_FOUND: ("group-not-found", "there is no group {group!r}, or it is a share group"),
    error_codes.INVALID_REQUEST: ("share-group", "{group!r} is a share group: act on it through its own cluster"),
    error_codes.UNKNOWN_TOPIC_OR_PARTITION: (
        "partition-not-found",
        "a partition named here is none of the server's --topics, or above all that a topic has: nothing was written",
    ),
    error_codes.NOT_COORDINATOR: ("log-broken", "the log takes no more: nothing was written; look at the server's log"),
}


class Api:
    """Answers over the parts of a serving process; until that is loaded most of them say so."""

    def __init__(self, parts: ServerComponents, registry: CollectorRegistry) -> None:
        self._parts, self._registry = parts, registry
        self._deletions = Deletions(parts.store, parts.topics, parts.writes, parts.log_partition)
        self._history = asyncio.Lock()  # one child at a time

    def router(self) -> APIRouter:
        """Give the routes."""
        router, asking_first = APIRouter(), guarded(self._parts.security)

        def route(method: str, path: str, handler: Callable[..., Any], *problems: str, **more: Any) -> None:
            responses = documented(*problems, "internal")
            of = asking_first if "not-logged-in" in problems else None
            router.add_api_route(path, handler, methods=[method], responses=responses, route_class_override=of, **more)

        asked = ("makes-no-sense", "loading", "not-logged-in", "not-allowed")
        route("GET", "/livez", self.live, response_model=answers.Health)
        route("GET", "/readyz", self.ready, "loading", "log-broken", response_model=answers.Health)
        route("GET", "/metrics", self.metrics, "not-logged-in", response_class=PlainTextResponse)
        route("GET", "/v1/snapshot", self.snapshot, "loading", "not-logged-in", response_model=answers.SnapshotAnswer)
        route("GET", "/v1/groups", self.groups, *asked, response_model=answers.GroupsPage)
        missing = ("group-not-found", "before-history", "history-unavailable")
        route("GET", "/v1/offsets", self.offsets, *asked, *missing, response_model=answers.Offsets)
        body = ("no-json", "too-large", "changed-since", "transaction-open", "group-in-use", "too-many-commits")
        gone = ("group-not-found", "partition-not-found", "log-broken")
        route("POST", "/v1/commit", self.commit, *asked, *body, *gone, response_model=answers.CommitResult)
        deleted: dict[str, Any] = {"status_code": 204, "response_class": Response}
        route("DELETE", "/v1/offsets", self.delete_offset, *asked, *gone, "group-in-use", **deleted)
        whole = ("group-not-found", "group-in-use", "share-group", "log-broken")
        route("DELETE", "/v1/groups", self.delete_group, *asked, *whole, **deleted)
        return router

    async def live(self) -> dict[str, str]:
        """Tell that the process answers."""
        return {"status": "live"}

    async def ready(self) -> dict[str, str]:
        """Tell that the log is loaded and takes writes."""
        self._check_loaded()
        if self._parts.writes.broken is not None:
            raise Problem("log-broken", f"{self._parts.writes.broken}: reads go on; restart the server")
        return {"status": "ready"}

    async def metrics(self, request: Request) -> Response:
        """Give what Prometheus asks for, in its text format."""
        groups = ThrottledGroupsCollector(self._parts, client_of(request).access)
        written = generate_latest(self._registry) + generate_latest(groups)
        return Response(written, headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4})

    async def snapshot(self) -> dict[str, Any]:
        """Tell which snapshot is served, and up to where it and the log reach."""
        self._check_loaded()
        base, ends = self._parts.store.base, self._parts.appender.ends()
        position = [
            {"log_partition": partition, "snapshot_end": end, "log_end": ends.get(partition, end)}
            for partition, end in base.position.items()
        ]
        of = {"version": base.version, "made_at": to_iso(base.made), "position": position}
        return of | {"offsets": len(base), "groups": len(base.groups)}

    async def groups(self, request: Request, asked: Annotated[answers.OfGroups, Query()]) -> dict[str, Any]:
        """List groups page by page, in an order of the server's own; `state` and `type` as Kafka names them."""
        client = client_of(request)
        self._check_loaded()
        wanted = {"state": asked.state, "group_type": asked.type}
        named = {field: text.lower() for field, text in wanted.items() if text is not None}
        found, following = await page(
            self._parts.store,
            0 if asked.after is None else int(asked.after, 16),
            asked.limit,
            lambda name, kind: (
                all(kind[field].lower() == text for field, text in named.items()) and client.access.sees(name)
            ),
        )
        listed = [
            {"group": name.decode(), "type": kind["group_type"]}
            | {"state": kind["state"], "protocol_type": kind["protocol_type"]}
            for name, kind in found
        ]
        return {"groups": listed, "next": None if following is None else f"{following:08x}"}

    async def offsets(self, request: Request, asked: Annotated[answers.OfOffsets, Query()]) -> Response:
        """Give the offsets of a group: what is committed now, or what was at an instant as far as the lake knows."""
        client_of(request, READ, asked.group)
        self._check_loaded()
        if asked.as_of is not None:
            return VisibleJSONResponse(await self._offsets_as_of(asked, to_ms(asked.as_of)))
        group = asked.group.encode()
        if self._parts.store.group(group) is None:
            raise _no_group(asked.group)
        found = await complete_in_turns(read_offsets(self._parts.store.group_offsets(group), asked.topic))
        return VisibleJSONResponse({"group": asked.group, "as_of": None, "history_ends": None, "offsets": found})

    async def _offsets_as_of(self, asked: answers.OfOffsets, instant: int) -> dict[str, Any]:
        wanted = {"lake": self._parts.settings.lake, "group": asked.group, "topic": asked.topic, "as_of": instant}
        try:
            async with asyncio.timeout(HISTORY_SECONDS), self._history:
                found = await ask("offsetlake.serve.http.as_of", wanted)
        except ChildFailed as error:
            raise Problem("history-unavailable", str(error)) from error
        except TimeoutError as error:
            raise Problem(
                "history-unavailable",
                f"the lake {self._parts.settings.lake} did not say within {HISTORY_SECONDS:.0f} s what was "
                "stored then: ask it with `offsetlake offsets --as-of`, which has all the time it takes",
                {"retry-after": f"{HISTORY_SECONDS:.0f}"},
            ) from error
        if found["offsets"] is None:
            begins = "is empty" if found["begins"] is None else f"begins at {to_iso(found['begins'])}"
            raise Problem(
                "before-history",
                f"the history in the lake {self._parts.settings.lake} {begins}: nothing is known of {to_iso(instant)}",
            )
        if not found["offsets"]:
            raise Problem("group-not-found", f"group {asked.group!r} had no offsets like that at {to_iso(instant)}")
        ends = None if found["ends"] is None else to_iso(found["ends"])
        of = {"group": asked.group, "as_of": to_iso(instant), "history_ends": ends}
        return of | {"offsets": found["offsets"]}

    async def commit(self, request: Request, wanted: answers.WantedCommit) -> dict[str, int]:
        """Store offsets of a group if what stands is what is expected: all of them in one record batch, or none.

        For a group without members. Whoever else commits at the same time: one of them is first, and the others are
        told what stands now.
        """
        client = client_of(request, COMMIT, wanted.group)
        self._check_loaded()
        self._check_quota(wanted.group)
        group, done = wanted.group.encode(), asyncio.get_running_loop().create_future()
        partition = self._parts.log_partition(group)
        exchanges = [
            ExpectedCommit(
                of.topic.encode(),
                of.partition,
                of.expected,
                of.offset,
                -1 if of.leader_epoch is None else of.leader_epoch,
                of.metadata.encode(),
            )
            for of in wanted.offsets
        ]
        self._parts.writes.add(
            CompareAndCommit(
                partition,
                group,
                exchanges,
                self._parts.store,
                self._parts.topics,
                audit_headers_of(client, request, audit_headers.COMMIT),
                done,
            )
        )
        try:
            outcome: Outcome = await done
        except LogUnavailable as error:
            raise Problem("log-broken", f"{error}; nothing was written") from error
        _check(outcome.error, wanted.group)
        if outcome.differing:
            standing = [
                {"topic": of.topic.decode(), "partition": of.partition}
                | {"committed_offset": None if of.stored is None else of.stored[0]}
                for of in outcome.differing
            ]
            raise Problem(
                "changed-since",
                f"of group {wanted.group!r} something else stands in {len(standing)} of {len(exchanges)} partitions: "
                "nothing was written; look at what stands and decide again",
                standing=standing,
            )
        return {"log_partition": partition, "log_offset": outcome.log_offset}

    async def delete_group(self, request: Request, asked: Annotated[answers.OfGroup, Query()]) -> None:
        """Delete a group without members, and all of its offsets."""
        audit = audit_headers_of(client_of(request, ADMIN, asked.group), request, audit_headers.DELETE_GROUP)
        self._check_loaded()
        await _decided(asked.group, lambda done: self._deletions.delete_group(asked.group.encode(), audit, done))

    async def delete_offset(self, request: Request, asked: Annotated[answers.OfOffset, Query()]) -> None:
        """Delete an offset of a group that is not subscribed to its topic; one that is not there is none."""
        audit = audit_headers_of(client_of(request, ADMIN, asked.group), request, audit_headers.DELETE_OFFSETS)
        self._check_loaded()
        group, topic = asked.group.encode(), asked.topic.encode()
        await _decided(
            asked.group, lambda done: self._deletions.delete_offset(group, topic, asked.partition, audit, done)
        )

    def _check_quota(self, group: str) -> None:
        quota = self._parts.quota
        rest_ms = 0 if quota is None else quota.refusal_ms(group.encode())
        if rest_ms:
            raise Problem(
                "too-many-commits",
                f"group {group!r} commits more often than commits_per_second allows: nothing was written",
                {"retry-after": f"{math.ceil(rest_ms / 1000)}"},
            )

    def _check_loaded(self) -> None:
        if self._parts.store.loading:
            raise Problem(
                "loading",
                "the server has begun to load the log, and does not know all of it yet: try again in a moment",
                {"retry-after": "1"},
            )


async def _decided(group: str, delete: Callable[[Callable[[int], None]], None]) -> None:
    """Wait for what comes of a deletion; raises Problem."""
    decided: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    delete(lambda error: None if decided.cancelled() else decided.set_result(error))
    _check(await decided, group)


def _check(error: int, group: str) -> None:
    if error:
        name, says = _OF_CODES[error]
        raise Problem(name, says.format(group=group))


def _no_group(group: str) -> Problem:
    return Problem("group-not-found", f"there is no group {group!r}: `/v1/groups` lists those there are")
