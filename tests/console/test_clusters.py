"""A console of several lakes: each page stays below the path of its cluster, and people sign in once."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fastapi.routing import APIRoute

from console.test_access import depends_on, sign_in
from offsetlake.web.console.access import CHECKS
from offsetlake.web.console.app import CheckedRequests, application
from offsetlake.web.console.clusters import ClusterConsole, clusters_application
from support.console.served import POLICY, Page, gate, get, linked, running
from support.console.visitors import acl_file, tokens_of
from support.queries.lakes import commit, small_lake

NAMES = ("prod", "eu-west.1")


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a lake for each name, with a group of its own."""
    folder = tmp_path_factory.mktemp("clusters")
    for name in NAMES:
        group = f"of-{name}"
        offsets = [{"group_id": group, "topic": "t", "partition": 0, "committed_offset": 3, "log_offset": 3}]
        commits = [commit(n, n, group_id=group, topic="t", log_timestamp=1_000 * n) for n in (1, 2, 3)]
        small_lake(folder / name, groups=[{"group_id": group}], offsets=offsets, offset_commits=commits)
    return {name: folder / name for name in NAMES}


def clusters(lakes: dict[str, Path], **files: str) -> object:
    visitors = gate(**files)
    consoles = {name: ClusterConsole(str(lake), application(lake, visitors, POLICY)) for name, lake in lakes.items()}
    return clusters_application(consoles, visitors)


@pytest.fixture(scope="module")
def port(lakes: dict[str, Path]) -> Iterator[int]:
    with running(clusters(lakes)) as listening:  # type: ignore[arg-type]
        yield listening


def test_every_link_stays_below_the_path_of_its_cluster(port: int) -> None:
    seen = linked(port, "/", lambda page: "/" if page == "/" else "/".join(page.split("/")[:3]) + "/")
    assert {urlsplit(path).path for path in seen} > {f"/clusters/{name}/group" for name in NAMES}


def test_each_cluster_has_the_pages_of_its_lake(port: int) -> None:
    listed = Page(get(port, "/").text)
    assert [row[0] for row in listed.rows] == [*NAMES]
    for name in NAMES:
        assert listed.links[name] == f"/clusters/{name}/"
        assert [row[0] for row in Page(get(port, f"/clusters/{name}/").text).rows] == [f"of-{name}"]
        assert get(port, f"/clusters/{name}").headers["location"] == f"/clusters/{name}/"
        found = get(port, f"/clusters/{name}/search?q=of-")
        assert f"/clusters/{name}/group?group=of-{name}" in found.text
    for path in ("/clusters/other/", "/clusters/other", "/group?group=of-prod", "/clusters/prod/clusters/prod/"):
        assert get(port, path).status == 404
    assert get(port, "/", "evil.example").status == get(port, "/clusters/prod/", "evil.example").status == 421


def test_every_route_has_a_permission_check(lakes: dict[str, Path]) -> None:
    dispatch = clusters(lakes)
    own = next(cell.cell_contents for cell in dispatch.__closure__ if isinstance(cell.cell_contents, CheckedRequests))  # type: ignore[attr-defined]
    for route in own.app.routes:
        assert isinstance(route, APIRoute)
        assert depends_on(route.dependant) & {*CHECKS}, route.path


def test_people_sign_in_once(lakes: dict[str, Path], tmp_path: Path) -> None:
    token = tokens_of(tmp_path, "carol")["carol"]
    acl = acl_file(tmp_path, ("User:carol", "of-prod", ["read"]))
    files = {"credentials": str(tmp_path / "credentials.json"), "acl": acl}
    with running(clusters(lakes, **files)) as listening:  # type: ignore[arg-type]
        assert get(listening, "/").headers["location"] == "/sign-in"
        first = get(listening, "/clusters/prod/group?group=of-prod")
        expected = "/clusters/prod/sign-in?to=%2Fclusters%2Fprod%2Fgroup%3Fgroup%3Dof-prod"
        assert (first.status, first.headers["location"]) == (303, expected)
        cookie = sign_in(listening, token)
        assert [row[0] for row in Page(get(listening, "/clusters/prod/", Cookie=cookie).text).rows] == ["of-prod"]
        assert not Page(get(listening, "/clusters/eu-west.1/", Cookie=cookie).text).rows


def test_the_command_serves_the_lakes_of_a_file(lakes: dict[str, Path], tmp_path: Path) -> None:
    tables = [f'[lakes."{name}"]\nlake = "{lake}"\n' for name, lake in lakes.items()]
    (tmp_path / "lakes.toml").write_text("".join(tables))
    command = ["-m", "offsetlake.cli", "console", "--fleet", str(tmp_path / "lakes.toml"), "--http", "127.0.0.1:0"]
    with subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://127.0.0.1:(\d+)/", line)
        assert found, line + process.stderr.read()
        assert [row[0] for row in Page(get(int(found[1]), "/").text).rows] == [*NAMES]
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
