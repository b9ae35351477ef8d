"""Certificates: whom they name, and which files cannot be used."""

from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.x509.oid import NameOID

from offsetlake.errors import BadRequest
from offsetlake.serve.auth import tls
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


def settings(**of: object) -> Settings:
    return Settings("lake", "log", "127.0.0.1", 0, **of)  # type: ignore[arg-type]


def test_a_subject_is_written_as_kafka_does() -> None:
    """As RFC 4514, the newer one of RFC 2253: the library that made the certificates says the same."""
    name = x509.Name([x509.NameAttribute(oid, value) for oid, (_, value) in SUBJECTS.items()])
    told = tls.principal({"subject": tuple(((each),) for each in SUBJECTS.values())})
    assert told == f"User:{name.rfc4514_string()}"
    assert tls.principal({"subject": ((("commonName", "a"), ("userId", "b")),)}) == "User:CN=a+UID=b"


@pytest.mark.parametrize("subject", [(), ((("emailAddress", "a@b"),),)])
def test_a_subject_without_a_name_names_nobody(subject: object) -> None:
    with pytest.raises(BadRequest, match="a certificate"):
        tls.principal({"subject": subject})


def test_files_that_cannot_be_used_are_named(files: Secured) -> None:
    assert problems(settings(**files.settings)) == []
    good = files.settings
    other = trustme.CA().issue_cert("localhost")
    other.private_key_pem.write_to_path(str(files.folder / "other.key"))
    (files.folder / "garbage").write_text("garbage")
    for name, file, says in (
        ("tls_certificate", "nowhere", "server.key cannot be used: No such file or directory"),
        ("tls_certificate", "garbage", "server.key cannot be used: what is in it is not of that kind"),
        ("tls_key", "other.key", "other.key cannot be used: key values mismatch"),
        ("tls_client_ca", "garbage", "TLS client CA"),
    ):
        (said,) = problems(settings(**good | {name: str(files.folder / file)}))
        assert says in said


def test_all_that_is_wrong_is_said_at_once(files: Secured) -> None:
    files.rights.write_text('[[rights]]\nprincipal = "billing"\ngroup = "a["\nrights = ["write"]\nwho = 1\n')
    files.credentials.chmod(0o644)
    of = {"tls_key": None, "rights": str(files.rights), "credentials": str(files.credentials)}
    said = problems(Settings("lake", "log", "0.0.0.0", 0, **files.settings | of))  # noqa: S104
    assert [line.partition(": ")[2] or line for line in said] == [
        "say with advertised where clients are to",
        "name both, or none",
        f"chmod 600 {files.credentials}",
        "unknown who; known are principal, group, rights",
        'principal is \'billing\': write "User:NAME", or "*" for everybody',
        "group: the pattern 'a[' has a [ without a closing ]",
        "the right 'write' is not known; known are read, commit, admin",
    ]


@pytest.mark.parametrize(
    ("host", "of", "refused"),
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
def test_beyond_this_machine_nobody_is_served_unasked(host: str, of: dict[str, bool], *, refused: bool) -> None:
    said = problems(Settings("lake", "log", host, 9092, **of))
    assert (["whoever reaches" in line for line in said] == [True]) is refused


def test_credentials_or_certificates_open_other_addresses(files: Secured) -> None:
    for of in ({"credentials": str(files.credentials)}, files.settings):
        assert problems(Settings("lake", "log", "10.0.0.1", 9092, **of)) == []


def test_an_encrypted_key_is_not_asked_for_at_a_terminal(files: Secured) -> None:
    key = files.folder / "server.key"
    key.write_text(key.read_text().replace("-----\n", "-----\nProc-Type: 4,ENCRYPTED\n", 1))
    (said,) = problems(settings(**files.settings))
    assert "server.key cannot be used" in said
