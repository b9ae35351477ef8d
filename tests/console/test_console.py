"""The console over HTTP: its answers, the commands that it shows, and what it refuses."""

import gzip
import http.client
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, urlencode

import pytest

from offsetlake.lake.location.locate import locate
from offsetlake.log.address import LogAddress
from offsetlake.util.times import now_ms, to_ms
from offsetlake.web.console.app import CheckedRequests, application
from offsetlake.web.console.changing.workbench import Workbench
from support.console.served import POLICY, Page, gate, get, request, served
from support.queries.lakes import commit, end, small_lake
from support.report.report_rows import MATH, TAGS

PARTITION_COMMITS = 250
MANY = [{"group_id": f"g{n:03}", "member_count": n % 7, "state": "Stable" if n % 7 else "Empty"} for n in range(230)]
NAMES = (TAGS, MATH, "-dash", "a/b?c=d&e#f", "javascript:alert(1)", "\x1b[31mred", "{{ 7 * 7 }}")
STORED = [
    {"group_id": name, "topic": name, "partition": 0, "committed_offset": 1_234_567, "log_offset": 9, "metadata": name}
    for name in NAMES
]
STEPS = [
    commit(n, 1000 - n if n == 200 else 1000 + n, log_timestamp=1_000 * n + 1_000, group_id="g001", topic="t")
    for n in range(PARTITION_COMMITS)
]
TABLES = {
    "groups": [*MANY, *({"group_id": name} for name in NAMES)],
    "share_partitions": [{"group_id": "shared", "partition": 0, "in_flight_records": 0, "log_offset": 1}],
    "offsets": [*STORED, {"group_id": "g001", "topic": "t", "partition": 0, "committed_offset": 7, "log_offset": 249}],
    "offset_commits": [
        *STEPS,
        *(commit(1000 + n, 5, group_id=name, topic=name, log_timestamp=1_000) for n, name in enumerate(NAMES)),
    ],
}
ROUTES = {
    "/": "/?q=g00",
    "/group": "/group?group=g001",
    "/partition": "/partition?group=g001&topic=t&partition=0",
    "/step": "/step?group=g001&topic=t&partition=0&record=0:200",
    "/search": "/search?q=g00",
    "/share": "/share",
    "/share-group": "/share-group?group=shared",
    "/topic": "/topic?topic=t",
    "/client": "/client?principal=User:alice",
    "/series": "/series?group=g001&topic=t&partition=0",
    "/static/{name}": "/static/console.css",
    "/lag": "/lag",
    "/committers": "/committers",
    "/runs": "/runs",
    "/quarantine": "/quarantine",
    "/attention": "/attention",
    "/checks": "/checks",
    "/report": "/report",
    "/report/{number}.svg": "/report/0.svg",
    "/what-if": "/what-if",
    "/what-if/policy.toml": "/what-if/policy.toml?policy=%5Bretention%5D%0Adefault%3D%223d%22",
    "/sql": "/sql?statement=SELECT+1",
    "/sql.csv": "/sql.csv?statement=SELECT+1",
    "/sign-in": "/sign-in",
    "/review": "/review",
    "/change": "/change?group=g001",
    "/change/{id}": "/change/none",
}
"""An address of each route. A new route has to be added here, and is then tested by the tests of all routes."""

HOSTS = ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "localhost:1@evil", "")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("console") / "lake"
    small_lake(path, **TABLES)
    return path


@pytest.fixture(scope="module")
def port(lake: Path) -> Iterator[int]:
    with served(lake) as listening:
        yield listening


def page(port: int, path: str, status: int = 200) -> Page:
    answer = get(port, path)
    assert answer.status == status, answer.text
    assert len(answer.text.encode()) < 1_000_000
    return Page(answer.text)


def names(shown: Page) -> list[str]:
    return [row[0] for row in shown.rows]


def test_every_route_has_a_tested_address(lake: Path) -> None:
    app = application(lake, gate(), POLICY)
    assert isinstance(app, CheckedRequests)
    shown = {route.path for route in app.app.routes if "GET" in route.methods}  # type: ignore[attr-defined]
    assert shown == {*ROUTES}


@pytest.mark.parametrize("path", [*ROUTES.values(), "/none"])
def test_every_route_refuses_foreign_hosts_and_has_security_headers(port: int, path: str) -> None:
    answers = [get(port, path, host) for host in HOSTS]
    assert [(answer.status, answer.text) for answer in answers] == [
        (421, "The Host header must be localhost, 127.0.0.1 or [::1].\n")
    ] * len(HOSTS)
    local = [get(port, path, host) for host in ("localhost", f"127.0.0.1:{port}", f"[::1]:{port}")]
    status = (
        404 if path in {"/none", "/report/0.svg"} else 403 if path.startswith("/change") else 200
    )  # this console only reads
    assert [answer.status for answer in local] == [status] * 3
    for answer in (*answers, *local):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_groups_are_searched_sorted_and_paged(port: int) -> None:
    every = sorted([*(row["group_id"] for row in MANY), *NAMES], key=lambda name: name.encode())
    first, second, third, fourth = (page(port, f"/?page={n}") for n in (1, 2, 3, 4))
    shown = [*names(first), *names(second), *names(third)]
    assert len(shown) == len(every)
    assert [name for name in shown if name.startswith("g")] == [name for name in every if name.startswith("g")]
    assert "No group matches" in fourth.text
    assert first.links["Next page"] == "/?page=2"
    assert names(page(port, "/?q=g00")) == [f"g00{n}" for n in range(10)]
    assert names(page(port, "/?q=g00[34]")) == ["g003", "g004"]
    by_members = page(port, "/?q=g&state=Stable&sort=-member_count&page=2")
    stable = sorted((-row["member_count"], row["group_id"]) for row in MANY if row["state"] == "Stable")
    assert names(by_members) == [name for _, name in stable[100:200]]


@pytest.mark.parametrize(
    "path",
    [
        "/?q=g00", "/?q=g&state=Stable", "/?q=g001&at=1970-01-01T00:00:05", "/group?group=g001",
        "/group?group=g001&at=1970-01-01T00:00:05Z", "/group?group=-dash",
    ],
)  # fmt: skip
def test_the_command_of_a_page_has_the_same_answer(port: int, run: object, path: str) -> None:
    shown = page(port, path)
    program, *arguments = shlex.split(shown.command)
    assert program == "offsetlake"
    code, out, err = run(*arguments, "--format", "json")  # type: ignore[operator]
    assert code == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows
    if path.startswith("/?"):
        assert names(shown) == [row["group_id"] for row in rows][:100]
    else:
        expected = [(f"{row['topic']}:{row['partition']}", f"{row['committed_offset']:,}") for row in rows]
        assert [(row[0], row[1]) for row in shown.rows if row[0].startswith(("t:", "-dash:"))] == expected


@pytest.mark.parametrize(
    "filters",
    ["event=reset_back", "event=tombstone&who=alice", "who=ALICE", "since=150000&until=1970-01-01T00:03:20Z", "at=5500",
     "at=201000&and=200000"],
)  # fmt: skip
def test_the_command_of_a_partition_has_its_filters(port: int, run: object, filters: str) -> None:
    shown = page(port, f"/partition?group=g001&topic=t&partition=0&{filters}")
    code, out, err = run(*shlex.split(shown.command)[1:], "--format", "json")  # type: ignore[operator]
    assert code == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row[0] for row in shown.rows] == [f"{row['log_partition']}:{row['log_offset']:,}" for row in rows][:100]
    assert len(rows) < PARTITION_COMMITS


def test_an_instant_shows_what_was_committed_by_then(port: int) -> None:
    shown = page(port, "/group?group=g001&at=5500")
    assert [row[:2] for row in shown.rows] == [["t:0", "1,004"]]
    assert "deleted or expired until 1970-01-01T00:00:05.500Z." in shown.text


@pytest.mark.parametrize("path", ["/?", "/group?group=g001&", "/partition?group=g001&topic=t&partition=0&"])
def test_a_page_before_history_links_to_the_earliest_instant(port: int, path: str) -> None:
    for parameters in ("at=0", "at=5500&and=0"):
        earlier = page(port, f"{path}{parameters}", status=400)
        assert "History begins at 1970-01-01T00:00:01.000Z" in earlier.text
        assert "The page is shown without it." in earlier.text
        field = "and" if "and" in parameters else "at"
        assert [attributes["value"] for _, attributes in earlier.tags if attributes.get("id") == field] == ["0"]
        query = earlier.links["Show the earliest instant"]
        assert parse_qs(query[1:]) == parse_qs(path[path.index("?") + 1 :] + parameters) | {
            field: ["1970-01-01T00:00:01.000Z"]
        }
        page(port, path[: path.index("?")] + query)


def test_a_group_with_more_partitions_than_charts_says_so(port: int, tmp_path: Path) -> None:
    words = "The first 4 partitions, those with changes first."
    rows = [{"group_id": "g", "topic": "t", "partition": n, "committed_offset": 7, "log_offset": n} for n in range(5)]
    commits = [commit(n, 7, partition=n, log_timestamp=1_000) for n in range(5)]
    small_lake(tmp_path / "lake", groups=[{"group_id": "g"}], offsets=rows, offset_commits=commits)
    with served(tmp_path / "lake") as listening:
        shown = page(listening, "/group?group=g")
    assert words in shown.text
    assert len([tag for tag, attributes in shown.tags if attributes.get("class") == "chart"]) == 4
    assert words not in page(port, "/group?group=g001").text


def test_the_timeline_shows_all_commits_and_the_instants_of_the_page(port: int) -> None:
    shown = page(port, "/?at=5500&and=100000")
    assert f"{PARTITION_COMMITS + len(NAMES):,} commits" in shown.text
    sliders = [attributes for tag, attributes in shown.tags if tag == "input" and attributes.get("type") == "range"]
    assert [(slider["data-sets"], slider["value"]) for slider in sliders] == [("at", "5500"), ("and", "100000")]
    assert len([tag for tag, attributes in shown.tags if attributes.get("class") == "instant"]) == 2


def test_a_second_instant_shows_differences(port: int, run: object) -> None:
    assert names(page(port, "/?at=5500&and=100000")) == ["g001"]
    (group,) = page(port, "/?at=210000&and=200000&q=g0").rows
    assert group == ["g001", "1", "0", "0", "0", "+10"]
    (back,) = page(port, "/?at=200000&and=201000").rows
    assert back == ["g001", "1", "1", "0", "0", "-399"]
    shown = page(port, "/group?group=g001&at=201000&and=200000")
    assert shown.rows[-1] == ["t:0", "1,199", "800", "-399"]
    code, out, err = run(*shlex.split(shown.command)[1:], "--format", "json")  # type: ignore[operator]
    assert (code, [json.loads(line)["difference"] for line in out.splitlines()]) == (0, [-399]), err
    assert "No offset differs" in page(port, "/?at=5500&and=5600").text
    assert "No offset of the group differs" in page(port, "/group?group=g001&at=5500&and=5600").text


@pytest.mark.parametrize("path", ["/?", "/group?group=g001&", "/partition?group=g001&topic=t&partition=0&"])
def test_the_instants_are_in_every_link_to_another_page(port: int, path: str) -> None:
    shown = page(port, f"{path}at=5500&and=9000")
    links = {text: link for text, link in shown.links.items() if text not in {"Newest state", "End the comparison"}}
    assert "Groups" in links
    for link in links.values():
        assert link.startswith("#") or ("at=5500" in link and "and=9000" in link), link


def test_every_commit_of_a_partition_is_on_one_page_with_its_effect(port: int) -> None:
    shown = [page(port, "/partition?group=g001&topic=t&partition=0")]
    while "Next page" in shown[-1].links:
        shown.append(page(port, shown[-1].links["Next page"]))
    assert len(shown) == 3
    rows = [row for each in shown for row in each.rows]
    newest_first = range(PARTITION_COMMITS - 1, -1, -1)
    assert [row[0] for row in rows] == [f"0:{n}" for n in newest_first]
    effects = {row[0]: row[1] for row in rows}
    assert effects["0:200"] == "Set back: 399 records are read again."
    assert effects["0:201"] == "Moved forward by 401."
    assert effects["0:0"] == "First commit: there was no offset."
    assert shown[2].links["Newest commits"] == "/partition?group=g001&topic=t&partition=0"


def test_commits_are_filtered_and_those_of_an_instant(port: int) -> None:
    address = "/partition?group=g001&topic=t&partition=0"
    assert names(page(port, f"{address}&event=reset_back")) == ["0:200"]
    assert names(page(port, f"{address}&since=5000&until=7999")) == ["0:6", "0:5", "0:4"]
    assert names(page(port, f"{address}&at=3500")) == ["0:2", "0:1", "0:0"]
    assert names(page(port, f"{address}&at=3000&and=2000")) == ["0:2", "0:1"]
    assert "No commit matches" in page(port, f"{address}&who=nobody").text


def test_a_step_is_explained_and_linked_from_its_group_and_partition(port: int) -> None:
    group = page(port, "/group?group=g001")
    link = ROUTES["/step"].replace("0:200", "0%3A200")
    assert link in [attributes.get("href") for tag, attributes in group.tags if tag == "a"]
    assert page(port, "/partition?group=g001&topic=t&partition=0&event=reset_back").links["0:200"] == link
    shown = page(port, link)
    assert "The offset moved back from 1,199 to 800" in shown.text
    assert "399 records are read again: offsets 800 to 1,198." in shown.text
    assert "The offset reached 1,199 again at 1970-01-01T00:03:22.000Z." in shown.text
    assert [row[:3] for row in shown.rows[:3]] == [
        ["In force before", "0:199", "1,199"], ["This one", "0:200", "800"], ["Next", "0:201", "1,201"],
    ]  # fmt: skip
    around = page(port, shown.links["0:199"].removesuffix("#r0-199"))
    assert names(around)[0] == "0:199"
    assert "r0-199" in [attributes.get("id") for tag, attributes in around.tags if tag == "tr"]


def test_names_are_found_by_any_part(port: int) -> None:
    found = json.loads(get(port, "/search?q=G00&at=5500").text)
    assert [(each["kind"], each["name"]) for each in found] == [("Group", "g001")]
    assert found[0]["url"] == "/group?at=5500&group=g001"
    assert {each["kind"] for each in json.loads(get(port, "/search?q=-dash").text)} == {"Group", "Topic"}
    assert json.loads(get(port, "/search?q=").text) == json.loads(get(port, "/search?q=nothing-like-this").text) == []


def test_what_a_client_did_and_who_commits_to_a_topic(tmp_path: Path) -> None:
    events = [{"log_offset": n, "last_log_offset": n, "client_id": "app", "log_timestamp": n} for n in (1, 2)]
    members = [{"group_id": "g", "member_id": "m", "client_id": "app", "client_host": "/h", "details": "{}"}]
    offsets = [{"group_id": "g", "topic": "t", "partition": n, "committed_offset": 1, "log_offset": n} for n in (0, 1)]
    small_lake(
        tmp_path / "lake", audit_events=events, group_members=members, offsets=offsets,
        offset_commits=[commit(1, 5)],
    )  # fmt: skip
    with served(tmp_path / "lake") as port:
        (link,) = [each["url"] for each in json.loads(get(port, "/search?q=ap").text)]
        assert link == "/client?client=app"
        shown = page(port, link)
        assert [row[0] for row in shown.rows][:1] == ["g"]
        assert [row[1:3] for row in shown.rows[1:]] == [["commit", "g"]] * 2
        assert "Of ordinary commits, only a sample has them" in shown.text
        assert [row[0] for row in page(port, "/client?principal=User:alice").rows] == [row[0] for row in shown.rows[1:]]
        assert page(port, "/topic?topic=t").rows == [["g", "2", "1970-01-01T00:00:00.000Z"]]
        assert "No group has an offset" in page(port, "/topic?topic=none").text
        until_first = page(port, f"{link}&at=1")
        assert [row[1:3] for row in until_first.rows[1:]] == [["commit", "g"]]
        assert "The memberships are the newest ones" in until_first.text
        assert until_first.links["Newest state"] == link
        assert [row[0] for row in page(port, f"{link}&at=3&and=2").rows[1:]] == ["1970-01-01T00:00:00.002Z"]
        assert "No audit event of this client id is recorded." in page(port, "/client?client=ap").text
        small_lake(tmp_path / "lake", offset_commits=[commit(2, 5, group_id="later-app")])
        assert len(json.loads(get(port, "/search?q=app").text)) == 2


def test_the_groups_of_a_topic_at_an_instant_and_between_two(port: int, run: object) -> None:
    then = page(port, "/topic?topic=t&at=5500")
    assert then.rows == [["g001", "1", "1970-01-01T00:00:00.000Z"]]
    code, out, _ = run(*shlex.split(then.command)[1:], "--format", "json")  # type: ignore[operator]
    assert (code, [json.loads(line)["committed_offset"] for line in out.splitlines()]) == (0, [1004])
    both = page(port, "/topic?topic=t&at=5500&and=2500")
    assert both.rows == [["g001", "1", "0", "0", "0", "+3"]]
    code, out, _ = run(*shlex.split(both.command)[1:], "--format", "json")  # type: ignore[operator]
    assert (code, [json.loads(line)["difference"] for line in out.splitlines()]) == (0, [3])
    assert "differs between these times" in page(port, "/topic?topic=none&at=5500&and=2500").text


def test_the_data_of_a_chart(port: int) -> None:
    data = json.loads(get(port, ROUTES["/series"]).text)
    assert (data["commits"], len(data["steps"]["time"]), data["period"]) == (250, 250, [1000, 250_000])
    mark, jump = data["marks"]
    assert jump["change"] == "skip ahead"
    assert mark == {"time": 201_000, "change": "rewind", "old": 1199, "new": 800, "who": None, "record": "0:200"}
    assert get(port, f"{ROUTES['/series']}&since=tomorrow").status == 400


@pytest.mark.parametrize("name", NAMES)
def test_names_of_hostile_clients_stay_text(port: int, name: str) -> None:
    query = urlencode({"group": name, "topic": name, "partition": 0})
    expected = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
    for path in (f"/?{urlencode({'q': name})}", f"/group?{query}", f"/partition?{query}"):
        shown = page(port, path)
        assert expected in shown.text
        sources = [attributes.get("src") or "" for tag, attributes in shown.tags if tag == "script"]
        assert "/static/console.js" in sources
        assert all(source.startswith("/static/") for source in sources)
        assert not [name for _, attributes in shown.tags for name in attributes if name.startswith("on")]
        targets = [attributes["href"] or "" for tag, attributes in shown.tags if tag == "a"]
        assert all(target.startswith(("/", "#")) for target in targets)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/?sort=password", "Invalid sort 'password'"),
        ("/?page=0", "Invalid page 0"),
        ("/?page=99999999999999", "Invalid page"),
        ("/?state=Asleep", "No group can be in state 'Asleep'; states are"),
        ("/search?q=g00&at=yesterday", "Invalid timestamp 'yesterday'"),
        ("/group", "Invalid parameter group: Field required."),
        ("/step?group=g001&topic=t&partition=0&record=9", "Invalid log position '9'"),
        ("/partition?group=g001&topic=t&partition=0&before=9", "Invalid log position '9'"),
        ("/partition?group=g001&topic=t&partition=0&event=flood", "Invalid event 'flood'"),
        ("/partition?group=g001&topic=t&partition=x", "partition: Input should be a valid integer"),
        ("/partition?group=g001&topic=t&partition=2147483648", "less than or equal to 2147483647"),
        ("/step?group=g001&topic=t&partition=-1&record=0:1", "greater than or equal to 0"),
        ("/series?group=g001&topic=t&partition=2147483648", "less than or equal to 2147483647"),
        ("/runs?run=9223372036854775808", "less than or equal to 9223372036854775807"),
    ],
)
def test_an_invalid_address_is_explained(port: int, path: str, message: str) -> None:
    assert message in page(port, path, status=400).text


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/group?group=unknown", "No offset of group unknown was ever committed"),
        ("/partition?group=unknown&topic=t&partition=0", "No offset of group unknown, topic t, partition 0 was"),
        ("/partition?group=g001&topic=t&partition=7", "No offset of group g001, topic t, partition 7 was"),
        ("/series?group=g001&topic=u&partition=0", "No offset of group g001, topic u, partition 0 was"),
        ("/step?group=g001&topic=t&partition=0&record=0:999", "No record of group g001"),
        ("/share-group?group=unknown", "There is no share group 'unknown'"),
    ],
)
def test_what_the_lake_does_not_contain_is_not_found(port: int, path: str, message: str) -> None:
    assert message in page(port, path, status=404).text


@pytest.mark.parametrize("path", [*ROUTES.values(), "/none", "/group?group=unknown"])
def test_head_has_the_status_of_get_and_no_body(port: int, path: str) -> None:
    answer, head = get(port, path), request(port, "HEAD", path, "localhost", {})
    assert (head.status, head.text) == (answer.status, "")
    assert head.headers["content-type"] == answer.headers["content-type"]


@pytest.fixture(scope="module")
def lagging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A console of three groups with lags: late has 40 records to read, done none, and new has committed nothing."""
    commits = [
        commit(0, 50, log_timestamp=900, group_id="late", topic="t"),
        commit(1, 60, log_timestamp=1900, group_id="late", topic="t", ingest_run=2),
        commit(2, 100, log_timestamp=1950, group_id="done", topic="t", ingest_run=2),
    ]
    places = {"late": (60, 1), "done": (100, 2)}
    offsets = [
        {"group_id": name, "topic": "t", "partition": 0, "committed_offset": offset, "log_offset": log_offset}
        for name, (offset, log_offset) in places.items()
    ]
    path = tmp_path_factory.mktemp("lagging") / "lake"
    groups = [{"group_id": name} for name in ("done", "idle", "late")]
    runs = [{"run_id": run, "job": "ingest", "started_at": 1, "finished_at": 2} for run in (1, 2)]
    ends = [end(run, offset, partition=n, complete_run=run) for run, offset in ((1, 50), (2, 100)) for n in (0, 1)]
    small_lake(path, offset_commits=commits, offsets=offsets, groups=groups, runs=runs, log_ends=ends)
    with served(path) as listening:
        yield listening


def test_groups_are_sorted_by_lag_and_status(lagging: int) -> None:
    shown = page(lagging, "/?sort=-lag")
    assert [(row[0], row[3]) for row in shown.rows] == [("late", "40"), ("done", "0"), ("idle", "")]
    assert names(page(lagging, "/?sort=lag")) == ["done", "late", "idle"]
    assert names(page(lagging, "/?sort=status")) == ["late", "done", "idle"]
    assert shown.links["Lag in records ▼"] == "/?sort=lag"
    assert page(lagging, "/").links["Lag in records"] == "/?sort=-lag"
    assert "Lag in records" not in page(lagging, "/?at=2000").text


def test_a_group_has_its_lag_by_partition_and_in_total(lagging: int) -> None:
    shown = page(lagging, "/group?group=late")
    assert "Lag: 40 records in 1 partition." in shown.text
    assert [row[:4] for row in shown.rows if row[0] == "t:0"] == [["t:0", "60", "100", "40"]]


def test_pages_are_compressed_unless_they_contain_the_secret_of_forms(port: int, lake: Path) -> None:
    accepted = {"Accept_Encoding": "gzip"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    for path in ("/?q=g00", "/static/console.css", "/static/charts.js"):
        connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
        response = connection.getresponse()
        assert response.headers["content-encoding"] == "gzip"
        assert gzip.decompress(response.read()).decode() == get(port, path).text
        assert response.headers["content-security-policy"]
    connection.close()
    bench = Workbench(locate(str(lake)), LogAddress(lake))
    with served(lake, gate(allows_changes=True), bench=bench) as changing:
        form = get(changing, "/change?group=g001", **accepted)
    assert "content-encoding" not in form.headers
    assert 'name="form_token"' in form.text


@pytest.mark.parametrize(("path", "title"), [("/", "Groups"), ("/group?group=g001", "Groups"), ("/runs", "Runs")])
def test_the_navigation_marks_the_page(port: int, path: str, title: str) -> None:
    marked = [attributes for tag, attributes in page(port, path).tags if attributes.get("aria-current") == "page"]
    assert [each["href"] for each in marked] == [page(port, path).links[title]]


def test_a_page_that_does_not_exist_is_named_with_its_parameters(port: int) -> None:
    assert "The page /review?show=none does not exist." in page(port, "/review?show=none", status=404).text
    assert "The page /none does not exist." in page(port, "/none", status=404).text


def test_a_page_shows_what_was_written_after_it_was_cached(tmp_path: Path) -> None:
    small_lake(tmp_path / "lake", groups=[{"group_id": "first"}])
    with served(tmp_path / "lake") as port:
        assert names(page(port, "/")) == ["first"]
        small_lake(tmp_path / "lake", groups=[{"group_id": "second"}])
        assert names(page(port, "/")) == ["first", "second"]


def test_an_empty_lake_says_what_to_do(tmp_path: Path) -> None:
    small_lake(tmp_path / "lake")
    with served(tmp_path / "lake") as port:
        assert "offsetlake run reads the log" in page(port, "/").text


@pytest.mark.parametrize("address", ["0.0.0.0:8090", "[::]:8090", "example.org:1", "127.0.0.1", "127.0.0.1:99999"])
def test_only_loopback_addresses_are_accepted(lake: Path, run: object, address: str) -> None:
    code, _, err = run("console", "--lake", str(lake), "--http", address)  # type: ignore[operator]
    assert code == 2
    assert "Cannot listen on" in err or "Invalid address" in err


@pytest.mark.slow
def test_the_process_ends_without_an_error_at_a_signal_right_after_its_start(lake: Path) -> None:
    command = [sys.executable, "-m", "offsetlake.cli", "console", "--lake", str(lake), "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("Serving http://127.0.0.1:")
        process.terminate()
        assert process.wait(timeout=300) == 0


@pytest.mark.parametrize("entered", [{"at": "now"}, {"at": "14:05"}, {"at": "5500", "and": "2h ago"}, {"since": "-2h"}])
def test_a_relative_instant_becomes_absolute_in_the_address(port: int, entered: dict[str, str]) -> None:
    answer = get(port, f"/group?{urlencode({'group': 'g001', **entered})}")
    assert answer.status == 303
    parameters = dict(parse_qsl(answer.headers["location"].removeprefix("?")))
    assert parameters.keys() == {"group", *entered}
    (name, text), now = [*entered.items()][-1], now_ms()
    assert 0 <= to_ms(text, now) - to_ms(parameters[name], now) < 3_600_000 or text == "14:05"
    assert parameters | {name: ""} == {"group": "g001", **entered, name: ""}
    assert page(port, f"/group?{urlencode(parameters)}")


@pytest.mark.parametrize("parameters", ["at=2999-01-01", "at=5500&and=2999-01-01"])
def test_an_instant_in_the_future_is_refused_beside_the_page(port: int, parameters: str) -> None:
    shown = page(port, f"/group?group=g001&{parameters}", 400)
    assert "2999-01-01T00:00:00.000Z is in the future: the newest record is of 19" in shown.text


@pytest.mark.parametrize(
    ("path", "valid", "entered", "message"),
    [
        ("/?q=g00", "", {"at": "24:05"}, "At the time: Invalid timestamp '24:05': expected a time from"),
        ("/?q=g00", "&at=5500", {"and": "<b>"}, "Compare with: Invalid timestamp '<b>'"),
        ("/?q=g00", "", {"and": "5500"}, "Compare with: A second instant needs a first one"),
        ("/?q=g00", "", {"at": "soon", "and": "5500"}, "At the time: Invalid timestamp 'soon'"),
        ("/group?group=g001", "", {"at": "yesterday"}, "such as 2026-01-31T14:05"),
        ("/partition?group=g001&topic=t&partition=0", "&at=5500", {"since": "soon"}, "From: Invalid timestamp 'soon'"),
        ("/partition?group=g001&topic=t&partition=0", "&who=x", {"until": "2026-13-01"}, "To: Invalid timestamp"),
        ("/topic?topic=t", "", {"at": "yesterday"}, "Invalid timestamp 'yesterday'"),
        ("/client?principal=User:alice", "", {"at": "yesterday"}, "Invalid timestamp 'yesterday'"),
        ("/share?q=s", "", {"at": "yesterday"}, "Invalid timestamp 'yesterday'"),
        ("/share-group?group=shared", "", {"at": "yesterday"}, "Invalid timestamp 'yesterday'"),
    ],
)  # fmt: skip
def test_an_invalid_instant_stays_in_its_field_beside_an_unchanged_page(
    port: int, path: str, valid: str, entered: dict[str, str], message: str
) -> None:
    without = page(port, f"{path}{valid}")
    shown = page(port, f"{path}{valid}&{urlencode(entered)}", 400)
    assert message in shown.text
    assert (shown.rows, shown.command, shown.links) == (without.rows, without.command, without.links)
    fields = {attributes.get("name"): attributes for tag, attributes in shown.tags if tag == "input"}
    assert {name: fields[name]["value"] for name in entered} == entered
    described = [attributes["aria-describedby"] for attributes in fields.values() if "aria-invalid" in attributes]
    assert described == [attributes.get("id") for _, attributes in shown.tags if attributes.get("role") == "alert"]
