"""TLS: the principals of certificates, invalid files, and which listeners need authentication."""

from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.x509.oid import NameOID

from offsetlake.auth import tls
from offsetlake.errors import BadRequest
from offsetlake.serve.net.security import problems
from offsetlake.serve.settings import Settings
from support.serve.secured import Secured, secured

SUBJECTS = {
    NameOID.COUNTRY_NAME: ("countryName", "SE"),
    NameOID.ORGANIZATION_NAME: ("organizationName", 'Lake, "and" Sons; <Ltd> \\+'),
    NameOID.ORGANIZATIONAL_UNIT_NAME: ("organizationalUnitName", "#1 "),
    NameOID.COMMON_NAME: ("commonName", " billing é"),
}


@pytest.fixture
def files(tmp_path: Path) -> Secured:
    return secured(tmp_path)


def settings(**fields: object) -> Settings:
    return Settings("lake", "log", "127.0.0.1", 0, **fields)  # type: ignore[arg-type]


def test_subject_becomes_the_principal_that_kafka_derives() -> None:
    """Kafka writes it as in RFC 2253; the oracle is the library that issues the certificates, by RFC 4514."""
    name = x509.Name([x509.NameAttribute(oid, value) for oid, (_, value) in SUBJECTS.items()])
    principal = tls.principal({"subject": tuple((attribute,) for attribute in SUBJECTS.values())})
    assert principal == f"User:{name.rfc4514_string()}"
    assert tls.principal({"subject": ((("commonName", "a"), ("userId", "b")),)}) == "User:CN=a+UID=b"


@pytest.mark.parametrize("subject", [(), ((("emailAddress", "a@b"),),)])
def test_subject_without_a_supported_name_is_refused(subject: object) -> None:
    with pytest.raises(BadRequest, match="client certificate has"):
        tls.principal({"subject": subject})


def test_invalid_file_is_named_in_the_error(files: Secured) -> None:
    assert problems(settings(**files.settings)) == []
    valid = files.settings
    other = trustme.CA().issue_cert("localhost")
    other.private_key_pem.write_to_path(str(files.folder / "other.key"))
    (files.folder / "garbage").write_text("garbage")
    for name, file, message in (
        ("tls_certificate", "nowhere", "server.key: No such file or directory"),
        ("tls_certificate", "garbage", "server.key: the file does not contain the expected PEM data"),
        ("tls_key", "other.key", "other.key: key values mismatch"),
        ("tls_client_ca", "garbage", "Cannot use TLS client CA"),
    ):
        (problem,) = problems(settings(**valid | {name: str(files.folder / file)}))
        assert message in problem


def test_all_problems_are_reported_together(files: Secured) -> None:
    files.acl.write_text('[[acl]]\nprincipal = "billing"\ngroup = "a["\npermissions = ["write"]\nwho = 1\n')
    files.credentials.chmod(0o644)
    fields = {"tls_key": None, "acl": str(files.acl), "credentials": str(files.credentials)}
    found = problems(Settings("lake", "log", "0.0.0.0", 0, **files.settings | fields))  # noqa: S104
    *texts, group, permission = [problem.partition(": ")[2] or problem for problem in found]
    assert texts == [
        "set advertised to the host and port that clients connect to",
        "set both or neither",
        f"run chmod 600 {files.credentials}",
        "unknown key 'who'; expected principal, group, topic, permissions",
        'invalid principal \'billing\'; expected "User:NAME", or "*" for every principal',
    ]
    assert group.startswith("group: ")
    assert permission == "unknown permission 'write'; expected read, commit, admin"


@pytest.mark.parametrize(
    ("host", "fields", "refused"),
    [
        ("127.0.0.1", {}, False),
        ("127.8.8.8", {}, False),
        ("localhost", {}, False),
        ("::1", {}, False),
        ("10.0.0.1", {}, True),
        ("kafka.example", {}, True),
        ("127.example.com", {}, True),
        ("10.0.0.1", {"open_to_anyone": True}, False),
    ],
)
def test_listener_on_other_addresses_requires_authentication(
    host: str, fields: dict[str, bool], *, refused: bool
) -> None:
    found = problems(Settings("lake", "log", host, 9092, **fields))
    assert (["requires authentication" in problem for problem in found] == [True]) is refused


def test_credentials_permit_a_listener_on_other_addresses(files: Secured) -> None:
    for fields in ({"credentials": str(files.credentials)}, files.settings):
        assert problems(Settings("lake", "log", "10.0.0.1", 9092, **fields)) == []


def test_encrypted_key_is_refused_without_a_password_prompt(files: Secured) -> None:
    key = files.folder / "server.key"
    key.write_text(key.read_text().replace("-----\n", "-----\nProc-Type: 4,ENCRYPTED\n", 1))
    (problem,) = problems(settings(**files.settings))
    assert "server.key: " in problem
