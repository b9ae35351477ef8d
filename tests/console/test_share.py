"""The pages of share groups, beside rows computed by hand and the answers of `offsetlake share`."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.lake.location.locate import locate
from offsetlake.log.address import LogAddress
from offsetlake.pipeline.compact.job import compact
from offsetlake.web.console.changing.forms import KINDS, KINDS_OF_SHARE
from offsetlake.web.console.changing.workbench import Workbench
from queries.test_share import FIRST, ORDERS, SECOND, THIRD, TOPICS
from support.console.served import Page, gate, get, served
from support.console.visitors import acl_file
from support.e2e.in_process import InProcess
from support.queries.lakes import end, small_lake
from support.report.report_rows import TAGS


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with the share groups of tests/queries/test_share.py, and one with a hostile name."""
    path = tmp_path_factory.mktemp("share") / "lake"
    value = json.dumps(TOPICS)
    named = {"group_id": "mail-a", "record_type": 15, "kind": "value", "value": value, "log_offset": 1}
    hostile = {**FIRST, "group_id": TAGS, "log_offset": 9, "log_timestamp": 9_000}
    small_lake(
        path,
        share_state_records=[FIRST, SECOND, THIRD, hostile],
        group_records=[{**named, "record_name": "ShareGroupStatePartitionMetadata", "key": '{"groupId":"mail-a"}'}],
        log_ends=[end(1, 40, topic="orders"), end(3, 60, topic="orders")],
        runs=[{"run_id": 1, "job": "ingest", "started_at": 1, "finished_at": 2}],
    )
    compact(InProcess, Lake.create(path), lambda _: None)  # type: ignore[arg-type]
    return path


@pytest.fixture(scope="module")
def port(lake: Path) -> Iterator[int]:
    with served(lake) as listening:
        yield listening


def test_share_groups_are_listed_with_their_records_in_flight(port: int, run: object) -> None:
    page = Page(get(port, "/share").text)
    in_flight = {row[0]: row[1:] for row in page.rows}
    assert in_flight["mail-a"] == ["1", "11", "0", "5", "5", "1", "6", "38"]
    assert in_flight["mail-b"] == ["1", "", "", "0", "0", "0", "0", "unknown"]
    assert {*in_flight} == {"mail-a", "mail-b", TAGS}
    assert [row[0] for row in Page(get(port, "/share?q=mail").text).rows] == ["mail-a", "mail-b"]
    code, out, _ = run(*shlex.split(page.command)[1:], "--format", "json")  # type: ignore[operator]
    assert (code, {json.loads(line)["group_id"] for line in out.splitlines()}) == (0, {*in_flight})


def test_a_share_group_has_its_start_offset_and_ranges_now_and_at_an_instant(port: int) -> None:
    page = Page(get(port, "/share-group?group=mail-a").text)
    assert page.rows[0][:2] == ["orders:0", "15"]
    assert page.rows[1:] == [
        ["orders:0", "15 to 19", "acknowledged", "1"],
        ["orders:0", "20 to 24", "available", "2"],
        ["orders:0", "25 to 25", "archived", "5"],
    ]
    then = Page(get(port, "/share-group?group=mail-a&at=1500").text)
    assert then.rows[0][:2] == ["orders:0", "10"]
    assert "--as-of=1500" in then.command
    both = Page(get(port, "/share-group?group=mail-a&at=3500&and=1500").text)
    assert both.rows[0][:4] == ["orders:0", "10", "+5", "15"]


def test_the_page_of_a_group_leads_to_that_of_a_share_group(port: int) -> None:
    answer = get(port, "/group?group=mail-a&at=2500")
    assert (answer.status, answer.headers["location"]) == (303, "/share-group?at=2500&group=mail-a")
    assert get(port, "/group?group=mail-b").status == 404  # it has no group record, so that its type is unknown
    assert Page(get(port, "/").text).links["mail-a"] == "/share-group?group=mail-a"


def test_a_share_group_has_the_forms_of_share_groups(lake: Path) -> None:
    bench = Workbench(locate(str(lake)), LogAddress(lake.parent))
    with served(lake, gate(allows_changes=True), bench=bench) as port:
        titles = {"Return to earlier start offsets", "Delete"}
        for path in ("/share-group?group=mail-a", "/change?group=mail-a"):
            assert {*Page(get(port, path).text).links} & {*KINDS.values(), *KINDS_OF_SHARE.values()} == titles
        refused = get(port, "/change?group=mail-a&kind=reset")
        assert (refused.status, "offsetlake reset --share" in refused.text) == (400, True)
        assert "Reset offsets" in Page(get(port, "/change?group=other").text).links


def test_share_groups_that_may_not_be_read_look_as_if_they_did_not_exist(lake: Path, tmp_path: Path) -> None:
    with served(lake, gate(acl=acl_file(tmp_path, ("*", "mail-b", ["read"])))) as port:
        assert [row[0] for row in Page(get(port, "/share").text).rows] == ["mail-b"]
        for path in ("/share-group?group={}", "/group?group={}"):
            hidden, missing = (get(port, path.format(name)) for name in ("mail-a", "missing"))
            assert (hidden.status, hidden.text.replace("mail-a", "missing")) == (404, missing.text)
        assert ORDERS not in get(port, "/share").text
