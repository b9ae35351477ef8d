"""DescribeLogDirs: the log folder of this process, with the size of each partition in it."""

import asyncio
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.error_codes import CLUSTER_AUTHORIZATION_FAILED, KAFKA_STORAGE_ERROR, NONE
from offsetlake.log.disk.segments import partition_folders, segments_of
from offsetlake.log.positions import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.handlers import Handlers, awaited
from offsetlake.serve.net.request_tasks import RequestTasks
from offsetlake.serve.protocol.api_keys import DESCRIBE_LOG_DIRS
from offsetlake.serve.protocol.encoding import Values

_TOPICS = (OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC)


class LogDirs:
    """Answers DescribeLogDirs about `folder`; `cordoned` states that controllers place no replicas there (KIP-1066)."""

    def __init__(self, folder: Path, *, cordoned: bool) -> None:
        self._folder, self._cordoned = folder, cordoned

    def handlers(self, tasks: RequestTasks) -> Handlers:
        """Return the handler by API key."""
        return {DESCRIBE_LOG_DIRS: awaited(tasks, self.describe)}

    async def describe(self, request: Any, context: RequestContext) -> Values:
        """Answer DescribeLogDirs; a thread reads the sizes of the files."""
        if not context.client.access.may_read_log():
            return {"error_code": CLUSTER_AUTHORIZATION_FAILED, "results": []}
        wanted = None
        if request.topics is not None:
            wanted = {str(topic.topic): {*topic.partitions} for topic in request.topics}
        return {"error_code": NONE, "results": [await asyncio.to_thread(self._described, wanted)]}

    def _described(self, wanted: Mapping[str, set[int]] | None) -> Values:
        directory: Values = {"log_dir": str(self._folder.resolve()), "is_cordoned": self._cordoned, "topics": []}
        try:
            topics = [{"name": name, "partitions": [*self._sizes(name, wanted)]} for name in _TOPICS]
            usage = shutil.disk_usage(self._folder)
        except (OSError, LogUnavailable):
            return {**directory, "error_code": KAFKA_STORAGE_ERROR}
        return {
            **directory,
            "error_code": NONE,
            "topics": [topic for topic in topics if topic["partitions"]],
            "total_bytes": usage.total,
            "usable_bytes": usage.free,
        }

    def _sizes(self, topic: str, wanted: Mapping[str, set[int]] | None) -> Iterator[Values]:
        """Yield the partitions of a topic with the sizes of their segments, as a broker (`UnifiedLog.size`)."""
        for partition, path in partition_folders(self._folder, topic).items():
            if wanted is None or partition.partition in wanted.get(topic, ()):
                size = 0
                for segment in segments_of(path):
                    with suppress(FileNotFoundError):  # it was deleted meanwhile
                        size += segment.path.stat().st_size
                yield {
                    "partition_index": partition.partition,
                    "partition_size": size,
                    "offset_lag": 0,
                    "is_future_key": False,
                }
