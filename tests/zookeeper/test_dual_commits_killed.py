"""After SIGKILL of `serve` while clients commit and delete groups, the next start makes ZooKeeper equal to the log."""

import random
import threading
import time
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from support.serve.serving import Serving
from support.serve.wire_client import OFFSET_COMMIT, WireClient
from support.zookeeper.committing import content, fetched, wait_for, znodes
from support.zookeeper.ensemble import Ensemble

pytestmark = [pytest.mark.slow, pytest.mark.long]

GROUPS, PARTITIONS, ROUNDS, DELETE_GROUPS = 8, 5, 3, 42


def change_groups(bootstrap: str, chosen: random.Random) -> None:
    """Commit to groups and delete some of them, until the server is killed."""
    try:
        with WireClient(bootstrap) as client:
            while True:
                group = f"g{chosen.randrange(GROUPS)}"
                if chosen.random() < 0.2:
                    client.ask(DELETE_GROUPS, 1, {"groups_names": [group]})
                else:
                    partitions = [
                        {"partition_index": each, "committed_offset": chosen.randrange(1_000), "committed_metadata": ""}
                        for each in range(PARTITIONS)
                    ]
                    topics = [{"name": "orders", "partitions": partitions}]
                    values = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
                    client.ask(OFFSET_COMMIT, 7, values)
    except (EOFError, ConnectionError):
        return


def test_killed_process_is_made_up_for_by_the_next_one(
    tmp_path: Path, ensemble: Ensemble, chroot: str, client: KazooClient
) -> None:
    client.create("/consumers")
    chosen, settings = random.Random(7), {"address": ensemble.url(chroot)}
    for _ in range(ROUNDS):
        with Serving(tmp_path / "lake", tmp_path / "log", zookeeper=settings) as served:
            changing = threading.Thread(target=change_groups, args=(served.bootstrap, chosen))
            changing.start()
            time.sleep(chosen.uniform(0.3, 1.5))  # the kill comes at any time of the load
            served.kill()
            changing.join()
        with Serving(tmp_path / "lake", tmp_path / "log", zookeeper=settings) as served:
            committed = {f"g{group}": content(fetched(served.bootstrap, f"g{group}")) for group in range(GROUPS)}
            expected = {group: offsets for group, offsets in committed.items() if offsets}
            wait_for(lambda: {name: znodes(client, name) for name in client.get_children("/consumers")}, expected)
