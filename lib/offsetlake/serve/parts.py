"""What a serving process is made of, for what stands beside the Kafka port."""

from collections import Counter
from collections.abc import Callable, Sized
from dataclasses import dataclass

from offsetlake.log.appender import Appender
from offsetlake.serve.store import Store
from offsetlake.serve.topics import Topics
from offsetlake.serve.traffic import Traffic
from offsetlake.serve.writes import Writes


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of a serving process.

    | field         | is |
    |---------------|----|
    | lake          | folder |
    | store, topics, writes, appender | what is served and how it is written |
    | log_partition | gives that of a group |
    | connections   | those of Kafka's protocol |
    | errors        | counts error codes that were answered, by API |
    | traffic       | counts requests of Kafka's protocol |
    """

    lake: str
    store: Store
    topics: Topics
    writes: Writes
    appender: Appender
    log_partition: Callable[[bytes], int]
    connections: Sized
    errors: Callable[[], Counter[tuple[int, int]]]
    traffic: Traffic
