"""Which names no topic of a cluster has, according to the active controller.

CreateTopics is only validated and creates nothing. It succeeds only if no topic has the name, and it fails with
TOPIC_ALREADY_EXISTS whatever else prevents the creation (`ReplicationControlManager.createTopics`).
"""

from collections.abc import Iterable
from datetime import timedelta

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.error_codes import NONE, REQUEST_TIMED_OUT, TOPIC_ALREADY_EXISTS
from offsetlake.node.controllers import Controllers

CREATE_TOPICS = 19
_VERSION = 5  # later ones fail above the quota controller_mutation_rate; this one is only delayed
MAX_NAMES = 1_000
"""Maximum number of names in a request; a controller refuses to validate more than 10,000 partitions at once."""

_TIMEOUT = timedelta(seconds=30)
_DEFAULT = -1


async def unused_names(controllers: Controllers, names: Iterable[bytes]) -> tuple[set[bytes], dict[bytes, int]]:
    """Return the names that no topic has, and the error codes of those for which the controller does not say it.

    Raises:
        LogUnavailable: The controller does not answer.
    """
    unused, unknown, wanted = set[bytes](), dict[bytes, int](), [name.decode() for name in names]
    for begin in range(0, len(wanted), MAX_NAMES):
        topics = [
            {"name": name, "num_partitions": 1, "replication_factor": _DEFAULT, "assignments": (), "configs": ()}
            for name in wanted[begin : begin + MAX_NAMES]
        ]
        values = {"topics": topics, "timeout": _TIMEOUT, "validate_only": True}
        answer = await controllers.send(CREATE_TOPICS, _VERSION, values)
        for topic in answer.topics:
            if topic.error_code == REQUEST_TIMED_OUT:
                raise LogUnavailable(f"CreateTopics failed with the error code {REQUEST_TIMED_OUT}.")
            if topic.error_code == NONE:
                unused.add(topic.name.encode())
            elif topic.error_code != TOPIC_ALREADY_EXISTS:
                unknown[topic.name.encode()] = int(topic.error_code)
    return unused, unknown
