"""A connection to any of several nodes of a cluster, which is kept and opened again."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from offsetlake.errors import LogUnavailable
from offsetlake.log.cluster.connection import CONNECT_FAILURES, KafkaConnection, likely_cause, open_broker
from offsetlake.node import requests
from offsetlake.serve.protocol.encoding import Values

if TYPE_CHECKING:
    from aiokafka.conn import AIOKafkaConnection

Address = tuple[str, int]
T = TypeVar("T")


class VersionUnsupported(LogUnavailable):
    """Every node answers, but none supports the versions of a request."""


class AnyNode:
    """Sends each request to the node of the last one, or else to the first node that answers.

    Raises:
        BadRequest: A certificate file cannot be used.
    """

    def __init__(self, settings: KafkaConnection) -> None:
        self._settings, self._context = settings, settings.ssl_context()
        self._connecting = asyncio.Lock()
        self._connection: AIOKafkaConnection | None = None
        self._address: Address | None = None

    async def send(
        self,
        addresses: Iterable[Address],
        api: int,
        versions: range,
        values: Values,
        refused: Callable[[requests.NodeResponse], str | None] = lambda _: None,
    ) -> requests.NodeResponse:
        """Send a request to one of the nodes; `refused` returns why another node has to be asked.

        Raises:
            LogUnavailable: No node answers, or all refuse.
            VersionUnsupported: No node supports one of the versions.
        """
        return await self._exchange(
            addresses, lambda connection: requests.send(connection, api, versions, values), refused
        )

    async def send_frame(self, addresses: Iterable[Address], frame: bytes) -> bytes:
        """Send the frame of a client to one of the nodes and return the response without its correlation id.

        Raises:
            LogUnavailable: No node answers.
        """
        return await self._exchange(
            addresses, lambda connection: requests.send_frame(connection, frame), lambda _: None
        )

    async def _exchange(
        self,
        addresses: Iterable[Address],
        send: "Callable[[AIOKafkaConnection], Awaitable[T]]",
        refused: Callable[[T], str | None],
    ) -> T:
        known = sorted(dict.fromkeys(addresses), key=lambda address: address != self._address)  # keeps their order
        failures: dict[str, None] = {}
        supported = not known
        share = self._settings.request_timeout / (len(known) + 1)
        for host, port in known:
            try:
                connection = await self._open((host, port), share)
                async with asyncio.timeout(share):
                    response = await send(connection)
                reason, supported = refused(response), True
            except CONNECT_FAILURES as failure:
                reason = likely_cause(self._settings, failure)
                supported = supported or not isinstance(failure, NotImplementedError)
            if reason is None:
                return response
            self.close()
            failures[f"{host}:{port}: {reason}"] = None
        reasons = "; ".join(failures) or "no node is known"
        raise LogUnavailable(reasons) if supported else VersionUnsupported(reasons)

    async def _open(self, address: Address, seconds: float) -> "AIOKafkaConnection":
        async with self._connecting:
            if self._connection is None or self._address != address or not self._connection.connected():
                self.close()
                self._connection = await open_broker(self._settings, address, self._context, seconds)
                self._address = address
            return self._connection

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection, self._address = self._connection, None, None
        if connection is not None:
            connection.close()
