"""The HTTP API: health, groups, their offsets now or at a timestamp, compare-and-commit, and deletions."""

import asyncio
import math
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from offsetlake.auth.acl import ADMIN, COMMIT, READ
from offsetlake.errors import LogUnavailable
from offsetlake.kafka.audit import headers as audit_headers
from offsetlake.kafka.records.coordinator_records import OFFSETS_TOPIC
from offsetlake.log.disk.lacking import LACKING_REMEDY
from offsetlake.serve.core import Core
from offsetlake.serve.steps import complete_in_turns
from offsetlake.serve.storage.group_details import GroupKind
from offsetlake.util.times import to_iso, to_ms
from offsetlake.web.http.access import audit_headers_of, authenticated_route, client_of
from offsetlake.web.http.api import response_models
from offsetlake.web.http.api.compare_and_commit import CommitOutcome, CompareAndCommit, ExpectedCommit
from offsetlake.web.http.api.group_pages import page
from offsetlake.web.http.api.history import OffsetHistory
from offsetlake.web.http.api.offsets import read_offsets
from offsetlake.web.http.api.request_models import (
    CommitBody,
    GroupQuery,
    GroupsQuery,
    OffsetQuery,
    OffsetsQuery,
    RewindBody,
)
from offsetlake.web.http.api.rewind import rewind
from offsetlake.web.http.json_response import VisibleJSONResponse
from offsetlake.web.http.problems import Problem, documented, problem_of_error_code
from offsetlake.web.http.prometheus import ThrottledGroupsCollector

_MAX_NAMED = 10


class Api:
    """Handles HTTP requests; most of them fail with `loading` until the log is loaded."""

    def __init__(self, core: Core, registry: CollectorRegistry) -> None:
        self._core, self._registry = core, registry
        self._deletions = core.deletions
        self._history = OffsetHistory(core.settings.lake)

    def router(self) -> APIRouter:
        """Return the routes."""
        router, authenticated = APIRouter(), authenticated_route(self._core.security)

        def route(method: str, path: str, handler: Callable[..., Any], *problems: str, **options: Any) -> None:
            responses = documented(*problems, "internal")
            route_class = authenticated if "authentication-required" in problems else None
            router.add_api_route(
                path, handler, methods=[method], responses=responses, route_class_override=route_class, **options
            )

        common = (
            "invalid-request",
            "loading",
            "log-partition-not-read",
            "authentication-required",
            "permission-denied",
        )
        route("GET", "/livez", self.live, response_model=response_models.Health)
        route(
            "GET",
            "/readyz",
            self.ready,
            "loading",
            "log-not-writable",
            response_model=response_models.Readiness,
            response_model_exclude_none=True,
        )
        route("GET", "/metrics", self.metrics, "authentication-required", response_class=PlainTextResponse)
        route(
            "GET",
            "/v1/snapshot",
            self.snapshot,
            "loading",
            "authentication-required",
            response_model=response_models.SnapshotDescription,
        )
        route("GET", "/v1/groups", self.groups, *common, response_model=response_models.GroupsPage)
        missing = ("group-not-found", "before-history", "history-unavailable", "offsets-unknown")
        route("GET", "/v1/offsets", self.offsets, *common, *missing, response_model=response_models.Offsets)
        body = ("invalid-json", "too-large", "offsets-changed", "transaction-open", "group-in-use", "too-many-commits")
        partitions = ("group-not-found", "partition-not-found", "log-not-writable", "offsets-unknown")
        result: dict[str, Any] = {"response_model": response_models.CommitResult}
        route("POST", "/v1/commit", self.commit, *common, *body, *partitions, **result)
        refusals = ("invalid-json", "too-large", "rewind-refused", *partitions)
        route("POST", "/v1/rewind", self.rewind, *common, *refusals, **result)
        no_content: dict[str, Any] = {"status_code": 204, "response_class": Response}
        route("DELETE", "/v1/offsets", self.delete_offset, *common, *partitions, "group-in-use", **no_content)
        groups = ("group-not-found", "group-in-use", "log-not-writable")
        route("DELETE", "/v1/groups", self.delete_group, *common, *groups, **no_content)
        return router

    async def live(self) -> dict[str, str]:
        """Return that the process is alive."""
        return {"status": "live"}

    async def ready(self) -> dict[str, Any]:
        """Return whether the log is loaded and accepts writes, and whether the cluster of a broker is available."""
        self._check_loaded()
        if self._core.writes.broken is not None:
            raise Problem(
                "log-not-writable",
                f"{self._core.writes.broken} Reads continue; restart the server to write again.",
            )
        snapshot = self._core.store.snapshot
        lacking = {topic: sorted(numbers) for topic, numbers in snapshot.not_read.items()}
        state: dict[str, Any] = {
            "status": "ready",
            "log_partitions_not_read": lacking or None,
            "log_offsets_missing": snapshot.missing or None,
        }
        for feature in self._core.features:
            state |= feature.readiness()
        return state

    async def metrics(self, request: Request) -> Response:
        """Return the metrics in Prometheus's text format."""
        groups = ThrottledGroupsCollector(self._core, client_of(request).access)
        text = generate_latest(self._registry) + generate_latest(groups)
        return Response(text, headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4})

    async def snapshot(self) -> dict[str, Any]:
        """Return the version of the mapped snapshot, and the ends of the snapshot and of the log."""
        self._check_loaded()
        snapshot, ends = self._core.store.snapshot, self._core.appender.ends()
        position = [
            {"log_partition": partition, "snapshot_end": end, "log_end": ends.get(partition, end)}
            for partition, end in snapshot.position.items()
        ]
        return {
            "version": snapshot.version,
            "made_at": to_iso(snapshot.created_ms),
            "offsets": len(snapshot),
            "groups": len(snapshot.groups),
            "position": position,
        }

    async def groups(self, request: Request, query: Annotated[GroupsQuery, Query()]) -> dict[str, Any]:
        """Return a page of groups, in no particular order; `state` and `type` are Kafka's names."""
        client = client_of(request)
        self._check_loaded()
        state, group_type = (None if text is None else text.lower() for text in (query.state, query.type))

        def matches(name: bytes, kind: GroupKind) -> bool:
            has_state = state is None or kind["state"].lower() == state
            has_type = group_type is None or kind["group_type"].lower() == group_type
            return has_state and has_type and client.access.sees(name)

        first_hash = 0 if query.after is None else int(query.after, 16)
        groups, next_hash = await page(self._core.store, first_hash, query.limit, matches)
        rows = [
            {
                "group": name.decode(), "type": kind["group_type"], "state": kind["state"],
                "protocol_type": kind["protocol_type"],
            }
            for name, kind in groups
        ]  # fmt: skip
        return {"groups": rows, "next": None if next_hash is None else f"{next_hash:08x}"}

    async def offsets(self, request: Request, query: Annotated[OffsetsQuery, Query()]) -> Response:
        """Return the committed offsets of a group, either now or at a timestamp, as far as the lake covers it."""
        client_of(request, READ, query.group)
        self._check_available(query.group)
        if query.as_of is not None:
            return VisibleJSONResponse(await self._history.offsets(query, to_ms(query.as_of)))
        group = query.group.encode()
        self._check_known_offsets(query)
        if self._core.store.group(group) is None:
            raise _group_not_found(query.group)
        rows = await complete_in_turns(read_offsets(self._core.store.group_offsets(group), query.topic))
        return VisibleJSONResponse({"group": query.group, "as_of": None, "history_ends": None, "offsets": rows})

    async def commit(self, request: Request, body: CommitBody) -> dict[str, int]:
        """Commit offsets of a group if the committed offsets are the expected ones, all in one record batch or none.

        The group must not have members. Of concurrent commits one succeeds, and the others get the offsets that differ.
        """
        client = client_of(request, COMMIT, body.group)
        self._check_available(body.group)
        self._check_quota(body.group)
        group, done = body.group.encode(), asyncio.get_running_loop().create_future()
        partition = self._core.log_partition(group)
        commits = [
            ExpectedCommit(
                offset.topic.encode(),
                offset.partition,
                offset.expected,
                offset.offset,
                -1 if offset.leader_epoch is None else offset.leader_epoch,
                offset.metadata.encode(),
            )
            for offset in body.offsets
        ]
        self._core.writes.add(
            CompareAndCommit(
                partition,
                group,
                commits,
                self._core.store,
                self._core.topics,
                audit_headers_of(client, request, audit_headers.COMMIT),
                done,
            )
        )
        try:
            outcome: CommitOutcome = await done
        except LogUnavailable as error:
            raise Problem("log-not-writable", f"{error} Nothing was written.") from error
        _check_error(outcome.error, body.group)
        if outcome.differing:
            differing = [
                {"topic": current.topic.decode(), "partition": current.partition}
                | {"committed_offset": None if current.stored is None else current.stored[0]}
                for current in outcome.differing
            ]
            raise Problem(
                "offsets-changed",
                f"The committed offsets of group {body.group!r} are not the expected ones in {len(differing)} of "
                f"{len(commits)} partitions. Nothing was written; check the current offsets and try again.",
                current_offsets=differing,
            )
        return {"log_partition": partition, "log_offset": outcome.log_offset}

    async def rewind(self, request: Request, body: RewindBody) -> dict[str, int]:
        """Set offsets of a group while its members run, all in one record batch or none.

        The response is sent when members have given up the partitions and the offsets are written, which can take until
        members that do not respond are removed.
        """
        client_of(request, ADMIN, body.group)
        self._check_available(body.group)
        return await rewind(self._core, request, body)

    async def delete_group(self, request: Request, query: Annotated[GroupQuery, Query()]) -> None:
        """Delete a group without members, and all of its offsets."""
        audit = audit_headers_of(client_of(request, ADMIN, query.group), request, audit_headers.DELETE_GROUP)
        self._check_available(query.group)
        await _run_deletion(query.group, lambda done: self._deletions.delete_group(query.group.encode(), audit, done))

    async def delete_offset(self, request: Request, query: Annotated[OffsetQuery, Query()]) -> None:
        """Delete an offset of a group that is not subscribed to its topic; succeeds if there is no offset."""
        audit = audit_headers_of(client_of(request, ADMIN, query.group), request, audit_headers.DELETE_OFFSETS)
        self._check_available(query.group)
        group, topic = query.group.encode(), query.topic.encode()
        await _run_deletion(
            query.group, lambda done: self._deletions.delete_offset(group, topic, query.partition, audit, done)
        )

    def _check_known_offsets(self, query: OffsetsQuery) -> None:
        """Raise a Problem if an offset of the answer is unknown."""
        doubt = self._core.store.doubt(query.group.encode())
        topics = {} if doubt is None else doubt.with_keys({})
        names = [
            f"{topic.decode()}:{number}"
            for topic, numbers in topics.items()
            if query.topic in (None, topic.decode())
            for number in numbers
        ]
        if names:
            raise Problem(
                "offsets-unknown",
                f"Records that cannot be decoded leave {len(names)} offsets of group {query.group!r} unknown: "
                f"{', '.join(names[:_MAX_NAMED])}. Commit them again, or request other topics one by one.",
            )

    def _check_quota(self, group: str) -> None:
        quota = self._core.quota
        retry_ms = 0 if quota is None else quota.refusal_ms(group.encode())
        if retry_ms:
            raise Problem(
                "too-many-commits",
                f"Group {group!r} exceeds its quota (commits_per_second). Nothing was written; try again later.",
                {"retry-after": f"{math.ceil(retry_ms / 1000)}"},
            )

    def _check_loaded(self) -> None:
        if self._core.store.loading:
            raise Problem(
                "loading",
                "The server is still loading the log, or waits for the metadata of its cluster. Try again in a moment.",
                {"retry-after": "1"},
            )

    def _check_available(self, group: str) -> None:
        """Raise a Problem while the log is loaded, or if its folder lacks the log partition of a group."""
        self._check_loaded()
        if self._core.store.unavailable(group.encode()):
            where = f"{OFFSETS_TOPIC}-{self._core.log_partition(group.encode())}"
            raise Problem(
                "log-partition-not-read",
                f"Nothing is known about group {group!r}: its records are in {where}, which the log of this server "
                f"lacks. {LACKING_REMEDY}",
            )


async def _run_deletion(group: str, delete: Callable[[Callable[[int], None]], None]) -> None:
    """Run a deletion; raise a Problem if it fails."""
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    delete(lambda error: None if done.cancelled() else done.set_result(error))
    _check_error(await done, group)


def _check_error(error: int, group: str) -> None:
    if error:
        raise problem_of_error_code(error, group)


def _group_not_found(group: str) -> Problem:
    return Problem("group-not-found", f"Group {group!r} does not exist. `/v1/groups` lists the existing groups.")
