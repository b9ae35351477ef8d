"""A connection to ZooKeeper, and many requests at once through it."""

import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    OperationTimeoutError,
    SASLException,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry, RetryFailedError

from offsetlake.errors import BadRequest, LogUnavailable

SCHEME = "zookeeper://"
MAX_PENDING_REQUESTS = 1000
CONNECT_SECONDS = 30.0
RETRY_SECONDS = 60.0

_HOST = r"(?:[^\s:/,@\[\]]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}"
_URL = re.compile(rf"{SCHEME}(?P<hosts>{_HOST}(?:,{_HOST})*)(?P<chroot>(?:/(?!\.\.?(?:/|$))[^/]+)*)/?")
_LOGGER = logging.getLogger("offsetlake.zookeeper")
_LOGGER.addHandler(logging.NullHandler())  # otherwise Python writes each lost connection to standard error
_LOST = (ConnectionLoss, SessionExpiredError, OperationTimeoutError, ConnectionClosedError)

SETTINGS = (
    "digest.user", "digest.password", "sasl.mechanism", "sasl.service", "sasl.principal", "sasl.username",
    "sasl.password", "tls.ca", "tls.certificate", "tls.key",
)  # fmt: skip
"""The names of the settings of a connection.

Those of `digest` authenticate with the scheme `digest`, those of `sasl` as kazoo does (GSSAPI or DIGEST-MD5), and those
of `tls` are paths of PEM files.
"""


@dataclass(frozen=True, slots=True)
class ZooKeeperAddress:
    """The servers of an ensemble, as HOST:PORT with commas between them, and the chroot, empty for none."""

    hosts: str
    chroot: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, url: str, settings: Mapping[str, str]) -> Self:
        """Parse `zookeeper://HOST:PORT[,HOST:PORT...][/chroot]`; raise BadRequest for anything else.

        Args:
            url: The URL, without credentials.
            settings: Values of SETTINGS.
        """
        match = _URL.fullmatch(url)
        if match is None:
            shown = "the address" if "@" in url else repr(url)  # what is before @ may be a password
            raise BadRequest(
                f"Invalid address of ZooKeeper, {shown}: expected zookeeper://HOST:PORT[,HOST:PORT...][/chroot]."
            )
        return cls(match["hosts"], match["chroot"], settings)

    def __str__(self) -> str:
        """Return the URL."""
        return f"{SCHEME}{self.hosts}{self.chroot}"


@contextmanager
def connected(address: ZooKeeperAddress) -> Iterator[KazooClient]:
    """Yield a client with a session, which is closed after the block.

    Raises:
        BadRequest: The chroot does not exist.
        LogUnavailable: No server responds, authentication failed, or the connection was lost for RETRY_SECONDS.
    """
    client = KazooClient(address.hosts, **_options(address))
    try:
        try:
            client.start(CONNECT_SECONDS)
            exists = client.retry(client.exists, address.chroot or "/")
        except (KazooTimeoutError, AuthFailedError, SASLException, RetryFailedError, *_LOST) as error:
            raise _unavailable(address, error) from error
        if exists is None:
            raise BadRequest(f"There is no znode {address.chroot} at {SCHEME}{address.hosts}: check the chroot.")
        client.chroot = address.chroot  # only now: `start` warns about one that does not exist
        try:
            yield client
        except (RetryFailedError, *_LOST) as error:
            raise _unavailable(address, error) from error
    finally:
        client.stop()
        client.close()


def pipelined(client: KazooClient, request: str, paths: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Send one read request per path, with at most MAX_PENDING_REQUESTS pending, and yield the responses in order.

    Args:
        client: The client. A request whose connection is lost is sent again.
        request: The method of the client: `get` or `get_children`.
        paths: The paths of znodes.

    Yields:
        The path, and the response or the KazooException, such as NoNodeError, that the server responded with.
    """
    send: Callable[[str], Any] = getattr(client, f"{request}_async")
    pending: deque[tuple[str, Any]] = deque()

    def response() -> tuple[str, Any]:
        path, result = pending.popleft()
        try:
            return path, result.get()
        except _LOST:
            pass
        except KazooException as error:
            return path, error
        try:
            return path, client.retry(getattr(client, request), path)
        except (RetryFailedError, *_LOST):
            raise
        except KazooException as error:
            return path, error

    for path in paths:
        pending.append((path, send(path)))
        if len(pending) >= MAX_PENDING_REQUESTS:
            yield response()
    while pending:
        yield response()


def _options(address: ZooKeeperAddress) -> dict[str, Any]:
    settings = address.settings
    retry = KazooRetry(max_tries=-1, deadline=RETRY_SECONDS, max_delay=2.0)
    connection_retry = {"max_tries": -1, "max_delay": 2.0}
    options: dict[str, Any] = {"command_retry": retry, "connection_retry": connection_retry, "logger": _LOGGER}
    if "digest.user" in settings:
        options["auth_data"] = [("digest", f"{settings['digest.user']}:{settings.get('digest.password', '')}")]
    sasl = {name.removeprefix("sasl."): value for name, value in settings.items() if name.startswith("sasl.")}
    if sasl:
        options["sasl_options"] = sasl
    if "tls.ca" in settings:
        options |= {"use_ssl": True, "check_hostname": True, "ca": settings["tls.ca"]}
        options |= {"certfile": settings.get("tls.certificate"), "keyfile": settings.get("tls.key")}
    return options


def _unavailable(address: ZooKeeperAddress, error: Exception) -> LogUnavailable:
    what = "refused the credentials" if isinstance(error, AuthFailedError | SASLException) else "does not respond"
    return LogUnavailable(
        f"ZooKeeper at {address} {what} ({type(error).__name__}): check the address and the settings."
    )
