"""File descriptors: the limit of the process, and the number of connections that fit into it."""

import logging
import resource
from dataclasses import replace

from offsetlake.errors import BadRequest
from offsetlake.log.positions import TRANSACTION_LOG_PARTITIONS
from offsetlake.serve.settings import Settings

LOG = logging.getLogger(__name__)
RESERVED = 100
"""Descriptors for everything except connections and active segments: child processes and their pipes, snapshots,
listening sockets, jobs at the job socket, and files that are reloaded."""


def limit_connections(settings: Settings) -> Settings:
    """Raise the soft limit of descriptors to the hard limit, and return settings whose connections fit into it.

    Raise BadRequest if the limit leaves no descriptor for a connection.
    """
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    reserved = settings.log_partitions + TRANSACTION_LOG_PARTITIONS + RESERVED
    if limit == resource.RLIM_INFINITY:
        limit = settings.max_connections + reserved
    if limit <= reserved:
        raise BadRequest(
            f"The process may open {limit} files (RLIMIT_NOFILE), but the log and child processes need {reserved}: "
            f"raise the hard limit (LimitNOFILE in a systemd unit) to {reserved + settings.max_connections}"
        )
    connections = min(settings.max_connections, limit - reserved)
    LOG.log(
        logging.INFO if connections == settings.max_connections else logging.WARNING,
        "At most %(connections)d connections are accepted: max_connections is %(max_connections)d, and "
        "%(reserved)d of %(descriptors)d file descriptors are reserved",
        {
            "connections": connections,
            "max_connections": settings.max_connections,
            "descriptors": limit,
            "reserved": reserved,
        },
    )
    return replace(settings, max_connections=connections)
