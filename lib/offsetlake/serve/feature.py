"""The interface between the core of a serving process and its features, which the core does not know.

Being a node of a cluster, share groups, ZooKeeper and HTTP are features. `offsetlake.cli.serve_process` composes a
process of the core and the features that its settings ask for.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from offsetlake.serve.net.handlers import Handlers

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from offsetlake.serve.storage.mapped_snapshot import MappedSnapshot


class Feature:
    """A part of a serving process beside its core; what it does not override, it does not do.

    The methods from `start` to `end` are called once each, in the order in which they are written; those that end a
    feature are called for the last feature first. Work that never ends is given to `Core.watch`.
    """

    replaces_groups = False
    """Whether groups are not served: nothing is loaded, and the process ends when `run` returns."""

    def handlers(self) -> Handlers:
        """Return the handlers of the APIs that this feature answers, by API key; no other part answers them."""
        return {}

    def metrics(self) -> "Iterator[Metric]":
        """Yield the metrics of this feature."""
        yield from ()

    def readiness(self) -> Mapping[str, Any]:
        """Return fields of the answer to `GET /readyz`."""
        return {}

    async def start(self) -> None:
        """Start what answers before the log is loaded; Kafka's protocol is listened for.

        Raises:
            BadRequest: A listener cannot be opened.
        """

    async def join(self) -> None:
        """Do what must be done before requests for groups are answered; the snapshot is built.

        Raises:
            OffsetlakeError: This process cannot answer them.
        """

    def load(self, snapshot: "MappedSnapshot") -> None:
        """Load what the snapshot says about this feature; requests are answered when all features have returned."""

    async def offsets_served(self) -> None:
        """Load what is needed beside offsets, while requests for these are answered.

        Raises:
            LogMismatch, LogUnavailable: A log cannot be used.
        """

    async def groups_served(self) -> None:
        """Open listeners that need the members of groups, which are loaded.

        Raises:
            BadRequest: A listener cannot be opened.
        """

    async def run(self) -> None:
        """Do the work whose errors end this process, until the task is cancelled."""

    async def stop(self) -> None:
        """Tell others that this process ends; also called after an internal error."""

    async def close(self) -> None:
        """Finish the requests under way, and accept no others."""

    async def end(self) -> None:
        """Do what must be done after the last write to the log."""
