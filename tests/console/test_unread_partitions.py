"""Pages of the console about a lake whose log lacked partitions, and records within partitions."""

from collections.abc import Iterator

import pytest

from offsetlake.lake.location.locate import locate
from offsetlake.log.address import LogAddress
from offsetlake.web.console.changing.workbench import Workbench
from support.console.served import Page, gate, get, served
from support.oracle.encoders import group_log_partition
from support.queries.lakes import commit, small_lake

ABSENT, MISSING = range(25, 50), 3
NAMES = [f"group-{number}" for number in range(200)]
READ = next(name for name in NAMES if group_log_partition(name, 50) not in {*ABSENT, MISSING})
ELSEWHERE = next(name for name in NAMES if group_log_partition(name, 50) in ABSENT)
PARTLY = next(name for name in NAMES if group_log_partition(name, 50) == MISSING)
NOT_READ = "NOT READ: __consumer_offsets-25 to 49 and __share_group_state-7 were not in the log"
INCOMPLETE = "INCOMPLETE: log offsets 10 to 19 of __consumer_offsets-3 were missing in the log"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("unread")
    ingested = {
        "run_id": 1, "job": "ingest", "started_at": 1, "finished_at": 2, "log_partitions": 50,
        "absent": [
            *({"topic": "__consumer_offsets", "partition": number} for number in ABSENT),
            {"topic": "__share_group_state", "partition": 7},
        ],
        "missing": [{"topic": "__consumer_offsets", "partition": MISSING, "start": 10, "end": 20}],
    }  # fmt: skip
    place = {"group_id": READ, "log_partition": group_log_partition(READ, 50)}
    small_lake(
        folder / "lake",
        runs=[ingested],
        groups=[place],
        offsets=[{**place, "topic": "t", "partition": 0, "committed_offset": 7, "log_offset": 0}],
        offset_commits=[commit(0, 7, topic="t", log_timestamp=1_000, **place)],
    )
    (folder / "log" / "__consumer_offsets-0").mkdir(parents=True)
    bench = Workbench(locate(folder / "lake"), LogAddress(folder=folder / "log"))
    with served(folder / "lake", gate(allows_changes=True), bench=bench) as listening:
        yield listening


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/?at=2001-01-01",
        f"/group?group={READ}",
        f"/partition?group={READ}&topic=t&partition=0",
        f"/step?group={READ}&topic=t&partition=0&record={group_log_partition(READ, 50)}:0",
        "/topic?topic=t",
        "/client?principal=User:alice",
        "/share",
        "/lag",
        "/committers",
        "/attention",
        "/checks",
        "/report",
        "/what-if",
        "/review",
        f"/change?group={READ}",
        "/sql?statement=SELECT+1",
        "/runs",
        "/quarantine",
        "/group?group=group-unknown",
    ],
)
def test_each_page_names_what_was_not_read(path: str, port: int) -> None:
    text = Page(get(port, path).text).text
    assert NOT_READ in text
    assert INCOMPLETE in text
    assert "Run offsetlake run with" in text


@pytest.mark.parametrize(
    "page", ["/group?group={}", "/partition?group={}&topic=t&partition=0", "/share-group?group={}"]
)
@pytest.mark.parametrize(("group", "where"), [(ELSEWHERE, "its records are in"), (PARTLY, "its records may be among")])
def test_group_that_was_not_read_is_not_unknown(page: str, group: str, where: str, port: int) -> None:
    answer = get(port, page.format(group))
    assert answer.status == 503
    text = Page(answer.text).text
    assert f"Nothing is known about group '{group}': {where}" in text
    assert f"__consumer_offsets-{group_log_partition(group, 50)}" in text


def test_share_group_may_have_share_partitions_that_were_not_read(port: int) -> None:
    answer = get(port, f"/share-group?group={READ}")
    assert answer.status == 503
    assert "their records may be in __share_group_state-7" in Page(answer.text).text


def test_group_that_would_have_been_read_is_unknown(port: int) -> None:
    name = next(name for name in NAMES if name != READ and group_log_partition(name, 50) < MISSING)
    answer = get(port, f"/group?group={name}")
    assert answer.status == 404
    assert "was ever committed" in Page(answer.text).text
