"""The authentication of a connection: by a client certificate or by SASL (KIP-43, KIP-152).

Until it succeeds, only ApiVersions, SaslHandshake and SaslAuthenticate are accepted, in this order, in small frames and
within a time limit. The response to a failed login is delayed, as on a broker (KIP-306), and the failure is logged.
"""

import asyncio
import logging
import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from offsetlake.auth import tls
from offsetlake.auth.login_attempts import TooManyAttempts
from offsetlake.auth.sasl import PLAIN, plain_name_and_password
from offsetlake.auth.scram import LoginFailed, ScramExchange
from offsetlake.errors import BadRequest
from offsetlake.kafka.error_codes import NONE, SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM
from offsetlake.serve.net.answering import Answer
from offsetlake.serve.net.client import Client
from offsetlake.serve.net.connection import Connection
from offsetlake.serve.net.connections import AcceptedConnection, host_of
from offsetlake.serve.net.security import Security
from offsetlake.serve.protocol import schemas, wire
from offsetlake.serve.protocol.api_keys import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, VERSIONS
from offsetlake.serve.steps import complete
from offsetlake.util.log_lines import ClientLog, quoted

if TYPE_CHECKING:
    from offsetlake.auth.credentials import Credentials

LOG = ClientLog(logging.getLogger(__name__))
MAX_FRAME_BYTES, MAX_REQUESTS = 64 << 10, 10  # clients send up to five requests
MAX_LOGIN_SECONDS = 10.0
FAILURE_DELAY_SECONDS = 0.1  # connection.failed.authentication.delay.ms of a broker
_SIZE = struct.Struct(">i")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_FRAMED_SINCE = 1  # version of SaslHandshake after which SASL messages are sent in SaslAuthenticate requests


class Login(AcceptedConnection):
    """Authenticates the client of a connection; then `connect` creates the protocol that handles its requests."""

    def __init__(
        self,
        security: Security,
        api_versions: Callable[[bytes, wire.RequestHeader, Answer, Client], int],
        connect: Callable[[Client], Connection],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__()
        self._security, self._api_versions, self._connect, self._loop = (
            security,
            api_versions,
            connect,
            loop,
        )
        self._received = bytearray()
        self._connected = False  # after the TLS handshake, with TLS
        self._ready = True  # for requests
        self._ended = False
        self._requests = 0
        self._framed = True  # whether SASL messages are sent in SaslAuthenticate requests
        self._mechanism: str | None = None
        self._used: Credentials | None = None  # the credentials at the beginning of the login
        self._exchange: ScramExchange | None = None
        self._check: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Authenticate by the client certificate, and wait for a SASL login if credentials are configured."""
        self._transport, self._connected = cast("asyncio.Transport", transport), True
        self._timer = self._loop.call_later(MAX_LOGIN_SECONDS, self._expire)
        certificate = transport.get_extra_info("peercert")
        if certificate:
            try:
                self.client.principal = tls.principal(certificate)
            except BadRequest as error:
                self._fail(str(error))
                return
        if self._security.credentials is None:
            self._pass_on()

    def connection_lost(self, _error: Exception | None) -> None:
        """Remove the connection."""
        if not self._ended and self._mechanism is not None:
            self._log("the client disconnected during the login")
        self._end()
        self._security.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        """Handle the requests that have arrived completely."""
        self._received += data
        while self._ready and len(self._received) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._received)
            if not 0 <= size <= MAX_FRAME_BYTES:
                self._fail(f"a request of {size} bytes before login; the limit is {MAX_FRAME_BYTES} bytes")
                return
            if self._requests == MAX_REQUESTS:
                self._fail(f"more than {MAX_REQUESTS} requests before login")
                return
            stop = _SIZE.size + size
            if len(self._received) < stop:
                return
            frame = bytes(self._received[_SIZE.size : stop])
            del self._received[:stop]
            self._requests += 1
            try:
                self._take(frame)
            except (wire.Malformed, struct.error, IndexError, ValueError) as error:
                self._fail(f"malformed request: {error}")

    def close(self) -> None:
        """Close the connection."""
        if self._connected:
            self._transport.close()

    def _take(self, frame: bytes) -> None:
        if not self._framed:
            self._authenticate(frame, self._answer_bare, None)
            return
        header = wire.read_header(frame)
        answer = partial(self._answer, header.correlation)
        if header.api == API_VERSIONS and self._mechanism is None:
            self._api_versions(frame, header, answer, self.client)
        elif header.api == SASL_HANDSHAKE and self._mechanism is None and header.version in VERSIONS[SASL_HANDSHAKE]:
            self._shake_hands(frame, header, answer)
        elif header.api == SASL_AUTHENTICATE and self._mechanism and header.version in VERSIONS[SASL_AUTHENTICATE]:
            write = partial(schemas.write, SASL_AUTHENTICATE, header.version)
            self._authenticate(
                complete(schemas.read(frame, header)).auth_bytes,
                lambda token: answer(write({"error_code": NONE, "error_message": "", "auth_bytes": token})),
                lambda message: answer(
                    write({"error_code": SASL_AUTHENTICATION_FAILED, "error_message": message, "auth_bytes": b""})
                ),
            )
        else:
            self._fail(f"a request of API {header.api}, version {header.version}, before login")

    def _shake_hands(self, frame: bytes, header: wire.RequestHeader, answer: Callable[[bytes], None]) -> None:
        """Answer SaslHandshake."""
        mechanism, mechanisms = complete(schemas.read(frame, header)).mechanism, self._security.mechanisms
        write = partial(schemas.write, SASL_HANDSHAKE, header.version)
        if mechanism not in mechanisms:
            refused = write({"error_code": UNSUPPORTED_SASL_MECHANISM, "mechanisms": mechanisms})
            supported = ", ".join(mechanisms)
            self._fail(
                f"unsupported SASL mechanism {quoted(mechanism)}; supported are {supported}", lambda: answer(refused)
            )
            return
        self._mechanism, self._framed = mechanism, header.version >= _FRAMED_SINCE
        answer(write({"error_code": NONE, "mechanisms": mechanisms}))

    def _authenticate(
        self, token: bytes, accepted: Callable[[bytes], None], refused: Callable[[str], None] | None
    ) -> None:
        """Handle a SASL message; `accepted` sends the response to it, `refused` an error message."""
        credentials = self._security.credentials
        if credentials is None or self._mechanism is None:
            return
        self._used = self._used or credentials
        message = (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )
        try:
            self._security.attempts.admit(host_of(self.client))
            if self._mechanism == PLAIN:
                message = "Authentication failed: Invalid username or password"
                name, password = plain_name_and_password(token)
                check = self._start_check(partial(credentials.password_matches, name, password))
                check.add_done_callback(
                    lambda check: self._finish_check(name, check, accepted, refused and partial(refused, message))
                )
                return
            if self._exchange is None:
                self._exchange = ScramExchange(self._mechanism, partial(credentials.verifier, self._mechanism))
            answer = self._exchange.answer(token)
        except TooManyAttempts as error:
            self._fail(str(error))
            return
        except LoginFailed as error:
            self._reject(str(error), refused and partial(refused, message))
            return
        if self._exchange.done:
            self._log_in(self._exchange.name, partial(accepted, answer), refused and partial(refused, message))
        else:
            accepted(answer)

    def _start_check(self, matches: Callable[[], bool]) -> "asyncio.Future[bool]":
        """Check a password in a thread, and read no requests until that is done; raise TooManyAttempts."""
        self._check = check = self._security.attempts.check(host_of(self.client), matches, self._loop)
        self._ready = False
        self._transport.pause_reading()
        return check

    def _finish_check(
        self,
        name: str,
        check: "asyncio.Future[bool]",
        accepted: Callable[[bytes], None],
        refused: Callable[[], None] | None,
    ) -> None:
        """Continue a PLAIN login whose password was checked."""
        if self._ended:
            return
        try:
            matches = check.result()
        except TooManyAttempts as error:
            self._fail(str(error))
            return
        if not matches:
            self._reject(f"user {quoted(name)}: unknown user or wrong password", refused)
            return
        self._transport.resume_reading()
        self._log_in(name, partial(accepted, b""), refused)

    def _log_in(self, name: str, accepted: Callable[[], None], refused: Callable[[], None] | None) -> None:
        """Complete the login of a user, unless its credentials have changed since the login began.

        The change closes the connections of the user (`Security`), but not yet this one, whose user was unknown.
        """
        used, credentials = self._used, self._security.credentials
        if used is None or credentials is None or used.users.get(name) != credentials.users.get(name):
            self._fail(f"user {quoted(name)}: its password changed during the login", refused)
            return
        accepted()
        self.client.principal = f"User:{name}"
        self._pass_on()

    def _pass_on(self) -> None:
        """Pass the connection to the protocol that handles its requests."""
        self._end()
        self.client.access = self._security.access(self.client.principal)
        connection = self._connect(self.client)
        self._security.connections.pass_on(self, connection)
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport)
        if self._received:
            connection.data_received(bytes(self._received))

    def _answer(self, correlation: int, *pieces: bytes) -> None:
        body = b"".join(pieces)
        self._transport.write(_SIZE_AND_CORRELATION.pack(len(body) + _SIZE.size, correlation) + body)

    def _answer_bare(self, token: bytes) -> None:
        self._transport.write(_SIZE.pack(len(token)) + token)

    def _reject(self, reason: str, answer: Callable[[], None] | None) -> None:
        """Fail the login because of wrong credentials, and count the failure of the address."""
        self._security.attempts.failed(host_of(self.client))
        self._fail(reason, answer)

    def _fail(self, reason: str, answer: Callable[[], None] | None = None) -> None:
        """Fail the login; answer and close the connection after a delay, so that the client does not retry at once."""
        self._log(reason)
        self._end()
        self._received.clear()
        self._transport.pause_reading()
        self._timer = self._loop.call_later(FAILURE_DELAY_SECONDS, self._refuse, answer)

    def _refuse(self, answer: Callable[[], None] | None) -> None:
        if answer is not None:
            answer()
        self._transport.close()

    def _expire(self) -> None:
        self._fail(f"no login within {MAX_LOGIN_SECONDS:.0f} s")

    def _log(self, reason: str) -> None:
        LOG.warning("Login from %s failed: %s", self.client.address, reason)

    def _end(self) -> None:
        """Stop reading requests, and cancel the timer and the password check."""
        self._ended, self._ready = True, False
        self._timer.cancel()
        if self._check is not None:
            self._check.cancel()
