"""The groups of which a client is a member, read from the table or from what is kept of it."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from offsetlake.queries.exploring import names
from offsetlake.queries.exploring.names import members_by_client, memberships
from support.queries.lakes import small_lake

Row = dict[str, Any]


def member(group: str, number: int, client: str) -> Row:
    topics = [f"t{n}" for n in range(number % 3)] if number % 4 else None
    named = {"group_id": group, "member_id": f"m{number}", "client_id": client, "client_host": f"/h{number}"}
    return {**named, "subscribed_topics": topics, "details": "{}", "log_partition": number % 5}


@pytest.mark.parametrize("limit", [3, 1000])
def test_the_memberships_of_a_client_are_the_same_without_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(names, "_ROWS_A_GROUP", 7)
    random = Random(3)
    clients = ["", "it's", "client", "client-1", "\u00fcber"]
    rows = [member(f"g{random.randrange(9)}", number, random.choice(clients)) for number in range(60)]
    lake = small_lake(tmp_path, group_members=rows)
    kept = members_by_client(lake)
    assert kept is not None
    for client in [*clients, "none"]:
        of_client = [row for row in rows if row["client_id"] == client]
        of_client.sort(key=lambda row: (row["group_id"], row["member_id"]))
        columns = ("group_id", "member_id", "client_host", "subscribed_topics")
        expected = [{name: row[name] for name in columns} for row in of_client[:limit]]
        assert memberships(lake, client, limit, kept).to_pylist() == expected
        assert memberships(lake, client, limit).to_pylist() == expected


def test_many_members_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = small_lake(tmp_path, group_members=[member("g", number, "client") for number in range(3)])
    monkeypatch.setattr(names, "_MAX_MEMBERS", 2)
    assert members_by_client(lake) is None


def test_no_members(tmp_path: Path) -> None:
    lake = small_lake(tmp_path)
    assert memberships(lake, "client", 10, members_by_client(lake)).num_rows == 0
