"""The serving process as a broker of a cluster: it leads all partitions of `__consumer_offsets`."""

import asyncio
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from offsetlake.errors import LogMismatch, Refused
from offsetlake.node.handover.placements import Placements
from offsetlake.node.identity import NOT_ADOPTED, Identity
from offsetlake.node.joining import join
from offsetlake.node.leadership import Leadership
from offsetlake.node.registration import NO_EPOCH
from offsetlake.serve.net.security import security_protocol
from offsetlake.serve.settings import Settings

if TYPE_CHECKING:
    from offsetlake.node.registration import Registration

MAX_ELECTION_SECONDS, CHECK_SECONDS = 30.0, 0.1


class Broker:
    """Registers this process at its start, keeps replicas of other topics away from it, and unregisters it."""

    def __init__(self, settings: Settings, leadership: Leadership) -> None:
        self._settings, self._cluster, self._leadership = settings, leadership.cluster, leadership
        self._address = "", -1
        self._registration: Registration | None = None

    @property
    def epoch(self) -> int:
        """The broker epoch."""
        return NO_EPOCH if self._registration is None else self._registration.epoch

    async def start(self, address: tuple[str, int]) -> None:
        """Wait for metadata, register, and unless partitions are given back, wait until this process leads them.

        Clients and brokers reach this process at `address`.

        Raises:
            OffsetlakeError: The cluster does not accept this process, or it does not lead all partitions.
        """
        await self._cluster.loaded()
        self._address = address
        identity = Identity.read(Path(self._settings.log))
        if identity is None:
            raise LogMismatch(f"The log {self._settings.log} was removed.")
        protocol = security_protocol(self._settings)
        self._registration = await join(self._cluster, identity, protocol, address, cordoned=True)
        until = time.monotonic() + MAX_ELECTION_SECONDS
        while not self._settings.returning and not self._leadership.leads_all():
            if time.monotonic() > until:
                raise Refused(f"This node does not lead all partitions of __consumer_offsets: {NOT_ADOPTED}.")
            self._cluster.refresh_soon()
            await asyncio.sleep(CHECK_SECONDS)

    async def run(self) -> None:
        """Check leaders and placements until the task is cancelled; raise errors as `Placements.run`."""
        if self._registration is not None:
            with closing(Placements(self._leadership, self._registration, self._address)) as placements:
                await placements.run()

    async def stop(self) -> None:
        """Unregister, so that brokers name no coordinator until the next start."""
        if self._registration is not None:
            await asyncio.to_thread(self._registration.stop)
