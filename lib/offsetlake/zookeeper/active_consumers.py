"""Finds the active consumers of groups below `/consumers`.

| Znode | Content |
|---|---|
| `/consumers/GROUP/owners/TOPIC/PARTITION` | ephemeral: the consumer that reads the partition |
| `/consumers/GROUP/ids/CONSUMER` | ephemeral: an active consumer |

Source: kafka.utils.ZkUtils of Kafka 0.8 to 2.x.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

from offsetlake.zookeeper.client import read_many
from offsetlake.zookeeper.multi_read import Request

ROOT = "/consumers"
_MAX_LISTED_CONSUMERS = 3


def active_consumers(client: KazooClient, groups: Collection[str]) -> dict[str, str]:
    """Return a text for each group with active consumers, or for which this cannot be determined."""
    found: dict[str, set[str]] = {}
    reasons: dict[str, str] = {}

    def responses(request: Request, paths: Iterable[str]) -> Iterator[tuple[str, str, Any]]:
        for path, response in read_many(client, request, paths):
            group = path.split("/")[2]
            if not isinstance(response, KazooException):
                yield path, group, response
            elif not isinstance(response, NoNodeError):
                reasons[group] = f"its consumers cannot be determined: {type(response).__name__} at {path}"

    def below(paths: Iterable[str]) -> Iterator[str]:
        return (f"{path}/{name}" for path, _, children in responses("get_children", paths) for name in children)

    for path in below(f"{ROOT}/{name}/ids" for name in groups):
        found.setdefault(path.split("/")[2], set()).add(path.split("/")[4])
    for _, group, (owner, _) in responses("get", below(below(f"{ROOT}/{name}/owners" for name in groups))):
        found.setdefault(group, set()).add(owner.decode("utf-8", "backslashreplace"))
    for group, names in found.items():
        listed = ", ".join(sorted(names)[:_MAX_LISTED_CONSUMERS])
        more = f" and {len(names) - _MAX_LISTED_CONSUMERS} more" if len(names) > _MAX_LISTED_CONSUMERS else ""
        reasons[group] = f"it has active consumers in ZooKeeper: {listed}{more}; stop them first"
    return reasons
