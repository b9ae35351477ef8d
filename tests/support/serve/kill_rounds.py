"""Kills the serving process under load repeatedly, and checks that acknowledged commits survive.

    python -m support.serve.kill_rounds FOLDER ROUNDS [SEED [FLUSH]]

Many connections commit, each to separate groups in rotation, with many requests in flight: each request sets several
partitions to the same number, which increases by one. The commits of every second connection differ only in their
offsets, those of the others also in their metadata. After the kill, all partitions of a group must have the same
number: at least the last acknowledged one, at most the last one that was sent.
"""

import random
import struct
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from support.serve.serving import Serving
from support.serve.wire_client import OFFSET_COMMIT, OFFSET_FETCH, WireClient, frame, request

CONNECTIONS, GROUPS, PARTITIONS, IN_FLIGHT = 12, 8, 20, 20
TOPIC = "killed"


class Committer(threading.Thread):
    """Commits increasing numbers to some groups in rotation until the connection is closed."""

    def __init__(self, bootstrap: str, groups: Sequence[str], first: int, *, describes: bool) -> None:
        super().__init__()
        self._address, self.groups, self._describes = bootstrap, groups, describes
        self.first, self.sent, self.acknowledged = first, first - 1, first - 1

    def run(self) -> None:
        try:
            with WireClient(self._address) as client:
                while True:
                    while self.sent - self.acknowledged < IN_FLIGHT:
                        self.sent += 1
                        client.socket.sendall(self._commit(self.sent))
                    answer = client.receive()
                    errors = struct.unpack(">" + "4xh" * PARTITIONS, answer[-6 * PARTITIONS :])
                    assert not any(errors), errors
                    self.acknowledged += 1
        except (EOFError, ConnectionError, TimeoutError):
            return

    def last(self, group: str, number: int) -> int:
        """Return the last number up to the given one that was committed to a group, -1 if there is none."""
        last = number - (number - self.groups.index(group)) % len(self.groups)
        return last if last >= self.first else -1

    def _commit(self, number: int) -> bytes:
        metadata = str(number) if self._describes else ""
        partitions = [
            {"partition_index": partition, "committed_offset": number, "committed_metadata": metadata}
            for partition in range(PARTITIONS)
        ]
        values = {
            "group_id": self.groups[number % len(self.groups)],
            "generation_id": -1,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": TOPIC, "partitions": partitions}],
        }
        return frame(OFFSET_COMMIT, 7, number & 0x7FFFFFFF, request(OFFSET_COMMIT, 7, values))


def numbers(bootstrap: str, group: str) -> set[int]:
    """Return the numbers of the partitions of a group."""
    values = {"group_id": group, "topics": [{"name": TOPIC, "partition_indexes": [*range(PARTITIONS)]}]}
    with WireClient(bootstrap) as client:
        answer = client.ask(OFFSET_FETCH, 5, values)
    rows = answer["topics"][0]["partitions"]
    assert all(row["metadata"] in {"", str(row["committed_offset"])} for row in rows), rows
    assert len({row["metadata"] for row in rows}) == 1, rows
    return {row["committed_offset"] for row in rows}


def killed_repeatedly(folder: Path, rounds: int, seed: int, flush: str = "always") -> int:
    """Run rounds; return the number of acknowledged commits. Raise AssertionError if one is lost or incomplete.

    A killed process loses nothing that it has written, so this applies to every flush setting.
    """
    chosen = random.Random(seed)
    names = [[f"killed-{number}-{each}" for each in range(GROUPS)] for number in range(CONNECTIONS)]
    known = {group: (-1, -1) for groups in names for group in groups}
    first = total = 0
    for _ in range(rounds + 1):
        with Serving(folder / "lake", folder / "log", flush=flush) as serving:
            for group, (acknowledged, sent) in known.items():
                found = numbers(serving.bootstrap, group)
                assert len(found) == 1, f"{group} has {found}: a commit was applied in part"
                (number,) = found
                assert acknowledged <= number <= sent, f"{group}: {acknowledged} <= {number} <= {sent}"
                known[group] = number, number
            committers = [
                Committer(serving.bootstrap, groups, first, describes=index % 2 == 0)
                for index, groups in enumerate(names)
            ]
            for committer in committers:
                committer.start()
            while any(each.is_alive() and each.acknowledged < first for each in committers):
                time.sleep(0.01)  # the interval between polls
            time.sleep(chosen.uniform(0.0, 0.4))  # the kill comes at any time of the load
            serving.kill()
            for committer in committers:
                committer.join()
                total += committer.acknowledged - first + 1
                for group in committer.groups:
                    before, sent = known[group][0], committer.last(group, committer.sent)
                    known[group] = max(before, committer.last(group, committer.acknowledged)), max(before, sent)
            first = max(committer.sent for committer in committers) + 1
    return total


if __name__ == "__main__":
    folder, rounds, seed, flush = (*sys.argv[1:], *("0", "always")[len(sys.argv) - 3 :])
    acknowledged = killed_repeatedly(Path(folder), int(rounds), int(seed), flush)
    sys.stdout.write(f"{acknowledged} commits acknowledged, none lost\n")
