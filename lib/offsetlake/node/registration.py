"""The registration of this process as a broker, which a thread keeps alive with a heartbeat each second.

The controller names this process as a leader of partitions only while it is registered and heartbeats arrive
(`broker.session.timeout.ms`, 9 s by default). The thread has its own event loop, so that long work in the server's
loop does not delay heartbeats. This process does not read the metadata log, but reports in each heartbeat that it has
reached its end: a smaller offset would keep this broker fenced, and delay the controlled shutdown of other brokers.
"""

import asyncio
import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from offsetlake.errors import LogUnavailable, OffsetlakeError, Refused
from offsetlake.kafka.error_codes import (
    BROKER_ID_NOT_REGISTERED,
    DUPLICATE_BROKER_REGISTRATION,
    NONE,
    STALE_BROKER_EPOCH,
    UNSUPPORTED_VERSION,
)
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.node.any_node import Address, AnyNode
from offsetlake.node.controllers import Controllers
from offsetlake.node.identity import Identity
from offsetlake.node.requests import NodeResponse
from offsetlake.serve.protocol.api_keys import API_VERSIONS
from offsetlake.serve.protocol.encoding import Values

LOG = logging.getLogger(__name__)
BROKER_REGISTRATION, BROKER_HEARTBEAT = 62, 63
HEARTBEAT_SECONDS, REQUEST_TIMEOUT_MS = 1.0, 3_000
STOP_SECONDS = 2 * REQUEST_TIMEOUT_MS / 1000
KNOWN_FEATURES = {
    "metadata.version",
    "kraft.version",
    "transaction.version",
    "group.version",
    "share.version",
    "streams.version",
    "eligible.leader.replicas.version",
}
"""The features of a cluster that do not change what this process does; a cluster with another one refuses it."""

NO_EPOCH = -1
_SOFTWARE = {"client_software_name": "offsetlake", "client_software_version": "1"}
_REGISTRATION_VERSION, _HEARTBEAT_VERSION, _CORDONING_HEARTBEAT_VERSION = 4, 1, 2
_LOST = {STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED}


class NodeIdInUse(Refused):
    """Another broker that is alive has the node id."""


class Registration:
    """Registers this process and sends heartbeats until `stop`.

    | Field   | Description |
    |---------|-------------|
    | epoch   | The broker epoch, -1 before the first registration |
    | fenced  | Whether the controller does not name this process as a leader |
    | failure | Why the latest request failed; None if it succeeded |
    | fatal   | Why this process cannot be a broker; None: it can |

    Args:
        connection: The settings of connections to the cluster.
        brokers: Returns the addresses of the brokers, which know the controllers; the thread calls it.
        identity: The broker.
        listeners: The listeners of the registration.
        cordoned: Whether the controller is to place no replicas here, which it can since Kafka 4.3 (KIP-1066).
    """

    def __init__(
        self,
        connection: KafkaConnection,
        brokers: Callable[[], Sequence[Address]],
        identity: Identity,
        listeners: Sequence[Values],
        *,
        cordoned: bool = False,
    ) -> None:
        timeout = min(connection.request_timeout_ms, REQUEST_TIMEOUT_MS)
        self._connection, self._brokers = replace(connection, request_timeout_ms=timeout), brokers
        self._identity, self._listeners, self._cordoned = identity, listeners, cordoned
        self.epoch = NO_EPOCH
        self.fenced = True
        self.failure: str | None = None
        self.fatal: OffsetlakeError | None = None
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="registration", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def registered(self) -> None:
        """Wait until this process is registered and not fenced; raise the error that prevents it for ever."""

        def ready() -> bool:
            return self.fatal is not None or not self.fenced

        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(ready, HEARTBEAT_SECONDS)

        while not await asyncio.to_thread(wait):
            pass
        if self.fatal is not None:
            raise self.fatal

    def stop(self) -> None:
        """Ask the controller to name no leader for the partitions of this process from now on, and end the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(STOP_SECONDS)

    def _work(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._run())
            except OffsetlakeError as error:
                self._note(fatal=error)
            except Exception as error:
                LOG.exception("The registration as a broker failed")
                self._note(fatal=OffsetlakeError(f"The registration as a broker failed: {error!r}."))

    async def _run(self) -> None:
        nodes = AnyNode(self._connection)

        async def send_to_broker(api: int, versions: range, values: Values) -> NodeResponse:
            return await nodes.send(self._brokers(), api, versions, values)

        controllers = Controllers(self._connection, send_to_broker)
        try:
            while not self._stopping.is_set():
                try:
                    await self._beat(controllers, send_to_broker)
                    self._note()
                except LogUnavailable as failure:
                    self._note(failure=str(failure))
                except Refused as refusal:
                    if self.fenced or isinstance(refusal, NodeIdInUse):
                        raise
                    self._note(failure=str(refusal))
                with suppress(TimeoutError):
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        await self._stopping.wait()
            if self.epoch != NO_EPOCH:
                await self._heartbeat(controllers, leaving=True)
        except LogUnavailable as failure:
            LOG.warning("The controller was not informed that this broker stops: %(reason)s", {"reason": failure})
        finally:
            controllers.close()
            nodes.close()

    async def _beat(self, controllers: Controllers, send_to_broker: Any) -> None:
        if self.epoch == NO_EPOCH:
            features = (await send_to_broker(API_VERSIONS, range(4, 5), _SOFTWARE)).entity().supported_features
            self.epoch = await self._register(controllers, features)
        answer = await self._heartbeat(controllers, leaving=False)
        if answer.error_code in _LOST:
            self.epoch, self.fenced = NO_EPOCH, True
            LOG.warning("The controller does not know the registration of this broker any more: it registers again")
        elif answer.error_code != NONE:
            raise LogUnavailable(f"BrokerHeartbeat failed with the error code {int(answer.error_code)}.")
        elif answer.is_fenced is not self.fenced:
            self.fenced = bool(answer.is_fenced)
            state = "fenced" if self.fenced else "active"
            LOG.info("Broker %(node)d is %(state)s", {"node": self._identity.node, "state": state})

    async def _register(self, controllers: Controllers, features: Sequence[Any]) -> int:
        """Register and return the broker epoch."""
        identity = self._identity
        values = {
            "broker_id": identity.node,
            "cluster_id": identity.cluster_id,
            "incarnation_id": uuid.UUID(identity.incarnation),
            "listeners": self._listeners,
            "features": [
                {
                    "name": feature.name,
                    "min_supported_version": feature.min_version,
                    "max_supported_version": feature.max_version,
                }
                for feature in features
                if feature.name in KNOWN_FEATURES
            ],
            "rack": None,
            "log_dirs": [uuid.UUID(identity.directory)],
        }
        answer = await controllers.send(BROKER_REGISTRATION, _REGISTRATION_VERSION, values)
        if answer.error_code == NONE:
            LOG.info("Registered as broker %(node)d", {"node": identity.node})
            return int(answer.broker_epoch)
        if answer.error_code == DUPLICATE_BROKER_REGISTRATION:
            raise NodeIdInUse(
                f"The node id {identity.node} is used by another broker that is alive: choose another one (--node-id)."
            )
        if answer.error_code == UNSUPPORTED_VERSION:
            raise Refused(
                "The controller refused the registration: the cluster uses a feature level that this process does not "
                f"know. It knows the features {', '.join(sorted(KNOWN_FEATURES))}."
            )
        raise Refused(f"BrokerRegistration failed with the error code {int(answer.error_code)}.")

    async def _heartbeat(self, controllers: Controllers, *, leaving: bool) -> Any:
        values = {
            "broker_id": self._identity.node,
            "broker_epoch": self.epoch,
            "current_metadata_offset": await controllers.metadata_end(),
            "want_fence": leaving,
            "want_shut_down": leaving,
            "cordoned_log_dirs": [uuid.UUID(self._identity.directory)] if self._cordoned else None,
        }
        return await controllers.send(BROKER_HEARTBEAT, _HEARTBEAT_VERSION, values, _CORDONING_HEARTBEAT_VERSION)

    def _note(self, failure: str | None = None, fatal: OffsetlakeError | None = None) -> None:
        if failure is not None and self.failure is None:
            LOG.warning("Heartbeats of this broker fail: %(reason)s", {"reason": failure})
        elif failure is None and self.failure is not None and fatal is None:
            LOG.info("Heartbeats of this broker succeed again")
        with self._changed:
            self.failure, self.fatal = failure, fatal
            self._changed.notify_all()
