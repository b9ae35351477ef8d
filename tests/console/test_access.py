"""Who sees what in the console: sign-in, sessions, permissions by group, and requests of other sites."""

import http.client
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from console.test_console import ROUTES
from offsetlake.auth.credentials import Credentials
from offsetlake.web.console import sessions
from offsetlake.web.console.access import CHECKS, public
from offsetlake.web.console.app import CheckedRequests, application
from offsetlake.web.console.changing.review import SUBJECTS
from support.console.served import POLICY, Answer, Page, gate, get, post, served
from support.console.visitors import FAR_FUTURE, acl_file, tokens_of
from support.queries.lakes import commit, small_lake

ENTRIES = (("User:carol", "*", ["read", "admin"]), ("User:dave", "billing-*", ["read"]))
GROUPS = ("billing-eu", "billing-us", "payroll")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("access") / "lake"
    rows = [{"group_id": name, "topic": f"{name}-t", "partition": 0} for name in GROUPS]
    events = [
        {
            "group_id": name,
            "principal": f"User:{name}-app",
            "client_id": f"{name}-client",
            "log_offset": n,
            "address": "",
        }
        for n, name in enumerate(GROUPS)
    ]
    small_lake(
        path,
        audit_events=[event | {"log_timestamp": 2_000, "last_log_offset": event["log_offset"]} for event in events],
        groups=[{"group_id": name, "state": "Empty", "member_count": 0} for name in GROUPS],
        offsets=[row | {"committed_offset": 5, "log_offset": 1} for row in rows],
        offset_commits=[commit(n, 5, log_timestamp=2_000, **row) for n, row in enumerate(rows)],
    )
    return path


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Return the folder with credentials and ACL, and the tokens by name."""
    folder = tmp_path_factory.mktemp("credentials")
    acl_file(folder, *ENTRIES)
    return folder, tokens_of(folder, "carol", "dave", "nobody")


def files(folder: Path) -> dict[str, str]:
    return {"credentials": str(folder / "credentials.json"), "acl": str(folder / "acl.toml")}


@pytest.fixture(scope="module")
def port(lake: Path, tokens: tuple[Path, dict[str, str]]) -> Iterator[int]:
    with served(lake, gate(**files(tokens[0]))) as listening:
        yield listening


def sign_in(port: int, token: str, **headers: str) -> str:
    """Sign in, and return the cookie to send."""
    answer = post(port, "/sign-in", {"token": token}, **headers)
    assert answer.status == 303, answer.text
    return answer.headers["set-cookie"].split(";")[0]


def depends_on(dependant: Dependant) -> set[object]:
    return {dependant.call}.union(*map(depends_on, dependant.dependencies))


def test_every_route_has_exactly_one_permission_check(lake: Path) -> None:
    app = application(lake, gate(), POLICY)
    assert isinstance(app, CheckedRequests)
    for route in app.app.routes:
        assert isinstance(route, APIRoute), f"{route} is not checked: only routes with dependencies are"
        named = {check for check in CHECKS if check in {dependency.call for dependency in route.dependant.dependencies}}
        assert len(named) == 1, f"{route.path} needs one of access.CHECKS: Reader, ReaderOfAll, Change, or PUBLIC"


def test_only_signing_in_and_static_files_are_public(lake: Path) -> None:
    app = application(lake, gate(), POLICY)
    assert isinstance(app, CheckedRequests)
    open_routes = {route.path for route in app.app.routes if public in depends_on(route.dependant)}  # type: ignore[attr-defined]
    assert open_routes == {"/sign-in", "/sign-out", "/static/{name}"}


@pytest.mark.parametrize("route", ROUTES)
def test_without_a_session_every_page_leads_to_the_form(port: int, route: str) -> None:
    answer = get(port, ROUTES[route])
    if route in {"/sign-in", "/static/{name}"}:
        assert answer.status == 200
        return
    assert answer.status == 303
    assert answer.headers["location"].startswith("/sign-in?to=%2F")
    assert get(port, ROUTES[route], Sec_Fetch_Mode="cors").status == 401
    forged = get(port, ROUTES[route], Cookie="offsetlake=chosen-by-an-attacker")
    assert (forged.status, forged.headers["location"]) == (303, answer.headers["location"])


def test_a_session_shows_the_groups_that_the_acl_permits(port: int, tokens: tuple[Path, dict[str, str]]) -> None:
    expected = {"carol": GROUPS, "dave": GROUPS[:2], "nobody": ()}
    for name, groups in expected.items():
        cookie = sign_in(port, tokens[1][name])
        for path in ("/", "/?at=2500"):
            shown = Page(get(port, path, Cookie=cookie).text)
            assert [row[0] for row in shown.rows] == [*groups]
            assert f"{len(groups)} group" in shown.text
            assert f"User:{name}" in shown.text
            if name != "carol":
                assert "payroll" not in shown.text


@pytest.mark.parametrize(
    "path",
    [
        "/group?group={}", "/group?group={}&at=2500", "/group?group={}&at=1", "/group?group={}&page=7",
        "/partition?group={0}&topic={0}-t&partition=0", "/partition?group={0}&topic=none&partition=3",
        "/step?group={0}&topic={0}-t&partition=0&record=0:2", "/series?group={0}&topic={0}-t&partition=0",
    ],
)  # fmt: skip
def test_a_group_that_may_not_be_read_looks_as_if_it_did_not_exist(
    port: int, tokens: tuple[Path, dict[str, str]], path: str
) -> None:
    cookie = sign_in(port, tokens[1]["dave"])

    def answer(group: str) -> Answer:
        return get(port, path.format(group), Cookie=cookie)

    hidden, missing = answer("payroll"), answer("missing")
    assert hidden.status == 404
    assert hidden.text.replace("payroll", "missing") == missing.text
    if not path.startswith("/step"):
        before_history = "at=1" in path.split("&")
        assert answer("billing-eu").status == (404 if "none" in path else 400 if before_history else 200)


@pytest.mark.parametrize(
    "path", ["/search?q={}", "/search?q={}-client", "/topic?topic={}-t", "/topic?topic={}-t&at=2500",
             "/client?principal=User:{}-app",
             "/client?client={}-client", "/?q={}", *(f"/review?show={name}&q={{}}" for name in SUBJECTS)]
)  # fmt: skip
def test_searches_find_nothing_of_a_group_that_may_not_be_read(
    port: int, tokens: tuple[Path, dict[str, str]], path: str
) -> None:
    cookie = sign_in(port, tokens[1]["dave"])
    hidden, missing = (get(port, path.format(name), Cookie=cookie) for name in ("payroll", "missing"))
    assert (hidden.status, hidden.text.replace("payroll", "missing")) == (missing.status, missing.text)
    if "show" not in path and path != "/search?q={}-client":  # the lake has no members with client ids
        seen = get(port, path.format("billing-eu"), Cookie=cookie)
        assert seen.text.replace("billing-eu", "missing") != missing.text


@pytest.mark.parametrize("route", ROUTES)
def test_a_token_without_any_permission_sees_no_group_on_any_route(
    port: int, tokens: tuple[Path, dict[str, str]], route: str
) -> None:
    address = ROUTES[route].replace("g001", "payroll").replace("topic=t", "topic=payroll-t").replace("q=g00", "q=")
    answer = get(port, address.replace("0:200", "0:2"), Cookie=sign_in(port, tokens[1]["nobody"]))
    shown = answer.text.replace("group payroll", "").replace("topic payroll-t", "")
    assert answer.status in {200, 303, 400, 403, 404}
    assert "billing" not in shown
    if answer.status == 200:
        assert "payroll-client" not in shown
        assert "payroll-app" not in shown


def test_the_cookie_is_kept_from_scripts_and_other_sites(port: int, tokens: tuple[Path, dict[str, str]]) -> None:
    token = {"token": tokens[1]["dave"]}
    local = post(port, "/sign-in", token).headers["set-cookie"]
    assert local.startswith("offsetlake=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in local.split(";")}
    own = {"Host": "console.example", "Origin": "https://console.example"}
    behind_a_proxy = post(port, "/sign-in", token, **own).headers["set-cookie"]
    assert behind_a_proxy.startswith("__Host-offsetlake=")
    assert {"HttpOnly", "SameSite=strict", "Path=/", "Secure"} <= {part.strip() for part in behind_a_proxy.split(";")}
    assert "Domain" not in behind_a_proxy


def test_signing_in_begins_a_new_session_and_signing_out_ends_it(
    port: int, tokens: tuple[Path, dict[str, str]]
) -> None:
    chosen = "offsetlake=chosen-by-an-attacker"
    first = sign_in(port, tokens[1]["dave"], cookie=chosen)
    assert first != chosen
    second = sign_in(port, tokens[1]["carol"], cookie=first)
    assert second != first
    assert get(port, "/", Cookie=first).status == 303
    assert get(port, "/", Cookie=second).status == 200
    assert post(port, "/sign-out", {}, cookie=second).status == 303
    assert get(port, "/", Cookie=second).status == 303


def test_a_link_of_another_site_finds_the_session(port: int, tokens: tuple[Path, dict[str, str]]) -> None:
    """Browsers omit a SameSite=Strict cookie after a link of another site, but send it with what that page opens."""
    answer = get(port, "/?q=eu", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")
    assert (answer.status, answer.headers["refresh"]) == (401, "0; url=/sign-in?to=%2F%3Fq%3Deu")
    cookie = sign_in(port, tokens[1]["dave"])
    followed = get(port, "/sign-in?to=%2F%3Fq%3Deu", Cookie=cookie)
    assert (followed.status, followed.headers["location"]) == (303, "/?q=eu")


@pytest.mark.parametrize(
    "to", ["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:alert(1)", "x"]
)
def test_signing_in_never_leads_to_another_site(port: int, tokens: tuple[Path, dict[str, str]], to: str) -> None:
    answer = post(port, "/sign-in", {"token": tokens[1]["dave"], "to": to})
    assert answer.headers["location"] == "/"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://localhost:1"},
        {"origin": "file://localhost"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_forms_of_other_sites_are_refused(
    port: int, tokens: tuple[Path, dict[str, str]], headers: dict[str, str]
) -> None:
    for path in ("/sign-in", "/sign-out", "/none"):
        assert post(port, path, {"token": tokens[1]["dave"]}, **headers).status == 403


def test_a_wrong_token_is_refused_and_attempts_are_limited(lake: Path, tokens: tuple[Path, dict[str, str]]) -> None:
    visitors = gate(**files(tokens[0]))
    with served(lake, visitors) as port:
        wrong = [post(port, "/sign-in", {"token": token}) for token in ("", "x", tokens[1]["dave"][:-1], "é" * 500)]
        assert [answer.status for answer in wrong] == [403] * 4
        assert all("set-cookie" not in answer.headers for answer in wrong)
        for _ in range(200):
            visitors.security.attempts.failed("127.0.0.1")
        assert post(port, "/sign-in", {"token": tokens[1]["dave"]}).status == 429


def test_a_session_ends_with_its_token(lake: Path, tmp_path: Path) -> None:
    known = Credentials()
    token = known.add_token("carol", FAR_FUTURE)
    known.write(tmp_path / "credentials.json")
    visitors = gate(credentials=str(tmp_path / "credentials.json"))
    with served(lake, visitors) as port:
        cookie = sign_in(port, token)
        assert get(port, "/", Cookie=cookie).status == 200
        known.tokens.clear()
        known.write(tmp_path / "credentials.json")
        visitors.security.reload(force=True)
        assert get(port, "/", Cookie=cookie).status == 303


def test_sessions_end_after_their_time_and_are_limited_by_principal() -> None:
    now = [0.0]
    known = sessions.Sessions(lambda: now[0])
    first, other = known.begin("User:carol", "t"), known.begin("User:dave", "t")
    for _ in range(sessions.MAX_SESSIONS_OF_PRINCIPAL):
        newest = known.begin("User:carol", "t")
    assert known.find(first) is None
    assert known.find(other) is not None
    now[0] = sessions.MAX_SESSION_SECONDS
    assert known.find(newest) is None


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ("token=" + "x" * (1 << 20), {}, 413),
        ("token=x", {"Content-Type": "multipart/form-data; boundary=x"}, 415),
        ("token=x", {"Content-Type": "application/json"}, 415),
        ("&".join(f"a{n}=1" for n in range(10_001)), {}, 400),
        ("token=\xff", {}, 400),
    ],
)
def test_forms_that_are_too_large_or_malformed_are_refused(
    port: int, body: str, headers: dict[str, str], status: int
) -> None:
    from support.console.served import request  # noqa: PLC0415

    own = {"Origin": "http://localhost", "Content-Type": "application/x-www-form-urlencoded"}
    assert request(port, "POST", "/sign-in", "localhost", own | headers, body).status == status


@pytest.mark.parametrize(
    "name", ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "..%5capp.py", "/etc/passwd", "console.css%00"]
)
def test_static_files_are_only_those_of_the_folder(port: int, name: str) -> None:
    assert get(port, f"/static/{name}").status == 404


@pytest.mark.slow
def test_other_machines_reach_the_console_by_tls_only(
    lake: Path, tokens: tuple[Path, dict[str, str]], tmp_path: Path, run: object
) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "server.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    options = ["--lake", str(lake), "--http", "0.0.0.0:0", "--credentials", str(tokens[0] / "credentials.json")]
    code, _, errors = run("console", *options)  # type: ignore[operator]
    assert (code, "without tls_certificate" in errors) == (2, True)
    options += ["--tls-certificate", str(tmp_path / "server.pem"), "--tls-key", str(tmp_path / "server.key")]
    with subprocess.Popen(
        [sys.executable, "-m", "offsetlake.cli", "console", *options], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        port = int(process.stderr.readline().rpartition(":")[0].rpartition(":")[2].partition("/")[0])
        context = ssl.create_default_context()
        authority.configure_trust(context)
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=300, context=context)
        own = {"Origin": f"https://127.0.0.1:{port}", "Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/sign-in", f"token={tokens[1]['carol']}", own)
        response = connection.getresponse()
        cookie = response.getheader("set-cookie") or ""
        response.read()
        connection.request("GET", "/", headers={"Cookie": cookie.split(";")[0]})
        page = connection.getresponse()
        assert (page.status, "User:carol" in page.read().decode()) == (200, True)
        connection.close()
        process.terminate()
        assert process.wait(timeout=300) == 0
    assert cookie.startswith("__Host-offsetlake=")
    assert "Secure" in cookie
