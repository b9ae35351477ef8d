"""What brokers of a cluster say about producers: their transaction coordinators, and new producer ids."""

import time
from collections import OrderedDict
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.error_codes import COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE
from offsetlake.node.metadata.cluster import Cluster
from offsetlake.serve.protocol.api_keys import FIND_COORDINATOR, INIT_PRODUCER_ID
from offsetlake.serve.protocol.encoding import Values

KEEP_SECONDS = 1.0
"""How long a coordinator is kept, so that many producers that look for theirs do not load the brokers."""

MAX_KEPT, MAX_KEPT_CHARACTERS = 10_000, 255
"""The maximum number of coordinators that are kept, and the maximum length of their transactional ids."""

NO_COORDINATOR: dict[str, Any] = {"error_message": None, "node_id": -1, "host": "", "port": -1}
"""The fields of an answer with an error."""

_TRANSACTION_KEY = 1
_FIND_VERSIONS = range(4, 7)  # with many keys, since Kafka 3.0
_INIT_VERSIONS = range(6)


class TransactionCoordinators:
    """Asks the brokers of a cluster on behalf of clients."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kept: OrderedDict[str, tuple[float, Values]] = OrderedDict()  # until when, the oldest first

    async def find(self, names: Collection[str]) -> Mapping[str, Values]:
        """Return the answer of FindCoordinator for each transactional id."""
        now = time.monotonic()
        while self._kept and next(iter(self._kept.values()))[0] < now:
            self._kept.popitem(last=False)
        found = {name: self._kept[name][1] for name in names if name in self._kept}
        if missing := [name for name in names if name not in found]:
            found |= await self._ask(missing)
        return found

    def forget(self, name: str) -> None:
        """Ask for the coordinator of a transactional id again, as the last one does not coordinate it any longer."""
        self._kept.pop(name, None)

    async def _ask(self, names: list[str]) -> dict[str, Values]:
        values = {"key_type": _TRANSACTION_KEY, "coordinator_keys": names}
        try:
            response = await self._cluster.send(FIND_COORDINATOR, _FIND_VERSIONS, values)
        except LogUnavailable:
            response = None
        answers = () if response is None else response.entity().coordinators
        found = {answer.key: _values(answer) for answer in answers}
        until = time.monotonic() + KEEP_SECONDS
        for name, answer in found.items():
            if not answer["error_code"] and len(name) <= MAX_KEPT_CHARACTERS and len(self._kept) < MAX_KEPT:
                self._kept[name] = until, answer
        unknown = NO_COORDINATOR | {"error_code": COORDINATOR_NOT_AVAILABLE}
        return {name: found.get(name, unknown) for name in names}

    async def new_producer_id(self) -> Values:
        """Return the answer of InitProducerId for a producer without a transactional id.

        If the cluster is unavailable, the error is one with which producers try again, at another broker too.
        """
        values = {"transactional_id": None, "transaction_timeout": timedelta(minutes=1), "producer_id": -1}
        try:
            response = await self._cluster.send(INIT_PRODUCER_ID, _INIT_VERSIONS, values | {"producer_epoch": -1})
        except LogUnavailable:
            return {"error_code": COORDINATOR_LOAD_IN_PROGRESS, "producer_id": -1, "producer_epoch": -1}
        answer = response.entity()
        return {
            "error_code": int(answer.error_code),
            "producer_id": answer.producer_id,
            "producer_epoch": answer.producer_epoch,
        }


def _values(answer: Any) -> Values:
    names = ("error_code", "error_message", "node_id", "host", "port")
    return {name: getattr(answer, name) for name in names}
