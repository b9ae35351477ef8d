"""A connection until it is known who is at its other end: by its certificate or SASL (KIP-43, KIP-152).

Until then nothing is taken but ApiVersions, SaslHandshake and SaslAuthenticate, in that order, in small frames, and for
a short time. A login that fails is answered after a while, as by brokers (KIP-306), and leaves one line.
"""

import asyncio
import logging
import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from offsetlake.errors import BadRequest
from offsetlake.kafka.error_codes import NONE, SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM
from offsetlake.serve.auth import tls
from offsetlake.serve.auth.login_attempts import TooManyAttempts
from offsetlake.serve.auth.principals import Client
from offsetlake.serve.auth.sasl import PLAIN, plain_name_and_password
from offsetlake.serve.auth.scram import LoginFailed, ScramExchange
from offsetlake.serve.logs import ClientLog, quoted
from offsetlake.serve.net.answering import Answer
from offsetlake.serve.net.connection import Connection
from offsetlake.serve.net.connections import AcceptedConnection, host_of
from offsetlake.serve.net.security import Security
from offsetlake.serve.protocol import schemas, wire
from offsetlake.serve.protocol.api_keys import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, VERSIONS
from offsetlake.serve.steps import complete

if TYPE_CHECKING:
    from offsetlake.serve.auth.credentials import Credentials

LOG = ClientLog(logging.getLogger(__name__))
MAX_FRAME, MAX_REQUESTS = 64 << 10, 10  # bytes; clients need five
SECONDS = 10.0  # for all of it
FAILURE_DELAY = 0.1  # seconds: connection.failed.authentication.delay.ms of a broker
_SIZE = struct.Struct(">i")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_FRAMED_SINCE = 1  # version of SaslHandshake: what follows are requests, not bare messages of the mechanism


class Login(AcceptedConnection):
    """Lets a client in, or not; `connect` makes what goes on with it."""

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
        self._begun = False  # behind TLS, where that is on
        self._ready = True  # for requests
        self._over = False
        self._requests = 0
        self._framed = True  # in requests of Kafka's protocol
        self._mechanism: str | None = None
        self._used: Credentials | None = None  # that its login is held against
        self._exchange: ScramExchange | None = None
        self._fits: asyncio.Future[bool] | None = None
        self._too_late: asyncio.TimerHandle
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: ask who it is, where that is to be asked."""
        self._transport, self._begun = cast("asyncio.Transport", transport), True
        self._too_late = self._loop.call_later(SECONDS, self._expire)
        certificate = transport.get_extra_info("peercert")
        if certificate:
            try:
                self.client.principal = tls.principal(certificate)
            except BadRequest as error:
                self._fail(str(error))
                return
        if self._security.credentials is None:
            self._hand_on()

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget the connection."""
        if not self._over and self._mechanism is not None:
            self._log("hung up while it logged in")
        self._leave()

    def data_received(self, data: bytes) -> None:
        """Take in bytes."""
        self._received += data
        self._go_on()

    def close(self) -> None:
        """End the connection."""
        if self._begun:
            self._transport.close()

    def _go_on(self) -> None:
        """Take the requests that are there."""
        while self._ready and len(self._received) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._received)
            if not 0 <= size <= MAX_FRAME or self._requests == MAX_REQUESTS:
                self._fail(f"a request of {size} bytes before login, after {self._requests} others")
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
                self._fail(f"what is no request of Kafka's protocol ({error})")

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
                lambda said: answer(
                    write({"error_code": SASL_AUTHENTICATION_FAILED, "error_message": said, "auth_bytes": b""})
                ),
            )
        else:
            self._fail(f"a request of api {header.api}, version {header.version}, before login")

    def _shake_hands(self, frame: bytes, header: wire.RequestHeader, answer: Callable[[bytes], None]) -> None:
        mechanism, mechanisms = complete(schemas.read(frame, header)).mechanism, self._security.mechanisms
        write = partial(schemas.write, SASL_HANDSHAKE, header.version)
        if mechanism not in mechanisms:
            refused = write({"error_code": UNSUPPORTED_SASL_MECHANISM, "mechanisms": mechanisms})
            self._fail(f"SASL mechanism {quoted(mechanism)}: here are {', '.join(mechanisms)}", lambda: answer(refused))
            return
        self._mechanism, self._framed = mechanism, header.version >= _FRAMED_SINCE
        answer(write({"error_code": NONE, "mechanisms": mechanisms}))

    def _authenticate(
        self, token: bytes, accepted: Callable[[bytes], None], refused: Callable[[str], None] | None
    ) -> None:
        """Take a message of the mechanism."""
        credentials = self._security.credentials
        if credentials is None or self._mechanism is None:
            return
        self._used = self._used or credentials
        said = (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )
        try:
            self._security.attempts.admit(host_of(self.client))
            if self._mechanism == PLAIN:
                said = "Authentication failed: Invalid username or password"
                name, password = plain_name_and_password(token)
                future = self._checked(partial(credentials.password_fits, name, password))
                future.add_done_callback(lambda done: self._judged(name, done, accepted, refused, said))
                return
            if self._exchange is None:
                self._exchange = ScramExchange(self._mechanism, partial(credentials.verifier, self._mechanism))
            answer = self._exchange.answer(token)
        except TooManyAttempts as error:
            self._fail(str(error))
            return
        except LoginFailed as error:
            self._reject(str(error), refused and partial(refused, said))
            return
        if self._exchange.done:
            self._let_in(self._exchange.name, partial(accepted, answer), refused and partial(refused, said))
        else:
            accepted(answer)

    def _checked(self, fits: Callable[[], bool]) -> "asyncio.Future[bool]":
        """Have a thread check a password, as long as this login waits for it; raises TooManyAttempts."""
        self._fits = future = self._security.attempts.check(host_of(self.client), fits, self._loop)
        self._ready = False
        self._transport.pause_reading()
        return future

    def _judged(
        self,
        name: str,
        fits: "asyncio.Future[bool]",
        accepted: Callable[[bytes], None],
        refused: Callable[[str], None] | None,
        said: str,
    ) -> None:
        """Go on with a login by password that a thread has looked at."""
        if self._over:
            return
        try:
            right = fits.result()
        except TooManyAttempts as error:
            self._fail(str(error))
            return
        if not right:
            self._reject(f"user {quoted(name)}: no such user, or another password", refused and partial(refused, said))
            return
        self._transport.resume_reading()
        self._let_in(name, partial(accepted, b""), refused and partial(refused, said))

    def _let_in(self, name: str, accepted: Callable[[], None], refused: Callable[[], None] | None) -> None:
        """Let a user in, unless it has proved what holds no more: nobody knew yet whose connection was to be closed."""
        used, credentials = self._used, self._security.credentials
        if used is None or credentials is None or used.users.get(name) != credentials.users.get(name):
            self._fail(f"user {quoted(name)}: its password has changed meanwhile", refused)
            return
        accepted()
        self.client.principal = f"User:{name}"
        self._hand_on()

    def _hand_on(self) -> None:
        """Leave the connection to what answers requests."""
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

    def _reject(self, what: str, answer: Callable[[], None] | None) -> None:
        """Refuse wrong credentials, which counts against the address."""
        self._security.attempts.failed(host_of(self.client))
        self._fail(what, answer)

    def _fail(self, what: str, answer: Callable[[], None] | None = None) -> None:
        """End the connection after a while, which keeps it from trying at once again; others are not held up."""
        self._log(what)
        self._end()
        self._received.clear()
        self._transport.pause_reading()
        self._too_late = self._loop.call_later(FAILURE_DELAY, self._refuse, answer)

    def _refuse(self, answer: Callable[[], None] | None) -> None:
        if answer is not None:
            answer()
        self._transport.close()

    def _expire(self) -> None:
        self._fail(f"no login within {SECONDS:.0f} s")

    def _log(self, what: str) -> None:
        LOG.warning("%s is not let in: %s", self.client.address, what)

    def _leave(self) -> None:
        self._end()
        self._security.connections.discard(self)

    def _end(self) -> None:
        """Wait for nothing any more."""
        self._over, self._ready = True, False
        self._too_late.cancel()
        if self._fits is not None:
            self._fits.cancel()
