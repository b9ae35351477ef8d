"""Kills the serving process under load, again and again, and looks for what was acknowledged.

    python -m support.serve.kill_rounds FOLDER ROUNDS [SEED [FLUSH]]

Many connections commit, each to a group of its own: one request sets several partitions to the same number, one more
each time, many requests under way at once. After the kill all partitions of a group must have the same number: at least
the last that was acknowledged, at most the last that was sent.
"""

import random
import struct
import sys
import threading
import time
from pathlib import Path

from support.serve.serving import Serving
from support.serve.wire_client import OFFSET_COMMIT, OFFSET_FETCH, WireClient, frame, request

CONNECTIONS, PARTITIONS, UNDER_WAY = 12, 3, 20
TOPIC = "killed"


class Committer(threading.Thread):
    """Commits numbers, from one on, until the connection ends."""

    def __init__(self, bootstrap: str, group: str, first: int) -> None:
        super().__init__()
        self._address, self._group = bootstrap, group
        self.sent = self.acknowledged = first - 1

    def run(self) -> None:
        try:
            with WireClient(self._address) as client:
                while True:
                    while self.sent - self.acknowledged < UNDER_WAY:
                        self.sent += 1
                        client.socket.sendall(self._commit(self.sent))
                    answer = client.receive()
                    errors = struct.unpack(">" + "4xh" * PARTITIONS, answer[-6 * PARTITIONS :])
                    assert not any(errors), errors
                    self.acknowledged += 1
        except (EOFError, ConnectionError, TimeoutError):
            return

    def _commit(self, number: int) -> bytes:
        partitions = [
            {"partition_index": at, "committed_offset": number, "committed_metadata": str(number)}
            for at in range(PARTITIONS)
        ]
        values = {
            "group_id": self._group,
            "generation_id": -1,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": TOPIC, "partitions": partitions}],
        }
        return frame(OFFSET_COMMIT, 7, number & 0x7FFFFFFF, request(OFFSET_COMMIT, 7, values))


def numbers(bootstrap: str, group: str) -> set[int]:
    """Give the numbers the partitions of a group have."""
    asked = {"group_id": group, "topics": [{"name": TOPIC, "partition_indexes": [*range(PARTITIONS)]}]}
    with WireClient(bootstrap) as client:
        answer = client.ask(OFFSET_FETCH, 5, asked)
    partitions = answer["topics"][0]["partitions"]
    assert all(of["metadata"] == str(max(of["committed_offset"], 0) or "") for of in partitions), partitions
    return {of["committed_offset"] for of in partitions}


def killed_again_and_again(folder: Path, rounds: int, seed: int, flush: str = "always") -> int:
    """Do so many rounds; gives how many commits were acknowledged. AssertionError where one is lost or in parts.

    A process that is killed loses nothing that it has written, so this holds whenever it is brought to the disk.
    """
    chosen = random.Random(seed)
    groups = [f"killed-{number}" for number in range(CONNECTIONS)]
    known = dict.fromkeys(groups, (0, 0))
    for _ in range(rounds + 1):
        with Serving(folder / "lake", folder / "log", flush=flush) as serving:
            for group, (acknowledged, sent) in known.items():
                found = numbers(serving.bootstrap, group)
                assert len(found) == 1, f"{group} has {found}: a commit was applied in part"
                (number,) = found
                assert acknowledged <= max(number, 0) <= sent, f"{group}: {acknowledged} <= {number} <= {sent}"
                known[group] = max(number, 0), max(number, 0)
            committers = [Committer(serving.bootstrap, group, known[group][0] + 1) for group in groups]
            for committer in committers:
                committer.start()
            time.sleep(chosen.uniform(0.0, 0.4))
            serving.kill()
            for committer, group in zip(committers, groups, strict=True):
                committer.join()
                known[group] = committer.acknowledged, committer.sent
    return sum(acknowledged for acknowledged, _ in known.values())


if __name__ == "__main__":
    folder, rounds, seed, flush = (*sys.argv[1:], *("0", "always")[len(sys.argv) - 3 :])
    acknowledged = killed_again_and_again(Path(folder), int(rounds), int(seed), flush)
    sys.stdout.write(f"{acknowledged} commits acknowledged, none lost\n")
