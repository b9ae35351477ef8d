"""A server with TLS, SASL and ACLs: real clients log in, and each failed login is refused and logged once."""

import asyncio
import json
import re
import signal
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from cryptography import x509
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offsetlake.auth.credentials import Credentials
from support.broker.broker import PASSWORDS, Broker, java
from support.serve.secured import (
    ACL,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    USERS,
    Secured,
    authenticate,
    log_in,
    scram_first,
    scram_last,
    secured,
    shake_hands,
)
from support.serve.serving import Serving
from support.serve.wire_client import METADATA, OFFSET_FETCH, WireClient, frame, read_answer, request

pytestmark = pytest.mark.slow

API_VERSIONS = 18
NAME, PASSWORD = next(iter(USERS.items()))
GROUP, TOPIC = "billing-1", "orders"
SECONDS = 120
ALL_LINES = (
    "import sys; from offsetlake.cli import serve_process; from offsetlake.util import log_lines; "
    "log_lines.CLIENT_LINES = 1_000_000; sys.exit(serve_process.main())"
)
"""A server without a limit of log lines: these tests cause more lines than the limit."""

FETCH = {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return secured(tmp_path_factory.mktemp("secured"))


@pytest.fixture(scope="module")
def serving(files: Secured) -> Iterator[Serving]:
    fields = {"topics": {TOPIC: 3}, "http": ["127.0.0.1", 0], "max_connections_per_address": 40, **files.settings}
    with Serving(files.folder / "lake", files.folder / "log", program=("-c", ALL_LINES), **fields) as running:
        yield running
    assert not [line for line in running.said if "Traceback" in line]
    assert not [line for line in running.said if any(secret in line for secret in USERS.values())]


class NewLines:
    """The lines that a server logs from now on."""

    def __init__(self, serving: Serving) -> None:
        self._serving, self._first = serving, len(serving.said)

    def assert_one(self, pattern: str) -> None:
        """Wait for a line that matches the pattern; it must be the only one about the connection that it names.

        Lines about connections of previous tests can follow.
        """
        wait_for(self._serving, rf"127\.0\.0\.1:\d+ .*{pattern}", first=self._first)
        lines = self._serving.said[self._first :]
        (match,) = filter(None, (re.search(rf"(127\.0\.0\.1:\d+) .*{pattern}", line) for line in lines))
        assert [line for line in lines if f"{match[1]} " in line] == [match.string]


@pytest.fixture
def lines(serving: Serving) -> NewLines:
    return NewLines(serving)


def client_settings(
    serving: Serving, files: Secured, mechanism: str, name: str = NAME, password: str = PASSWORD
) -> Any:
    return {
        "bootstrap.servers": serving.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
        "ssl.ca.location": files.ca,
        "log_level": 0,
    }


def is_closed(client: WireClient) -> bool:
    try:
        client.receive()
    except (EOFError, OSError):
        return True
    return False


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_confluent_logs_in(serving: Serving, files: Secured, mechanism: str) -> None:
    row = client_settings(serving, files, mechanism) | {"group.id": GROUP, "enable.auto.commit": False}
    with closing(Consumer(row)) as consumer:
        (committed,) = consumer.commit(offsets=[TopicPartition(TOPIC, 0, 42)], asynchronous=False)
        assert committed.error is None
        assert [row.offset for row in consumer.committed([TopicPartition(TOPIC, 0)], timeout=SECONDS)] == [42]
    admin = AdminClient(client_settings(serving, files, mechanism))
    assert [row.group_id for row in admin.list_consumer_groups().result().valid] == [GROUP]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_aiokafka_logs_in(serving: Serving, files: Secured, mechanism: str) -> None:
    async def committed() -> int | None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=serving.bootstrap,
            group_id="billing-aio",
            enable_auto_commit=False,
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=files.ca),
            sasl_mechanism=mechanism,
            sasl_plain_username=NAME,
            sasl_plain_password=PASSWORD,
        )
        await consumer.start()
        try:
            consumer.assign([first := AioTopicPartition(TOPIC, 0)])
            await consumer.commit({first: 7})
            return await consumer.committed(first)
        finally:
            await consumer.stop()

    assert asyncio.run(committed()) == 7


@pytest.mark.broker
@pytest.mark.parametrize("mechanism", [pytest.param("PLAIN", marks=pytest.mark.long), "SCRAM-SHA-512"])
def test_java_logs_in(serving: Serving, files: Secured, tmp_path: Path, mechanism: str) -> None:
    login = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    quoted = json.dumps(PASSWORD)
    (tmp_path / "client.properties").write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={files.ca}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{login} required username={NAME} password={quoted};\n",
        encoding="ascii",
    )
    tool = java("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", serving.bootstrap)
    arguments = ("--command-config", str(tmp_path / "client.properties"), "--group", "billing-java")
    reset = ("--reset-offsets", "--execute", "--topic", f"{TOPIC}:0", "--to-offset", "9")
    done = subprocess.run([*tool, *arguments, *reset], capture_output=True, encoding="utf-8", check=False)
    assert re.search(rf"billing-java\s+{TOPIC}\s+0\s+9", done.stdout), done.stdout + done.stderr


@pytest.mark.parametrize(("name", "password"), [(NAME, "wrong"), ("nobody", PASSWORD)])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_wrong_password_and_unknown_user_get_the_same_response(
    serving: Serving, files: Secured, lines: NewLines, mechanism: str, name: str, password: str
) -> None:
    with files.wire(serving.bootstrap) as client:
        shake_hands(client, mechanism)
        if mechanism == "PLAIN":
            answer = authenticate(client, f"\0{name}\0{password}".encode())
        else:
            first = scram_first(name)
            server_first = authenticate(client, first)
            assert server_first["error_code"] == 0
            answer = authenticate(client, scram_last(mechanism, password, first, server_first["auth_bytes"]))
        assert (answer["error_code"], answer["auth_bytes"]) == (58, b"")
        assert name not in answer["error_message"]
        assert is_closed(client)
    lines.assert_one(f"failed: user '{name}': unknown user or wrong password$")


def test_request_without_login_closes_the_connection(serving: Serving, files: Secured, lines: NewLines) -> None:
    with files.wire(serving.bootstrap) as client:
        client.ask(API_VERSIONS, 0, {})
        with pytest.raises((EOFError, OSError)):
            client.ask(OFFSET_FETCH, 5, FETCH)
    lines.assert_one("failed: a request of API 9, version 5, before login$")


def test_authentication_without_handshake_closes_the_connection(
    serving: Serving, files: Secured, lines: NewLines
) -> None:
    with files.wire(serving.bootstrap) as client, pytest.raises((EOFError, OSError)):
        authenticate(client, f"\0{NAME}\0{PASSWORD}".encode())
    lines.assert_one("a request of API 36, version 2, before login$")


def test_unsupported_mechanism_is_refused(serving: Serving, files: Secured, lines: NewLines) -> None:
    with files.wire(serving.bootstrap) as client:
        answer = shake_hands(client, "OAUTHBEARER")
        assert (answer["error_code"], answer["mechanisms"]) == (33, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
        assert is_closed(client)
    lines.assert_one("unsupported SASL mechanism 'OAUTHBEARER'; supported are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512$")


def test_replayed_message_of_another_login_is_refused(serving: Serving, files: Secured, lines: NewLines) -> None:
    mechanism, first = "SCRAM-SHA-512", scram_first(NAME)
    with files.wire(serving.bootstrap) as client, files.wire(serving.bootstrap) as replaying:
        for each in (client, replaying):
            shake_hands(each, mechanism)
        last = scram_last(mechanism, PASSWORD, first, authenticate(client, first)["auth_bytes"])
        assert authenticate(client, last)["error_code"] == 0
        authenticate(replaying, first)
        assert authenticate(replaying, last)["error_code"] == 58
        assert is_closed(replaying)
    lines.assert_one(f"user '{NAME}': the SCRAM message belongs to another login$")


def test_login_with_another_authorization_identity_is_refused(
    serving: Serving, files: Secured, lines: NewLines
) -> None:
    with files.wire(serving.bootstrap) as client:
        shake_hands(client, "PLAIN")
        assert authenticate(client, f"{NAME}\0other\0{USERS['other']}".encode())["error_code"] == 58
    lines.assert_one("user 'other' requests another authorization identity$")


@pytest.mark.parametrize("size", [(64 << 10) + 1, 2**31 - 1, -1])
def test_too_large_frame_before_login_closes_the_connection(
    serving: Serving, files: Secured, lines: NewLines, size: int
) -> None:
    with files.wire(serving.bootstrap) as client:
        client.socket.sendall(struct.pack(">i", size))
        assert is_closed(client)
    lines.assert_one(f"a request of {size} bytes before login")


def test_too_many_requests_before_login_close_the_connection(serving: Serving, files: Secured, lines: NewLines) -> None:
    with files.wire(serving.bootstrap) as client:
        for _ in range(10):
            client.ask(API_VERSIONS, 0, {})
        with pytest.raises((EOFError, OSError)):
            client.ask(API_VERSIONS, 0, {})
    lines.assert_one("more than 10 requests before login$")


def test_client_without_tls_is_refused(serving: Serving, lines: NewLines) -> None:
    with WireClient(serving.bootstrap) as client, pytest.raises((EOFError, OSError)):
        client.ask(API_VERSIONS, 0, {})
    lines.assert_one("failed: ")


def test_client_that_does_not_trust_the_certificate_is_logged(
    serving: Serving, files: Secured, lines: NewLines
) -> None:
    other = files.folder / "another-ca.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    with pytest.raises(ssl.SSLCertVerificationError):
        files.wire(serving.bootstrap, ssl.create_default_context(cafile=other))
    lines.assert_one(r"failed: tlsv1 alert unknown ca$")


def test_disconnection_during_the_login_is_logged(serving: Serving, files: Secured, lines: NewLines) -> None:
    with files.wire(serving.bootstrap) as client:
        shake_hands(client, "SCRAM-SHA-256")
        authenticate(client, scram_first(NAME))
    lines.assert_one("the client disconnected during the login$")


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(cut=st.integers(0, 400), changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3))
def test_truncated_or_corrupt_login_does_not_affect_other_clients(
    serving: Serving, files: Secured, cut: int, changes: list[tuple[int, int]]
) -> None:
    """All messages of a login and a request are sent at once, truncated and with some bytes changed."""
    messages = [(API_VERSIONS, 0, {}), (SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})]
    messages += [(SASL_AUTHENTICATE, 2, {"auth_bytes": f"\0{NAME}\0{PASSWORD}".encode()}), (OFFSET_FETCH, 5, FETCH)]
    frames = [frame(api, version, 1, request(api, version, values)) for api, version, values in messages]
    sent = bytearray(b"".join(frames))
    for at, byte in changes:
        sent[at % len(sent)] = byte
    with files.wire(serving.bootstrap) as client:
        client.socket.sendall(sent[:cut])
    with files.wire(serving.bootstrap) as client:
        assert log_in(client, NAME, PASSWORD).ask(OFFSET_FETCH, 5, FETCH)["error_code"] == 0


def test_request_sent_with_the_last_login_message_is_answered(serving: Serving, files: Secured) -> None:
    """Connections that are reset at once do not affect it."""
    authentication = {"auth_bytes": f"\0{NAME}\0{PASSWORD}".encode()}
    messages = [(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}), (SASL_AUTHENTICATE, 2, authentication)]
    messages += [(OFFSET_FETCH, 5, FETCH)] * 2
    for _ in range(20):
        with WireClient(serving.bootstrap) as client:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with files.wire(serving.bootstrap) as client:
        frames = [frame(api, version, 1, request(api, version, values)) for api, version, values in messages]
        client.socket.sendall(b"".join(frames))
        answers = [read_answer(api, version, client.receive())[1] for api, version, _ in messages]
        assert [answer.error_code for answer in answers] == [0, 0, 0, 0]


def test_group_without_permission_is_refused_to_a_real_client(
    serving: Serving, files: Secured, lines: NewLines
) -> None:
    """`tests/serve/auth/test_acl.py` tests each API; this test uses a client library."""
    admin = AdminClient(client_settings(serving, files, "SCRAM-SHA-512", "other", USERS["other"]))
    assert [group.group_id for group in admin.list_consumer_groups().result().valid] == []
    with pytest.raises(KafkaException, match=r"(?i)group authorization|GROUP_AUTHORIZATION_FAILED"):
        admin.describe_consumer_groups([GROUP])[GROUP].result(SECONDS)
    lines.assert_one(f"denied access to group '{GROUP}': it needs permission read or commit or admin$")


def test_connections_above_the_limit_of_an_address_are_refused(
    serving: Serving, files: Secured, lines: NewLines
) -> None:
    with ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(WireClient(serving.bootstrap))
        refused = r"127\.0\.0\.1:\d+ .*refused: the limit of 40 connections per address"
        wait_for(serving, rf"{refused} \(max_connections_per_address\) is reached", first=lines._first)
    deadline = time.monotonic() + SECONDS
    while True:  # closed connections no longer count
        try:
            with files.wire(serving.bootstrap) as client:
                log_in(client, NAME, PASSWORD)
                break
        except OSError:
            assert time.monotonic() < deadline


def test_slow_login_is_closed_after_its_time_limit(serving: Serving, files: Secured, lines: NewLines) -> None:
    """One client sends single bytes within TLS, one before TLS; other clients are answered meanwhile."""
    with files.wire(serving.bootstrap) as slow, socket.create_connection(slow.socket.getpeername()) as slower:
        for part in b"\x16\x03\x01":
            slower.sendall(bytes([part]))
            slow.socket.sendall(b"\0")
        with files.wire(serving.bootstrap) as client:
            assert log_in(client, NAME, PASSWORD).ask(OFFSET_FETCH, 5, FETCH)["error_code"] == 0
        slow.socket.settimeout(SECONDS)
        slower.settimeout(SECONDS)
        assert is_closed(slow)
        assert slower.recv(100) == b""
    failures = [line.rpartition(" failed: ")[2] for line in serving.said[lines._first :] if " failed: " in line]
    assert sorted(failures) == ["no login within 10 s", "timeout"]


def test_changed_password_closes_connections_and_an_invalid_file_changes_nothing(
    serving: Serving, files: Secured
) -> None:
    before = files.credentials.read_bytes()
    with files.wire(serving.bootstrap) as client, files.wire(serving.bootstrap) as other:
        log_in(client, NAME, PASSWORD)
        log_in(other, "other", USERS["other"])
        known = Credentials.read(files.credentials)
        known.add_user(NAME, "another password")
        known.write(files.credentials)
        assert is_closed(client)
        assert other.ask(OFFSET_FETCH, 5, FETCH)["error_code"] == 30
    with files.wire(serving.bootstrap) as client:
        log_in(client, NAME, "another password")
        files.credentials.write_text("{")
        wait_for(serving, "the previous contents remain in effect")
        assert client.ask(OFFSET_FETCH, 5, FETCH)["error_code"] == 0
    files.credentials.write_bytes(before)
    wait_for(serving, "Reloaded .*credentials.json", 2)


def test_changed_acl_and_certificates_are_reloaded(serving: Serving, files: Secured) -> None:
    with files.wire(serving.bootstrap) as client:
        log_in(client, "other", USERS["other"])
        assert client.ask(OFFSET_FETCH, 5, FETCH)["error_code"] == 30
        files.replace_acl('[[acl]]\nprincipal = "*"\ngroup = "billing-*"\npermissions = ["read"]\n')
        renewed = trustme.CA()
        renewed.cert_pem.write_to_path(str(files.folder / "renewed-ca.pem"))
        files.certify(renewed)
        serving.process.send_signal(signal.SIGHUP)
        wait_for(serving, "Reloaded .*acl.toml")
        wait_for(serving, "Reloaded .*server.pem")
        assert client.ask(OFFSET_FETCH, 5, FETCH)["error_code"] == 0
    renewed_context = ssl.create_default_context(cafile=files.folder / "renewed-ca.pem")
    with files.wire(serving.bootstrap, renewed_context) as client:
        log_in(client, NAME, PASSWORD)
    https = HTTPSConnection(serving.http.removeprefix("https://"), timeout=SECONDS, context=renewed_context)
    with closing(https):
        https.request("GET", "/livez")
        assert https.getresponse().status == 200
    first = len(serving.said)
    files.replace_acl(ACL)
    files.certify(files.authority)
    wait_for(serving, "Reloaded .*acl.toml", first=first)
    wait_for(serving, "Reloaded .*server.pem", first=first)


def wait_for(serving: Serving, pattern: str, times: int = 1, first: int = 0) -> None:
    deadline = time.monotonic() + SECONDS
    while sum(re.search(pattern, line) is not None for line in serving.said[first:]) < times:
        assert time.monotonic() < deadline, (pattern, serving.said[first:])
        time.sleep(0.01)  # the interval between polls


@pytest.mark.broker
def test_login_gets_the_responses_of_a_broker(broker: Broker, serving: Serving, files: Secured) -> None:
    """The responses to each message are compared, up to the end of the connection."""
    good, wrong = (f"\0admin\0{password}".encode() for password in (PASSWORDS["admin"], "wrong"))
    handshake = (SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    attempts: list[list[tuple[int, int, dict[str, Any]]]] = [
        [handshake, (SASL_AUTHENTICATE, 2, {"auth_bytes": good}), handshake],
        [handshake, (SASL_AUTHENTICATE, 0, {"auth_bytes": good}), (SASL_AUTHENTICATE, 2, {"auth_bytes": good})],
        [(API_VERSIONS, 0, {}), handshake, (SASL_AUTHENTICATE, 1, {"auth_bytes": wrong})],
        [(SASL_HANDSHAKE, 0, {"mechanism": "GSSAPI"}), handshake],
        [(SASL_AUTHENTICATE, 2, {"auth_bytes": good})],
        [(OFFSET_FETCH, 5, FETCH)],
    ]
    broker_context = ssl.create_default_context(cafile=broker.certificate)
    outcomes: list[tuple[Any, Any]] = []
    for attempt in attempts:
        with (
            files.wire(serving.bootstrap) as client,
            files.wire(broker.sasl_ssl_bootstrap, broker_context) as broker_client,
        ):
            outcomes.append((outcome(client, attempt), outcome(broker_client, attempt)))
    assert [served for served, _ in outcomes] == [expected for _, expected in outcomes]


def outcome(client: WireClient, attempt: list[tuple[int, int, dict[str, Any]]]) -> list[Any]:
    answers: list[Any] = []
    for api, version, values in attempt:
        try:
            answer = client.ask(api, version, values)
        except (EOFError, OSError):
            return [*answers, "closed"]
        answers.append({name: value for name, value in answer.items() if name != "api_keys"})
        if "mechanisms" in answer:
            answers[-1]["mechanisms"] = sorted(answer["mechanisms"])
    return answers


@pytest.mark.long
def test_plain_is_not_offered_on_a_public_listener_without_tls(tmp_path: Path) -> None:
    files = secured(tmp_path)
    fields = {"host": "0.0.0.0", "advertised": ["kafka.example", 9092]}  # noqa: S104
    fields |= {"credentials": str(files.credentials)}
    with Serving(tmp_path / "lake", tmp_path / "log", **fields) as serving:
        lines, bootstrap = NewLines(serving), serving.bootstrap.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        with WireClient(bootstrap) as client:
            answer = shake_hands(client, "PLAIN")
            assert (answer["error_code"], answer["mechanisms"]) == (33, ["SCRAM-SHA-256", "SCRAM-SHA-512"])
            assert is_closed(client)
        lines.assert_one("unsupported SASL mechanism 'PLAIN'; supported are SCRAM-SHA-256, SCRAM-SHA-512$")
        with WireClient(bootstrap) as client:
            mechanism, first = "SCRAM-SHA-256", scram_first(NAME)
            shake_hands(client, mechanism)
            last = scram_last(mechanism, PASSWORD, first, authenticate(client, first)["auth_bytes"])
            assert authenticate(client, last)["error_code"] == 0
            (advertised,) = client.ask(METADATA, 1, {"topics": []})["brokers"]
            assert (advertised["host"], advertised["port"]) == ("kafka.example", 9092)


@pytest.mark.long
def test_client_certificate_determines_the_principal(tmp_path: Path) -> None:
    files = secured(tmp_path)
    fields = {name: files.settings[name] for name in ("tls_certificate", "tls_key", "acl")}
    fields |= {"tls_client_ca": files.ca}
    billing = client_certificate(files.authority, "billing", tmp_path / "billing.pem")
    client_certificate(files.authority, "other", tmp_path / "other.pem")
    client_certificate(trustme.CA(), "billing", tmp_path / "forged.pem")
    files.acl.write_text(f'[[acl]]\nprincipal = "User:{billing}"\ngroup = "*"\npermissions = ["read"]\n')
    with Serving(tmp_path / "lake", tmp_path / "log", **fields) as serving:
        for name, error in (("billing", 0), ("other", 30)):
            with files.wire(serving.bootstrap, trusting(files, tmp_path / f"{name}.pem")) as client:
                lines = NewLines(serving)
                assert client.ask(OFFSET_FETCH, 5, FETCH)["error_code"] == error
        lines.assert_one("denied access to group")
        for context, reason in (
            (trusting(files), "peer did not return a certificate"),
            (trusting(files, tmp_path / "forged.pem"), "certificate verify failed"),
        ):
            lines = NewLines(serving)
            with pytest.raises((EOFError, OSError)), files.wire(serving.bootstrap, context) as client:
                client.ask(OFFSET_FETCH, 5, FETCH)
            lines.assert_one(rf"failed: {reason}$")


def client_certificate(authority: trustme.CA, name: str, path: Path) -> str:
    """Write a certificate and its key to a file; return the subject of the certificate."""
    issued = authority.issue_cert(f"{name}@example", common_name=name)
    issued.private_key_and_cert_chain_pem.write_to_path(str(path))
    return x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes()).subject.rfc4514_string()


def trusting(files: Secured, certificate: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.ca)
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


@pytest.mark.long
def test_flood_of_wrong_passwords_does_not_block_other_addresses(files: Secured, tmp_path: Path) -> None:
    program = (
        "import sys; from offsetlake.cli import serve_process; from offsetlake.serve.net import login;"
        "login.MAX_LOGIN_SECONDS = 600; sys.exit(serve_process.main())"
    )
    fields = {"credentials": str(files.credentials), "program": ("-c", program)}
    with Serving(tmp_path / "lake", tmp_path / "log", **fields) as serving:
        with ExitStack() as opened:
            flood = [opened.enter_context(WireClient(serving.bootstrap)) for _ in range(600)]
            for client in flood:
                shake_hands(client, "PLAIN")
            wrong = request(SASL_AUTHENTICATE, 1, {"auth_bytes": f"\0{NAME}\0wrong".encode()})
            for client in flood:
                client.socket.sendall(frame(SASL_AUTHENTICATE, 1, 1, wrong))
            for _ in range(8):
                other = opened.enter_context(WireClient(serving.bootstrap, source="127.0.0.2"))
                assert log_in(other, NAME, PASSWORD).ask(OFFSET_FETCH, 5, FETCH)["error_code"] == 0
            answers = [answer_or_end(client) for client in flood]
        assert answers.count(b"") > 0, "attempts above the limit are not answered"
        assert {answer[4:6] for answer in answers if answer} == {b"\0\x3a"}
        assert serving.stop() == 0


def answer_or_end(client: WireClient) -> bytes:
    try:
        return client.receive()
    except (EOFError, ConnectionResetError):
        return b""
