"""The file in a log folder that says which broker of which cluster this log belongs to."""

import json
import uuid
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

from offsetlake.errors import BadRequest, LogMismatch
from offsetlake.log.writer.ownership import CLUSTER_FILE
from offsetlake.serve.settings import Settings
from offsetlake.util.atomic_files import replacing

NOT_ADOPTED = "run `offsetlake adopt --execute` with the same options first"


@dataclass(frozen=True, slots=True)
class Identity:
    """The broker that a log belongs to.

    The incarnation stays the same, so that the controller continues the registration after a restart. It would treat
    the log of a new incarnation as incomplete after a crash, although acknowledged writes are on disk.

    | Field       | Description |
    |-------------|-------------|
    | cluster_id  | The cluster |
    | node        | The node id |
    | incarnation, directory | UUIDs of the registration |
    | topic_id    | The id of `__consumer_offsets`, as hexadecimal digits |
    | replicas    | The replicas of each of its partitions before they were moved to this node |
    | starts      | The log start offset of each partition when it was copied; none before the adoption is complete |
    """

    cluster_id: str
    node: int
    incarnation: str
    directory: str
    topic_id: str
    replicas: list[list[int]]
    starts: list[int] = field(default_factory=list)

    @classmethod
    def new(cls, cluster_id: str, node: int, topic_id: bytes, replicas: list[list[int]]) -> Self:
        """Return a new identity with random UUIDs."""
        return cls(cluster_id, node, str(uuid.uuid4()), str(uuid.uuid4()), topic_id.hex(), replicas)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the identity in a log folder, None if the log does not belong to a broker.

        Raises:
            LogMismatch: The file is damaged.
        """
        file = folder / CLUSTER_FILE
        if not file.exists():
            return None
        try:
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise LogMismatch(f"{file} is damaged ({error}): restore it from a copy of the log folder.") from error

    def write(self, folder: Path) -> None:
        """Write the identity to a log folder; it is on disk afterwards."""
        with replacing(folder / CLUSTER_FILE) as temporary:
            temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")

    def check(self, cluster_id: str | None, node: int, topic_id: bytes) -> None:
        """Raise LogMismatch if the log belongs to another broker, or to a topic that was deleted."""
        if cluster_id != self.cluster_id:
            raise LogMismatch(f"The log belongs to cluster {self.cluster_id}, not to {cluster_id}: use another folder.")
        if node != self.node:
            raise LogMismatch(
                f"The log belongs to node {self.node}, not to node {node}: start with --node-id {self.node}."
            )
        if topic_id.hex() != self.topic_id:
            raise LogMismatch(
                "__consumer_offsets of the cluster is not the topic that this log was copied from (its topic id has "
                "changed): it was deleted, or created again. Use another folder."
            )


def with_adopted_log(settings: Settings) -> Settings:
    """Return the settings with the number of log partitions of the cluster.

    Raises:
        BadRequest: The log of the cluster was not adopted, or the log is that of a cluster that is not named.
    """
    identity = Identity.read(Path(settings.log))
    if settings.node_id is None:
        if identity is not None:
            raise BadRequest(
                f"The log {settings.log} is that of cluster {identity.cluster_id}: specify --cluster and "
                f"--node-id {identity.node}."
            )
        return settings
    if identity is None or not identity.starts:
        raise BadRequest(f"The log {settings.log} is not that of the cluster yet: {NOT_ADOPTED}.")
    return replace(settings, log_partitions=len(identity.replicas))
