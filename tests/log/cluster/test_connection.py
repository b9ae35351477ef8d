import pickle
import ssl
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.errors import BadRequest
from offsetlake.log.cluster.connection import SETTINGS, KafkaConnection

PLAIN = {"bootstrap.servers": "k1:9092"}
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "pw"}
TLS = {"security.protocol": "SSL"}

words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=12)
hosts = st.sampled_from(["k1", "k1:9092", "[::1]:9092", "10.0.0.1:9094"])


@st.composite
def valid_settings(draw: st.DrawFn) -> dict[str, str]:
    protocol = draw(st.sampled_from(["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]))
    settings = {
        "bootstrap.servers": ",".join(draw(st.lists(hosts, min_size=1, max_size=3))),
        "security.protocol": protocol,
    }
    if draw(st.booleans()):
        settings["request.timeout.ms"] = str(draw(st.integers(1, 2**31 - 1)))
    if protocol.startswith("SASL"):
        settings["sasl.mechanism"] = draw(st.sampled_from(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]))
        settings |= {"sasl.username": draw(words), "sasl.password": draw(words)}
    if protocol.endswith("SSL"):
        names = ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"]
        settings |= {name: draw(words) for name in names[: draw(st.integers(0, 4))]}
        if draw(st.booleans()):
            check = draw(st.sampled_from(["", "none", "https"]))
            settings["ssl.endpoint.identification.algorithm"] = check
    return settings


@given(valid_settings())
def test_connection_survives_pickling(settings: dict[str, str]) -> None:
    connection = KafkaConnection.from_settings(settings)
    assert pickle.loads(pickle.dumps(connection)) == connection  # noqa: S301 - our own


def test_every_setting_fills_the_field_meant_for_it() -> None:
    settings = {
        "bootstrap.servers": "k1:9092,k2:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "reader",
        "sasl.password": "secret",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "own.pem",
        "ssl.key.location": "own.key",
        "ssl.key.password": "key-secret",
        "ssl.endpoint.identification.algorithm": "none",
        "request.timeout.ms": "2500",
    }
    assert set(settings) == set(SETTINGS)
    assert KafkaConnection.from_settings(settings) == KafkaConnection(
        bootstrap="k1:9092,k2:9093",
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="reader",
        sasl_password="secret",  # noqa: S106 - made up
        ssl_ca="ca.pem",
        ssl_certificate="own.pem",
        ssl_key="own.key",
        ssl_key_password="key-secret",  # noqa: S106 - made up
        ssl_check_hostname=False,
        request_timeout_ms=2500,
    )


def test_bootstrap_addresses_default_to_port_9092() -> None:
    addresses = KafkaConnection(bootstrap="k1, k2:9093,[::1]:9094").addresses
    assert addresses == [("k1", 9092), ("k2", 9093), ("::1", 9094)]


def test_secrets_are_not_shown() -> None:
    settings = {**PLAIN, **SASL, "security.protocol": "SASL_SSL", "ssl.certificate.location": "c"}
    settings |= {"sasl.password": "hush-1", "ssl.key.password": "hush-2"}
    assert "hush" not in repr(KafkaConnection.from_settings(settings))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "bootstrap.servers"),
        ({"bootstrap.servers": " "}, "bootstrap.servers"),
        ({"bootstrap.servers": "k1:9092,"}, "bootstrap.servers"),
        ({"bootstrap.servers": "k1:http"}, "bootstrap.servers"),
        ({"bootstrap.servers": "k1:70000"}, "bootstrap.servers"),
        ({**PLAIN, "group.id": "g"}, "group.id: expected bootstrap.servers, .*sasl.password.*request.timeout.ms"),
        ({**PLAIN, "security.protocol": "TLS"}, "security.protocol 'TLS': .*SASL_SSL"),
        ({**PLAIN, "request.timeout.ms": "15s"}, "request.timeout.ms '15s'"),
        ({**PLAIN, "request.timeout.ms": "0"}, "request.timeout.ms 0"),
        ({**PLAIN, "sasl.username": "u"}, "sasl.username is set, but security.protocol is PLAINTEXT"),
        ({**PLAIN, **TLS, "sasl.password": "hush"}, "sasl.password is set, but security.protocol is SSL"),
        ({**PLAIN, **SASL, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism 'GSSAPI': .*SCRAM-SHA-512"),
        ({**PLAIN, **SASL, "sasl.username": ""}, "requires sasl.username.$"),
        (
            {**PLAIN, "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            "requires sasl.password, sasl.username.$",
        ),
        ({**PLAIN, "security.protocol": "SASL_SSL"}, "sasl.mechanism None"),
        ({**PLAIN, "ssl.ca.location": "ca"}, "ssl.ca.location is set, but security.protocol is PLAINTEXT"),
        (
            {**PLAIN, **SASL, "ssl.endpoint.identification.algorithm": ""},
            "ssl.endpoint.identification.algorithm is set",
        ),
        ({**PLAIN, **TLS, "ssl.endpoint.identification.algorithm": "off"}, "'off': expected https, none or empty"),
        ({**PLAIN, **TLS, "ssl.key.location": "k"}, "but not ssl.certificate.location"),
        ({**PLAIN, **TLS, "ssl.key.password": "hush"}, "but not ssl.certificate.location"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, str], says: str) -> None:
    with pytest.raises(BadRequest, match=says) as refused:
        KafkaConnection.from_settings(settings)
    assert "hush" not in str(refused.value)


@pytest.fixture(scope="module")
def own_certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate with that of its authority, and its key encrypted with the password `right`."""
    folder = tmp_path_factory.mktemp("certificate")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    certificate.write_bytes(issued.cert_chain_pems[0].bytes() + authority.cert_pem.bytes())
    private = load_pem_private_key(issued.private_key_pem.bytes(), password=None)
    encrypted = BestAvailableEncryption(b"right")
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, encrypted))
    return certificate, key


def of_certificate(own_certificate: tuple[Path, Path], **more: str) -> KafkaConnection:
    certificate, key = map(str, own_certificate)
    files = {"ssl_ca": certificate, "ssl_certificate": certificate, "ssl_key": key}
    return KafkaConnection(bootstrap="k1", security_protocol="SSL", **files | more)


def test_tls_checks_authority_and_host_name_unless_told_otherwise(own_certificate: tuple[Path, Path]) -> None:
    context = of_certificate(own_certificate, ssl_key_password="right").ssl_context()  # noqa: S106 - made up
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(context.get_ca_certs()) == 1

    lenient = KafkaConnection(bootstrap="k1", security_protocol="SSL", ssl_check_hostname=False).ssl_context()
    assert lenient is not None
    assert (lenient.verify_mode, lenient.check_hostname) == (ssl.CERT_REQUIRED, False)

    assert KafkaConnection(bootstrap="k1").ssl_context() is None


@pytest.mark.parametrize("password", [{}, {"ssl_key_password": "wrong"}])
def test_encrypted_key_without_password_is_reported_without_prompt(
    own_certificate: tuple[Path, Path], password: dict[str, str]
) -> None:
    with pytest.raises(BadRequest, match=r"ssl.key.password"):
        of_certificate(own_certificate, **password).ssl_context()


@pytest.mark.parametrize(
    ("field", "setting"), [("ssl_ca", "ssl.ca.location"), ("ssl_certificate", "ssl.certificate.location")]
)
def test_missing_files_are_reported(own_certificate: tuple[Path, Path], field: str, setting: str) -> None:
    with pytest.raises(BadRequest, match=f"{setting} nowhere.pem"):
        of_certificate(own_certificate, **{field: "nowhere.pem"}).ssl_context()
