"""File descriptors: how many the process may open, and how many of them connections may take."""

import logging
import resource
from dataclasses import replace

from offsetlake.errors import BadRequest
from offsetlake.log.positions import TRANSACTION_LOG_PARTITIONS
from offsetlake.serve.settings import Settings

LOG = logging.getLogger(__name__)
RESERVED = 100
"""Descriptors for everything but connections and the active segments: child processes and their pipes, snapshots,
listening sockets, jobs at the job socket, and files that are read again."""


def limit_connections(settings: Settings) -> Settings:
    """Raise the soft limit of descriptors to the hard one, and return settings whose connections fit into it.

    Raises BadRequest if the limit leaves no descriptor for a connection.
    """
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    reserved = settings.log_partitions + TRANSACTION_LOG_PARTITIONS + RESERVED
    if limit == resource.RLIM_INFINITY:
        limit = settings.max_connections + reserved
    if limit <= reserved:
        raise BadRequest(
            f"the process may open {limit} files (RLIMIT_NOFILE), but the log and child processes need {reserved}: "
            f"raise the hard limit (LimitNOFILE in a systemd unit) to {reserved + settings.max_connections}"
        )
    connections = min(settings.max_connections, limit - reserved)
    LOG.log(
        logging.INFO if connections == settings.max_connections else logging.WARNING,
        "at most %(connections)d connections: max_connections is %(max_connections)d, and of %(descriptors)d file "
        "descriptors %(reserved)d are reserved",
        {
            "connections": connections,
            "max_connections": settings.max_connections,
            "descriptors": limit,
            "reserved": reserved,
        },
    )
    return replace(settings, max_connections=connections)
