"""Makes the client of the admin API, which is imported only then: kafka-python takes 10 MB and 0.1 s."""

from typing import TYPE_CHECKING

from offsetlake.log.cluster.connection import KafkaConnection

if TYPE_CHECKING:
    from offsetlake.log.cluster.admin import ClusterAdmin


def cluster_admin(connection: KafkaConnection) -> "ClusterAdmin":
    """Return a client of the admin API, to be used in a `with` statement."""
    from offsetlake.log.cluster.admin import ClusterAdmin  # noqa: PLC0415 - as above

    return ClusterAdmin(connection)
