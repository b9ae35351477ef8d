"""Fetches a range of a live partition."""

from collections.abc import Generator
from contextlib import closing

from offsetlake.log.cluster import topic
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.positions import LogPartition, OffsetRange


def fetch(
    connection: KafkaConnection, where: LogPartition, offsets: OffsetRange, max_bytes: int = topic.RESPONSE_BYTES
) -> Generator[bytes, None, None]:
    with closing(topic.fetch(connection, [(where, offsets)], max_bytes)) as pieces:
        for number, data in pieces:
            assert number == 0
            yield data
