"""The groups of a cluster that a node does not serve: share groups, streams groups, and those of types to come."""

from typing import NamedTuple

from offsetlake.errors import LogUnavailable, Refused
from offsetlake.kafka.error_codes import NONE
from offsetlake.node.any_node import AnyNode
from offsetlake.node.metadata.cluster import Cluster
from offsetlake.serve.protocol.api_keys import LIST_GROUPS

SERVED_TYPES = {"classic", "consumer"}
END_OPTION = "--end-unserved-groups"
MAX_NAMED = 10

_VERSIONS = range(5, 6)  # with the types of groups, since Kafka 4.0
_WITHOUT_MEMBERS = {"Empty", "Dead"}


class UnservedGroup(NamedTuple):
    """A group that no node serves after its cluster was adopted."""

    kind: str
    name: str
    state: str

    @property
    def has_members(self) -> bool:
        """Whether consumers of the group run, which would stop."""
        return self.state not in _WITHOUT_MEMBERS

    def __str__(self) -> str:
        return f"{self.kind} group {self.name} ({self.state})"


async def unserved_groups(cluster: Cluster) -> list[UnservedGroup]:
    """Return the groups that the brokers coordinate and that this process would not serve, sorted.

    Raises:
        LogUnavailable: A broker does not list its groups, so that the others are not all.
    """
    found = set[UnservedGroup]()
    for broker in cluster.image.brokers:
        if broker.node_id == cluster.node:
            continue
        node = AnyNode(cluster.connection)
        try:
            values = {"states_filter": (), "types_filter": ()}
            answer = (await node.send([(broker.host, broker.port)], LIST_GROUPS, _VERSIONS, values)).entity()
        finally:
            node.close()
        if answer.error_code != NONE:
            raise LogUnavailable(
                f"Broker {broker.node_id} does not list its groups (error code {int(answer.error_code)}), so it is "
                "unknown whether share or streams groups are used: run the command again."
            )
        found |= {
            UnservedGroup(group.group_type.lower(), group.group_id, group.group_state)
            for group in answer.groups
            if group.group_type.lower() not in SERVED_TYPES
        }
    return sorted(found)


def described(groups: list[UnservedGroup]) -> str:
    """Return the names of groups for people, with their types and states."""
    more = f", and {len(groups) - MAX_NAMED:,} more" if len(groups) > MAX_NAMED else ""
    return ", ".join(map(str, groups[:MAX_NAMED])) + more


def refuse_running(groups: list[UnservedGroup]) -> None:
    """Raise Refused if groups that would not be served have members."""
    running = [group for group in groups if group.has_members]
    if running:
        raise Refused(
            f"The consumers of {len(running)} group{'' if len(running) == 1 else 's'} would stop with "
            f"UNSUPPORTED_VERSION, because this process serves neither share groups nor streams groups: "
            f"{described(running)}. Stop them first, or specify {END_OPTION}."
        )
