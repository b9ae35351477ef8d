"""The requests that tools send to each node of a cluster, about the node itself."""

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from offsetlake.serve.apis.log_dirs import LogDirs
from offsetlake.serve.apis.node_configs import NodeConfigs
from offsetlake.serve.apis.partition_requests import PartitionRequests
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.protocol.api_keys import (
    DELETE_RECORDS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    OFFSET_FOR_LEADER_EPOCH,
)
from offsetlake.serve.protocol.encoding import Values
from offsetlake.serve.steps import Steps
from offsetlake.serve.transactions.descriptions import TransactionDescriptions


class NodeApis(NamedTuple):
    """The handlers of these requests."""

    configs: NodeConfigs
    log_dirs: LogDirs
    partitions: PartitionRequests
    transactions: TransactionDescriptions

    def synchronous(self) -> dict[int, Callable[[Any, RequestContext], Values | Steps[Values]]]:
        """Return the handlers that answer at once, by API key."""
        return {
            DELETE_RECORDS: self.partitions.delete_records,
            DESCRIBE_TRANSACTIONS: self.transactions.describe,
            LIST_TRANSACTIONS: self.transactions.list,
        }

    def asynchronous(self) -> dict[int, Callable[[Any, RequestContext], Coroutine[Any, Any, Values | bytes]]]:
        """Return the handlers that read the log or its folder, or ask a broker, by API key."""
        return {
            DESCRIBE_CONFIGS: self.configs.describe,
            DESCRIBE_LOG_DIRS: self.log_dirs.describe,
            DESCRIBE_PRODUCERS: self.partitions.describe_producers,
            OFFSET_FOR_LEADER_EPOCH: self.partitions.end_of_epoch,
        }
