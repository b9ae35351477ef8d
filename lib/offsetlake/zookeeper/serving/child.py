"""The child process with the connection to ZooKeeper: its library takes 20 MB, and its threads would delay answers.

    python -m offsetlake.zookeeper.serving.child URL [FILE]

The file has the credentials (`offsetlake.zookeeper.client.SETTINGS`). Requests arrive at standard input and are
answered at standard output, one after the other (`offsetlake.zookeeper.serving.frames`). The process ends with its
parent.
"""

import json
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from queue import SimpleQueue

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError, NotEmptyError

from offsetlake.errors import OffsetlakeError
from offsetlake.util.properties import read_properties
from offsetlake.zookeeper.active_consumers import ROOT, active_consumers
from offsetlake.zookeeper.address import SETTINGS, ZooKeeperAddress
from offsetlake.zookeeper.client import connected, read_many
from offsetlake.zookeeper.offset_values import offset_in
from offsetlake.zookeeper.serving.frames import LENGTH, Message, Row, frame
from offsetlake.zookeeper.writing import CHANGED_MEANWHILE, OffsetChange, compare, is_name, write

DIFFERENT = "different"


def main(url: str, file: str | None = None) -> None:
    """Answer requests until the parent ends."""
    requests: SimpleQueue[Message] = SimpleQueue()
    threading.Thread(target=_receive, args=(requests,), daemon=True).start()
    while True:
        request = requests.get()
        try:
            address = ZooKeeperAddress.parse(url, read_properties(file, SETTINGS) if file else {})
            with connected(address) as client:
                while True:
                    _send(answer(client, request))
                    request = requests.get()
        except OffsetlakeError as error:
            _send({"error": str(error)})


def _receive(requests: "SimpleQueue[Message]") -> None:
    """Put each request into the queue; end the process when there are no more, whatever it waits for."""
    rows: list[Row] = []
    while len(length := sys.stdin.buffer.read(LENGTH.size)) == LENGTH.size:
        request: Message = json.loads(sys.stdin.buffer.read(*LENGTH.unpack(length)))
        rows += request["rows"]
        if not request.get("more"):
            requests.put(request | {"rows": rows})
            rows = []
    os._exit(0)


def _send(message: Message) -> None:
    sys.stdout.buffer.write(frame(message))
    sys.stdout.buffer.flush()


def answer(client: KazooClient, request: Message) -> Message:
    """Do what a request says, and return its answer."""
    if "read" in request:
        return {"rows": read_groups(client, request["read"])}
    if "list" in request:
        return {"groups": client.retry(client.get_children, ROOT)}
    if "active" in request:
        return {"active": active_consumers(client, [group for group in request["active"] if is_name(group)])}
    return make_equal(client, request)


def make_equal(client: KazooClient, request: Message) -> Message:
    """Make the znodes equal to the rows of a request as far as it says, and return its answer."""
    rows: list[Row] = request["rows"]
    changes = [
        OffsetChange(group, topic, partition, None if offset is None else str(offset).encode())
        for group, topic, partition, offset in rows
    ]
    compare(client, changes, spares_active=request["spares_active"])
    spare_active(client, changes)
    if not request["overwrite"]:
        for change in changes:
            if change.outcome == "planned" and change.previous is not None:
                change.outcome = DIFFERENT
    write(client, changes, lambda _: None)
    remove_empty(client, [each for each in changes if each.content is None and each.outcome in {"done", "unchanged"}])
    outcomes = [change.outcome for change in changes]
    numbered = [*enumerate(changes)]
    return {
        "written": outcomes.count("done"),
        "unchanged": outcomes.count("unchanged"),
        "different": [[n, offset_in(each.previous or b"")[0]] for n, each in numbered if each.outcome == DIFFERENT],
        "refused": [[n, _reason(each)] for n, each in numbered if each.outcome == "refused"],
    }


def spare_active(client: KazooClient, changes: Sequence[OffsetChange]) -> None:
    """Refuse planned deletions of offsets of groups with active consumers, whose offsets others need."""
    deleted = [change for change in changes if change.outcome == "planned" and change.content is None]
    active = active_consumers(client, [*dict.fromkeys(change.group_id for change in deleted)])
    for change in deleted:
        if change.group_id in active:
            change.refuse(active[change.group_id])


def _reason(change: OffsetChange) -> str | None:
    return (
        "others changed a znode of the group at the same time" if change.reason == CHANGED_MEANWHILE else change.reason
    )


def read_groups(client: KazooClient, groups: Sequence[str]) -> list[Row]:
    """Return the offsets of groups; those whose znodes contain no offset, or cannot be read, are -1."""
    topics = _children(client, (f"{ROOT}/{group}/offsets" for group in groups if is_name(group)))
    partitions = (path for path in _children(client, topics) if path.rpartition("/")[2].isdecimal())
    rows: list[Row] = []
    for path, response in read_many(client, "get", partitions):
        _, _, group, _, topic, partition = path.split("/")
        if not isinstance(response, NoNodeError):
            offset = None if isinstance(response, KazooException) else offset_in(response[0])[0]
            rows.append((group, topic, int(partition), -1 if offset is None else offset))
    return rows


def _children(client: KazooClient, paths: Iterable[str]) -> Iterator[str]:
    for path, response in read_many(client, "get_children", paths):
        if not isinstance(response, KazooException):
            yield from (f"{path}/{name}" for name in response)


def remove_empty(client: KazooClient, deleted: Sequence[OffsetChange]) -> None:
    """Delete the znodes above deleted ones that have no children any more, up to those of their groups.

    The server refuses to delete a znode with children, so that nothing is deleted that others have created meanwhile.
    """
    for group, topic in dict.fromkeys((change.group_id, change.topic) for change in deleted):
        _delete(client, f"{ROOT}/{group}/owners/{topic}")
        _delete(client, f"{ROOT}/{group}/offsets/{topic}")
    for group in dict.fromkeys(change.group_id for change in deleted):
        if _delete(client, f"{ROOT}/{group}/offsets"):
            for name in ("owners", "ids"):
                _delete(client, f"{ROOT}/{group}/{name}")
            _delete(client, f"{ROOT}/{group}")


def _delete(client: KazooClient, path: str) -> bool:
    """Delete a znode if it has no children; return whether it does not exist any more."""
    try:
        client.retry(client.delete, path)
    except NoNodeError:
        return True
    except (NotEmptyError, KazooException):
        return False
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
