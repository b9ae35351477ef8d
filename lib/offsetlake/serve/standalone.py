"""The part of a process that is the only broker of its clients: it coordinates transactions, and knows no others."""

from offsetlake.serve.apis.api_versions import api_versions
from offsetlake.serve.apis.node_configs import NodeConfigs
from offsetlake.serve.core import Core
from offsetlake.serve.feature import Feature
from offsetlake.serve.net.handlers import Handlers, at_once
from offsetlake.serve.protocol.api_keys import API_VERSIONS, DESCRIBE_CONFIGS, FIND_COORDINATOR, METADATA
from offsetlake.serve.transactions.offset_commit import TxnOffsetCommit


class Standalone(Feature):
    """Answers what a node of a cluster answers with the help of the others."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def handlers(self) -> Handlers:
        """Return the handlers of transactions, and of what describes this broker."""
        core = self._core
        configs = NodeConfigs(core.settings, core.security, core.topics, lambda: core.cluster_apis.address)
        commits = TxnOffsetCommit(core.store, core.topics, core.writes, core.commits, core.transactions)
        return {
            API_VERSIONS: at_once(api_versions),
            METADATA: at_once(core.cluster_apis.metadata),
            FIND_COORDINATOR: at_once(core.cluster_apis.find_coordinator),
            DESCRIBE_CONFIGS: at_once(configs.describe),
            **core.transactions.handlers(),
            **commits.handlers(),
        }
