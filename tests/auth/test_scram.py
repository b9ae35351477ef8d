"""The server side of SCRAM: the example of RFC 7677, and logins that must fail."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetlake.auth import scram
from offsetlake.auth.credentials import Credentials
from offsetlake.auth.scram import LoginFailed, ScramExchange
from support.serve.secured import scram_first, scram_last

NAME, PASSWORD = "wonder, =land", "pencil, é"
KNOWN = Credentials()
KNOWN.add_user(NAME, PASSWORD)


def exchange(mechanism: str) -> ScramExchange:
    return ScramExchange(mechanism, lambda name: KNOWN.verifier(mechanism, name))


def test_example_of_rfc_7677_is_reproduced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scram, "ITERATIONS", 4096)
    monkeypatch.setattr("secrets.token_urlsafe", lambda _: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    user = scram.verifier("SCRAM-SHA-256", "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    login = ScramExchange("SCRAM-SHA-256", lambda _: user)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    first = login.answer(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    assert not login.done
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    last = login.answer(f"c=biws,r={nonce},p={proof}".encode())
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert (login.done, login.name) == (True, "user")


@pytest.mark.parametrize("mechanism", scram.HASHES)
def test_correct_password_logs_in(mechanism: str) -> None:
    login, first = exchange(mechanism), scram_first("wonder=2C =3Dland")
    login.answer(scram_last(mechanism, PASSWORD, first, login.answer(first)))
    assert (login.done, login.name) == (True, NAME)


@pytest.mark.parametrize("mechanism", scram.HASHES)
def test_wrong_password_and_unknown_user_are_indistinguishable(mechanism: str) -> None:
    responses = []
    for name, password in (("wonder=2C =3Dland", "pen"), ("nobody", PASSWORD)):
        login, first = exchange(mechanism), scram_first(name)
        server_first = login.answer(first)
        again = exchange(mechanism).answer(first)
        assert again.split(b",")[1:] == server_first.split(b",")[1:], "another salt would reveal an unknown user"
        with pytest.raises(LoginFailed) as refused:
            login.answer(scram_last(mechanism, password, first, server_first))
        responses.append((len(server_first), str(refused.value).rpartition("'")[2]))
        assert not login.done
    assert responses[0] == responses[1]


def test_replayed_message_of_another_login_is_refused() -> None:
    mechanism, first = "SCRAM-SHA-512", scram_first("wonder=2C =3Dland")
    login = exchange(mechanism)
    last = scram_last(mechanism, PASSWORD, first, login.answer(first))
    login.answer(last)
    replayed = exchange(mechanism)
    replayed.answer(first)
    with pytest.raises(LoginFailed, match="belongs to another login"):
        replayed.answer(last)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=,r=abc",
        b"n,,n=a=b,r=abc",
        b"n,,n=a,r=",
        b"p=tls-unique,,n=a,r=abc",
        b"n,a=other,n=a,r=abc",
        b"n,,m=x,n=a,r=abc",
        b"\xff\xfe",
    ],
)
def test_invalid_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(LoginFailed):
        exchange("SCRAM-SHA-256").answer(message)


@given(st.binary(max_size=80), st.text("crp=,biws0", max_size=40))
def test_random_messages_are_refused(first: bytes, last: str) -> None:
    with pytest.raises(LoginFailed):
        exchange("SCRAM-SHA-256").answer(b"x" + first)
    login = exchange("SCRAM-SHA-256")
    login.answer(scram_first("a"))
    with pytest.raises(LoginFailed):
        login.answer(last.encode())
