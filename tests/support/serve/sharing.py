"""The serving process with a listener for share consumers of a broker, to which it is a plain client."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from support.broker.broker import Broker, free_ports
from support.broker.broker_cluster import BrokerCluster
from support.serve.serving import Serving


class Sharing(Serving):
    """Serves share consumers at `share`; `groups` are fields of `CoordinatorSettings`, `security` of `Settings`."""

    def __init__(
        self,
        folder: Path,
        broker: Broker | BrokerCluster,
        port: int | None = None,
        flush: str = "always",
        security: Mapping[str, Any] | None = None,
        **groups: object,
    ) -> None:
        port = port or free_ports(1)[0]
        defaults: dict[str, object] = {"share_auto_offset_reset": "earliest", "share_heartbeat_interval_ms": 1000}
        defaults |= {"share_record_lock_duration_ms": 600_000}  # records stay acquired however slow the machine is
        self._arguments = (folder, broker, port, flush, security), groups
        self.share = f"127.0.0.1:{port}"
        super().__init__(
            folder / "lake",
            folder / "log",
            cluster={"bootstrap.servers": broker.bootstrap},
            share=["127.0.0.1", port],
            coordinator=defaults | groups,
            metadata_max_age_ms=1000,
            flush=flush,
            **security or {},
        )

    def __enter__(self) -> Self:
        """Start the process, and wait until share consumers can connect."""
        super().__enter__()
        self.wait_for_line("Serving share consumers")
        return self

    def again(self) -> Self:
        """Return the process that follows this one, with the same address for share consumers."""
        positional, groups = self._arguments
        return type(self)(*positional, **groups)
