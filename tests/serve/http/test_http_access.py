"""Authentication by tokens and authorization by the ACL over HTTP."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from offsetlake.auth.acl import Acl
from offsetlake.auth.credentials import Credentials
from offsetlake.serve.writes.quota import Quota
from offsetlake.util.times import now_ms
from serve.http.test_http_in_process import OverHttp
from support.oracle.log_reader import read_log
from support.serve.http_client import Answer, ask, exchange, problem
from support.serve.in_process import InProcess

HOUR = 3_600_000
ACL = """
[[acl]]
principal = "User:billing"
group = "billing-*"
permissions = ["read", "commit", "admin"]
"""


class SecuredHttp(OverHttp):
    """A service that requires tokens, with a valid and an expired one of `billing`."""

    def __init__(self, service: InProcess, acl: Path) -> None:
        super().__init__(service)
        acl.write_text(ACL)
        known = Credentials()
        self.tokens = {name: known.add_token("billing", now_ms() + at) for name, at in (("good", HOUR), ("old", -1))}
        service.parts.security.credentials = known
        service.parts.security._acl = Acl(acl)

    def by(self, token: str, *asked: Any, **query: Any) -> Answer:
        url = f"http://127.0.0.1:{self.port}"
        authorization = self.tokens.get(token, token)
        answering = self.service.loop.run_in_executor(
            None, lambda: ask(url, *asked, authorization=f"Bearer {authorization}", **query)
        )
        return self.service.loop.run_until_complete(answering)


@pytest.fixture
def http(served: InProcess, tmp_path: Path) -> Iterator[SecuredHttp]:
    secured = SecuredHttp(served, tmp_path / "acl.toml")
    yield secured
    secured.close()


@pytest.mark.slow
def test_request_without_a_valid_token_is_refused_and_logged(
    http: SecuredHttp, caplog: pytest.LogCaptureFixture
) -> None:
    requests = [
        ("GET", "/metrics"),
        ("GET", "/v1/snapshot"),
        ("GET", "/v1/groups"),
        ("GET", "/v1/offsets?group=billing-1"),
        ("POST", "/v1/commit", {"group": "billing-1", "offsets": [exchange(None, 1)]}),
        ("DELETE", "/v1/groups?group=billing-1"),
        ("DELETE", "/v1/offsets?group=billing-1&topic=t&partition=0"),
    ]
    with caplog.at_level(logging.WARNING):
        for request in requests:
            assert problem(http.ask(*request)) == "authentication-required"
            for token in ("old", "", "made.up", "é"):
                answer = http.by(token, *request)
                assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        for body in (b"{", b" " * (1 << 20) + b"{}"):
            assert problem(http.ask("POST", "/v1/commit", body)) == "authentication-required", "the body is not parsed"
    assert len(caplog.messages) == len(requests) * 5 + 2
    assert all("failed: the request has no valid token" in line for line in caplog.messages)
    assert not any(token in caplog.text for token in http.tokens.values())
    assert http.ask("GET", "/livez").status == http.ask("GET", "/readyz").status == 200
    assert http.service.store.group(b"billing-1") is None


@pytest.mark.slow
def test_acl_limits_requests_and_writes_have_audit_headers(http: SecuredHttp) -> None:
    assert http.by("good", "POST", "/v1/commit", {"group": "billing-1", "offsets": [exchange(None, 7)]}).status == 200
    assert [row["group"] for row in http.by("good", "GET", "/v1/groups").body["groups"]] == ["billing-1"]
    assert http.by("good", "GET", "/v1/offsets?group=billing-1").body["offsets"][0]["committed_offset"] == 7
    refused = [
        ("GET", "/v1/offsets?group=foreign"),
        ("POST", "/v1/commit", {"group": "foreign", "offsets": [exchange(None, 1)]}),
        ("DELETE", "/v1/groups?group=foreign"),
        ("DELETE", "/v1/offsets?group=foreign&topic=t&partition=0"),
    ]
    for request in refused:
        answer = http.by("good", *request)
        assert (answer.status, problem(answer)) == (403, "permission-denied")
        assert "foreign" in answer.body["detail"]
    assert http.by("good", "DELETE", "/v1/groups?group=billing-1").status == 204
    events = [
        (dict(record.headers)[b"act.what"], dict(record.headers)[b"act.principal"])
        for record in read_log(http.service.log)
        if record.headers and dict(record.headers).get(b"act.principal") == b"User:billing"
    ]
    assert events == [(b"commit", b"User:billing"), (b"delete group", b"User:billing")]


def test_metrics_contain_only_groups_that_the_client_may_read(http: SecuredHttp) -> None:
    quota = http.service.parts.quota = Quota(0.001)
    for group in (b"billing-1", b"foreign", b"billing-" + b"x" * 30_000):
        for _ in range(3):  # the first commit takes the only token
            quota.take(group)
    metrics = http.by("good", "GET", "/metrics").body
    lines = {line for line in metrics.splitlines() if line.startswith(("offsetlake_throttled", "offsetlake_group"))}
    assert {line for line in lines if "_created" not in line} == {
        "offsetlake_throttled_commits_total 6.0",
        'offsetlake_group_throttled_commits_total{group="billing-1"} 2.0',
    }
    assert "foreign" not in metrics
    http.service.parts.security._acl = None
    metrics = http.by("good", "GET", "/metrics").body
    assert 'offsetlake_group_throttled_commits_total{group="foreign"} 2.0' in metrics, (
        "without an ACL everything is allowed"
    )
    assert "x" * 300 not in metrics


def test_pages_contain_only_groups_that_the_client_may_read(http: SecuredHttp) -> None:
    names = {name.decode() for name, _ in http.service.store.groups()}
    assert http.by("good", "POST", "/v1/commit", {"group": "billing-1", "offsets": [exchange(None, 7)]}).status == 200
    assert http.by("good", "POST", "/v1/commit", {"group": "billing-2", "offsets": [exchange(None, 7)]}).status == 200
    pages: list[dict[str, Any]] = []
    while not pages or pages[-1]["next"] is not None:
        query = {"after": pages[-1]["next"]} if pages else {}
        pages.append(http.by("good", "GET", "/v1/groups", limit=1, **query).body)
    assert {row["group"] for page in pages for row in page["groups"]} == {"billing-1", "billing-2"}
    assert [len(page["groups"]) for page in pages[:2]] == [1, 1], "other groups are skipped, and each page is filled"
    assert not names & {page["next"] for page in pages}
    assert problem(http.by("good", "GET", "/v1/groups", after="billing-1")) == "invalid-request"


def test_acl_applies_to_anonymous_clients(http: SecuredHttp) -> None:
    http.service.parts.security.credentials = None
    for request in (("GET", "/v1/offsets?group=billing-1"), ("DELETE", "/v1/groups?group=billing-1")):
        answer = http.ask(*request)
        assert (answer.status, problem(answer)) == (403, "permission-denied")
        assert answer.body["detail"].startswith("User:ANONYMOUS does not have that permission")
    assert http.ask("GET", "/v1/groups").body["groups"] == []
