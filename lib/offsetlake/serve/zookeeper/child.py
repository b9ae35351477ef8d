"""The child process with the connection to ZooKeeper: its library takes 20 MB, and its threads would delay answers.

    python -m offsetlake.serve.zookeeper.child URL [FILE]

The file has the credentials (`offsetlake.zookeeper.client.SETTINGS`). Requests arrive at standard input and are
answered at standard output, one after the other (`offsetlake.serve.zookeeper.frames`). The process ends with its
parent.
"""

import json
import os
import sys
import threading
from collections.abc import Sequence
from queue import SimpleQueue

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError, NotEmptyError

from offsetlake.errors import OffsetlakeError
from offsetlake.serve.zookeeper.frames import LENGTH, Message, Row, frame
from offsetlake.util.properties import read_properties
from offsetlake.zookeeper.active_consumers import ROOT
from offsetlake.zookeeper.client import SETTINGS, ZooKeeperAddress, connected
from offsetlake.zookeeper.offset_values import offset_in
from offsetlake.zookeeper.writing import OffsetChange, compare, write

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
    """Make the znodes equal to the rows of a request as far as it says, and return its answer."""
    rows: list[Row] = request["rows"]
    changes = [
        OffsetChange(group, topic, partition, None if offset is None else str(offset).encode())
        for group, topic, partition, offset in rows
    ]
    compare(client, changes)
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
        "refused": [[n, each.reason] for n, each in numbered if each.outcome == "refused"],
    }


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
