"""Topics that are created because a client names them, if the brokers have `auto.create.topics.enable`.

A client may send all of its Metadata requests to this process, and then no broker would create the topics for it. As a
broker does, this process sends CreateTopics with the principal of the client to the controller, and does not wait for
the response: the client gets UNKNOWN_TOPIC_OR_PARTITION and asks again (`DefaultAutoTopicCreationManager`).
"""

import asyncio
import logging
import math
import time
from collections.abc import Sequence

from offsetlake.errors import LogUnavailable, Refused
from offsetlake.log.positions import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from offsetlake.node.broker_settings import broker_settings
from offsetlake.node.forwarding import Forwarding
from offsetlake.node.requests import request_frame
from offsetlake.serve.net.client import Client
from offsetlake.serve.protocol.encoding import Values
from offsetlake.serve.protocol.topics import is_valid_name
from offsetlake.util.log_lines import ClientLog

LOG = ClientLog(logging.getLogger(__name__))
KEEP_SECONDS = 60.0
"""How long the settings of the brokers are used before they are read again."""

MAX_TOPICS = 1_000
"""Maximum number of topics that are being created at a time."""

CREATE_TOPICS, _VERSION = 19, 7
_INTERNAL = {OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC}  # whose coordinators create them
_ENABLED, _PARTITIONS, _REPLICAS = "auto.create.topics.enable", "num.partitions", "default.replication.factor"


class TopicCreation:
    """Has the controller create topics that clients name."""

    def __init__(self, forwarding: Forwarding) -> None:
        self._forwarding = forwarding
        self._settings: dict[str, str | None] = {}
        self._read_at = -math.inf
        self._creating = set[str]()
        self._tasks = set[asyncio.Task[None]]()

    def start(self, topics: Sequence[str], client: Client) -> None:
        """Have topics created that the cluster does not contain, if its brokers do that and the client may do it."""
        names = [
            name
            for name in dict.fromkeys(topics)
            if name not in self._creating and name not in _INTERNAL and is_valid_name(name.encode())
        ][: MAX_TOPICS - len(self._creating)]
        if not names:
            return
        self._creating.update(names)

        def ended(task: "asyncio.Task[None]") -> None:
            self._tasks.discard(task)
            self._creating.difference_update(names)
            if not task.cancelled():
                task.result()

        task = asyncio.get_running_loop().create_task(self._create(names, client))
        self._tasks.add(task)
        task.add_done_callback(ended)

    async def _create(self, names: Sequence[str], client: Client) -> None:
        try:
            if time.monotonic() > self._read_at + KEEP_SECONDS:
                keys = (_ENABLED, _PARTITIONS, _REPLICAS)
                self._settings = await broker_settings(self._forwarding.cluster, keys)
                self._read_at = time.monotonic()
            if self._settings.get(_ENABLED) == "true":
                values = {"topics": [self._topic(name) for name in names]}
                await self._forwarding.answer(CREATE_TOPICS, request_frame(CREATE_TOPICS, _VERSION, values), client)
        except (LogUnavailable, Refused) as failure:
            LOG.warning("Topics that clients name cannot be created: %(reason)s", {"reason": failure})

    def _topic(self, name: str) -> Values:
        partitions, replicas = (int(self._settings.get(key) or -1) for key in (_PARTITIONS, _REPLICAS))
        counts = {"num_partitions": partitions, "replication_factor": replicas}
        return {"name": name, "assignments": (), "configs": ()} | counts

    def close(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()
