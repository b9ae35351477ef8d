"""Sends the same requests to a real broker and to the serving process; values contain the fields of all versions."""

from typing import Any

from support.serve.wire_client import METADATA, WireClient

TOPICS = {"as-a-broker-1": 3, "as-a-broker-2": 2}
FIRST, SECOND = TOPICS
MAX_METADATA_CHARACTERS = 4096


class BrokerAndServer:
    """A real broker and the serving process, which get the same requests."""

    def __init__(self, broker: WireClient, serving: WireClient) -> None:
        self.clients = broker, serving
        self._ids = [self._topic_ids(client) for client in self.clients]

    def _topic_ids(self, client: WireClient) -> dict[str, Any]:
        found = client.ask(
            METADATA,
            12,
            {
                "topics": [{"name": name, "topic_id": None} for name in TOPICS],
                "include_topic_authorized_operations": False,
            },
        )
        return {topic["name"]: topic["topic_id"] for topic in found["topics"]}

    def ask(self, api: int, version: int, values: dict[str, Any]) -> tuple[Any, Any]:
        """Return both responses; topic ids are replaced by names, and arrays are sorted."""
        first, second = (
            _with_names(client.ask(api, version, _with_ids(values, ids)), ids)
            for client, ids in zip(self.clients, self._ids, strict=True)
        )
        return first, second


def _with_ids(values: Any, ids: dict[str, Any]) -> Any:
    if isinstance(values, list):
        return [_with_ids(element, ids) for element in values]
    if isinstance(values, dict):
        entity = {name: _with_ids(value, ids) for name, value in values.items()}
        return entity | ({"topic_id": ids[entity["name"]]} if entity.get("name") in ids else {})
    return values


def _with_names(answer: Any, ids: dict[str, Any]) -> Any:
    if isinstance(answer, list):
        return sorted((_with_names(element, ids) for element in answer), key=str)
    if isinstance(answer, dict):
        names = {id_: name for name, id_ in ids.items()}
        return {
            name: names.get(value, value) if name == "topic_id" else _with_names(value, ids)
            for name, value in answer.items()
        }
    return answer


def committed(partition: int, offset: int, epoch: int, metadata: str | None) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": epoch,
        "committed_metadata": metadata,
    }


def commit(group: str | None, **fields: Any) -> dict[str, Any]:
    """Return a commit to existing and unknown partitions, with metadata of the maximum length and longer."""
    partitions = [
        committed(0, 42, 5, "of 0"),
        committed(2, 2**62, -1, None),
        committed(3, 1, 0, "no such partition"),
        committed(1, 0, 0, "é" * MAX_METADATA_CHARACTERS),
    ]
    others = [
        committed(0, 7, 0, "é" * (MAX_METADATA_CHARACTERS + 1)),
        committed(1, 8, 0, "😀" * (MAX_METADATA_CHARACTERS // 2)),
    ]
    topics = [{"name": FIRST, "partitions": partitions}, {"name": SECOND, "partitions": others}]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time_ms": -1,
        "topics": topics,
        **fields,
    }


def fetch(*groups: str, topics: list[dict[str, Any]] | None = None, **fields: Any) -> dict[str, Any]:
    """Return a fetch of some groups, by default of both topics and an unknown partition."""
    if topics is None:
        topics = [{"name": FIRST, "partition_indexes": [0, 1, 2, 3]}, {"name": SECOND, "partition_indexes": [1, 0]}]
    return {
        "group_id": groups[0],
        "topics": topics,
        "groups": [{"group_id": name, "topics": topics} for name in groups],
    } | fields
