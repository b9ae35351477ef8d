"""The cluster behind a front: its newest metadata, which a task refreshes, and requests that are passed on to it."""

import asyncio
import hashlib
import logging
import struct
import time
from collections.abc import Callable, Mapping

from offsetlake.errors import LogUnavailable
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.node import requests
from offsetlake.node.any_node import Address, AnyNode
from offsetlake.node.metadata.changes import changed_topics
from offsetlake.node.metadata.image import ClusterImage, no_cluster
from offsetlake.node.metadata.image_reader import MAX_VERSION, MIN_VERSION, read_image
from offsetlake.serve.protocol.api_keys import METADATA
from offsetlake.serve.protocol.encoding import Values
from offsetlake.serve.protocol.wire import Malformed
from offsetlake.serve.steps import complete_in_turns
from offsetlake.util.times import now_ms

LOG = logging.getLogger(__name__)
MIN_INTERVAL_SECONDS = 0.5
"""The interval between two refreshes, however many clients request topics that are unknown here."""

NO_NODE = -1
MAX_MISSING_TOPICS = 10_000
"""Maximum number of topics that do not exist for which a refresh is made before the regular one."""

_THROTTLE_TIME_BYTES = 4
_DIGEST_BYTES = 16
_MALFORMED = (Malformed, IndexError, struct.error)

TopicsChanged = Callable[[frozenset[str]], None]


class Cluster:
    """The cluster behind a front.

    | Field   | Description |
    |---------|-------------|
    | connection | The settings of connections to its nodes |
    | node    | The node id of this process in the cluster |
    | max_age_seconds | How old the metadata may become before it is read again |
    | image   | The newest metadata |
    | revision | The number of images so far |
    | changed_ms, created_ms | When topics last changed, and when topics were last new, in ms since the epoch |
    | failure | Why the newest refresh failed; None if it succeeded |
    | changed | Called with the names of the topics that a new image contains, no longer contains, or describes anew |

    Raises:
        BadRequest: A setting or a certificate file cannot be used.
    """

    def __init__(self, properties: Mapping[str, str], max_age_ms: int, node: int = NO_NODE) -> None:
        self.connection, self.node = KafkaConnection.from_settings(properties), node
        self._nodes = AnyNode(self.connection)
        self.max_age_seconds = max_age_ms / 1000
        self.image: ClusterImage = no_cluster()
        self.revision = 0
        self.changed_ms = self.created_ms = 0
        self.failure: str | None = None
        self.changed: list[TopicsChanged] = []
        self._digest = b""
        self._refreshed_at = 0.0
        self._missing: set[int] = set()  # hashes of topics that were requested and did not exist
        self._loaded, self._requested = asyncio.Event(), asyncio.Event()
        self._awaiting: list[asyncio.Future[None]] = []  # the end of the next refresh that begins

    @property
    def available(self) -> bool:
        """Whether the metadata could be read the last time."""
        return self.revision > 0 and self.failure is None

    @property
    def age_seconds(self) -> float | None:
        """The time since the metadata was last read, None before the first time."""
        return time.monotonic() - self._refreshed_at if self.revision else None

    def request_refresh(self, topic: bytes) -> None:
        """Refresh soon, because a client requested a topic that the image does not contain.

        A topic that still does not exist afterwards causes no further refresh before the regular one.
        """
        if hash(topic) not in self._missing and len(self._missing) < MAX_MISSING_TOPICS:
            self._missing.add(hash(topic))
            self._requested.set()

    def refresh_soon(self) -> None:
        """Refresh soon, because this process has changed the cluster."""
        self._requested.set()

    async def refreshed(self) -> None:
        """Refresh soon, and wait for the end of a refresh that begins from now on, whether it succeeds or not."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaiting.append(ended)
        self._requested.set()
        await ended

    async def loaded(self) -> None:
        """Wait for the first metadata."""
        await self._loaded.wait()

    async def run(self) -> None:
        """Refresh the metadata again and again until the task is cancelled."""
        try:
            while True:
                self._requested.clear()
                awaiting, self._awaiting = self._awaiting, []
                try:
                    await self._refresh()
                except LogUnavailable as error:
                    self._failed(str(error))
                for ended in awaiting:
                    if not ended.done():
                        ended.set_result(None)
                await asyncio.sleep(MIN_INTERVAL_SECONDS)
                try:
                    async with asyncio.timeout(max(0.0, self.max_age_seconds - MIN_INTERVAL_SECONDS)):
                        await self._requested.wait()
                except TimeoutError:
                    self._missing.clear()
        finally:
            self._nodes.close()

    async def send(self, api: int, versions: range, values: Values) -> requests.NodeResponse:
        """Send a request to any broker.

        Raises:
            LogUnavailable: No broker answers, or the brokers reject this process.
            VersionUnsupported: No broker supports one of the versions.
        """
        try:
            return await self._nodes.send(self.addresses(), api, versions, values)
        except LogUnavailable as failure:
            raise type(failure)(self._explained(str(failure))) from failure

    def addresses(self) -> list[Address]:
        """Return the addresses of the brokers: those in the newest metadata, then those in the settings."""
        brokers = [(broker.host, broker.port) for broker in self.image.brokers if broker.node_id != self.node]
        return [*dict.fromkeys([*brokers, *self.connection.addresses])]

    async def _refresh(self) -> None:
        values = {"topics": None, "allow_auto_topic_creation": False}
        response = await self.send(METADATA, range(MIN_VERSION, MAX_VERSION + 1), values)
        body = memoryview(response.body)[_THROTTLE_TIME_BYTES:]
        digest = hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()
        if digest != self._digest:
            try:
                image = await complete_in_turns(read_image(response.body, response.version))
            except _MALFORMED as error:
                raise LogUnavailable(self._explained(f"the response to Metadata is malformed: {error}")) from error
            changed = await complete_in_turns(changed_topics(self.image, image))
            if changed:
                self.changed_ms = now_ms()
            if any(not self.image.partitions(name.encode()) for name in changed):
                self.created_ms = self.changed_ms
            self.image, self._digest = image, digest
            self.revision += 1
            for callback in self.changed if changed else ():
                callback(changed)
        self._refreshed_at = time.monotonic()
        self._succeeded()

    def _succeeded(self) -> None:
        fields = {"brokers": len(self.image.brokers), "partitions": len(self.image), "cluster": self.image.cluster_id}
        if not self._loaded.is_set():
            LOG.info("Connected to cluster %(cluster)s with %(brokers)d brokers and %(partitions)d partitions", fields)
        elif self.failure is not None:
            LOG.info("Cluster %(cluster)s is available again", fields)
        self.failure = None
        self._loaded.set()

    def _failed(self, reason: str) -> None:
        """Record a failure; only the first one after a success is logged."""
        first, self.failure = self.failure is None, reason
        if first:
            kept = "the last metadata stays in force" if self.revision else "clients must wait for the first metadata"
            LOG.warning(
                "The metadata of the cluster cannot be read, %(kept)s: %(reason)s", {"kept": kept, "reason": reason}
            )

    def _explained(self, reason: str) -> str:
        settings = self.connection
        return f"Kafka at {settings.bootstrap} by {settings.security_protocol}: {reason}"
