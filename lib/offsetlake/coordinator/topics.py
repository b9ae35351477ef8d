"""The topics that groups subscribe to, as a coordinator sees them."""

from collections.abc import Iterable, Sequence
from typing import Protocol


class TopicDescriptions(Protocol):
    """The topics of a cluster at one moment. Topic ids are text in base64, as in Kafka's JSON form of records."""

    def version(self) -> int:
        """Return a number that is greater for every later description of the topics."""

    def creation_version(self) -> int:
        """Return the version in which topics were last created."""

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""

    def id_of(self, name: str) -> str | None:
        """Return the id of a topic, None if it does not exist."""

    def name_of(self, topic_id: str) -> str | None:
        """Return the name of the topic with an id, None if it does not exist."""

    def partitions(self, name: str) -> int:
        """Return the number of partitions of a topic, 0 if it does not exist."""

    def racks(self, name: str) -> Sequence[tuple[str, ...]]:
        """Return for each partition of a topic the racks of its replicas whose brokers have one, with duplicates.

        The result is empty if no broker has a rack.
        """
