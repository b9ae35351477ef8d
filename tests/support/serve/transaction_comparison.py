"""Sends the same transactions to a real broker and to the serving process, whose producer ids differ."""

import time
from datetime import timedelta
from typing import Any

from offsetlake.serve.protocol.api_keys import (
    ADD_OFFSETS_TO_TXN,
    DELETE_GROUPS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
)
from support.broker.broker import BrokerFailedError
from support.serve.kio_requests import ask

RETRIED = {14, 15, 16, 51}
TOPIC, PARTITIONS = "transactions", 4
SECONDS = 120
OUTCOME_FIELDS = ("producer_id", "producer_epoch", "error_code")


def _of_partitions(answer: dict[str, Any]) -> list[int]:
    return [fields["error_code"] for topic in answer.get("topics", ()) for fields in topic["partitions"]]


class Side:
    """One of the two servers, with its producers by transactional id."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._ids: dict[int, int] = {-1: -1}  # the ordinal number of each producer id
        self.producers: dict[str, tuple[int, int]] = {}
        for key_type in (0, 1):  # a broker creates its internal topics on this request
            self._ask(FIND_COORDINATOR, 1, key="a", key_type=key_type)

    def init(self, name: str | None, version: int = 4, *, timeout: float = 600, **fields: Any) -> Any:
        """Send InitProducerId; retry while an earlier transaction is completed."""
        values = {"transactional_id": name, "transaction_timeout": timedelta(seconds=timeout)} | self._producer(fields)
        answer = self._ask(INIT_PRODUCER_ID, version, **values)
        if name is not None and not answer["error_code"]:
            self.producers[name] = answer["producer_id"], answer["producer_epoch"]
        return self._outcome(answer)

    def add(self, name: str, group: str, version: int = 3, **fields: Any) -> Any:
        return self._outcome(self._ask(ADD_OFFSETS_TO_TXN, version, group_id=group, **self._of(name, fields)))

    def commit(
        self,
        name: str,
        group: str,
        offset: int,
        version: int,
        partitions: Any = (0,),
        metadata: str = "m",
        **fields: Any,
    ) -> Any:
        """Send offsets of a group in a transaction."""
        rows = [
            {"partition_index": at, "committed_offset": offset, "committed_metadata": metadata} for at in partitions
        ]
        topics = fields.pop("topics", [{"name": TOPIC, "partitions": rows}])
        answer = self._ask(TXN_OFFSET_COMMIT, version, group_id=group, topics=topics, **self._of(name, fields))
        errors = (
            (fields["partition_index"], fields["error_code"])
            for topic in answer["topics"]
            for fields in topic["partitions"]
        )
        return sorted(errors)

    def end(self, name: str, version: int, *, commits: bool, **fields: Any) -> Any:
        """End a transaction; from version 5 on, the client continues with the producer id and epoch of the response."""
        answer = self._ask(END_TXN, version, committed=commits, **self._of(name, fields))
        if "producer_id" in answer and not answer["error_code"]:
            self.producers[name] = answer["producer_id"], answer["producer_epoch"]
        return self._outcome(answer)

    def plain(self, group: str, offset: int, partitions: Any = (0,)) -> Any:
        rows = [{"partition_index": at, "committed_offset": offset, "committed_metadata": ""} for at in partitions]
        topics = [{"name": TOPIC, "partitions": rows}]
        answer = self._ask(OFFSET_COMMIT, 7, group_id=group, generation_id_or_member_epoch=-1, topics=topics)
        return _of_partitions(answer)

    def fetched(self, group: str, *, stable: bool = False) -> Any:
        """Return offset, metadata and error code by partition."""
        topics = [{"name": TOPIC, "partition_indexes": [*range(PARTITIONS)]}]
        answer = self._ask(OFFSET_FETCH, 7, group_id=group, topics=topics, require_stable=stable)
        return {
            fields["partition_index"]: (fields["committed_offset"], fields["metadata"], fields["error_code"])
            for fields in answer["topics"][0]["partitions"]
        }

    def settled(self, group: str) -> Any:
        """Wait until a group has no pending offsets; return its stored offsets."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            found = self.fetched(group, stable=True)
            if not any(error for _, _, error in found.values()):
                return found
            time.sleep(0.05)
        raise BrokerFailedError(f"{group} is unstable: {found}")

    def delete_group(self, group: str) -> Any:
        return self._ask(DELETE_GROUPS, 2, groups_names=[group])["results"]

    def delete_offset(self, group: str, partition: int) -> Any:
        topics = [{"name": TOPIC, "partitions": [{"partition_index": partition}]}]
        return self._ask(OFFSET_DELETE, 0, group_id=group, topics=topics)["topics"]

    def _of(self, name: str, fields: dict[str, Any]) -> dict[str, Any]:
        id_, epoch = self.producers.get(name, (4711, 0))
        return {"transactional_id": name, "producer_id": id_, "producer_epoch": epoch} | self._producer(fields)

    def _producer(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return producer fields: `like` names another producer, `older` subtracts from its epoch."""
        if "like" in fields:
            id_, epoch = self.producers[fields.pop("like")]
            fields |= {"producer_id": id_, "producer_epoch": epoch - fields.pop("older", 0)}
        return fields

    def _outcome(self, answer: dict[str, Any]) -> Any:
        found = [answer.get(name) for name in OUTCOME_FIELDS]
        if found[0] is not None:
            found[0] = self._ids.setdefault(found[0], len(self._ids))
        return found

    def _ask(self, api: int, version: int, **values: Any) -> Any:
        """Send a request; retry while the error code is retriable."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            answer = ask(self.bootstrap, api, version, **values)
            if not {answer.get("error_code"), *_of_partitions(answer)} & RETRIED:
                return answer
            time.sleep(0.05)
        raise BrokerFailedError(f"{self.bootstrap} answers {values} with {answer}")
