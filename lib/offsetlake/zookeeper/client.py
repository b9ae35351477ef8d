"""A connection to ZooKeeper, and many requests at once through it."""

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    OperationTimeoutError,
    SASLException,
    SessionExpiredError,
    UnimplementedError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry, RetryFailedError

from offsetlake.errors import BadRequest, LogUnavailable
from offsetlake.zookeeper.address import SCHEME, ZooKeeperAddress
from offsetlake.zookeeper.multi_read import MultiRead, Request

MAX_READS = 200
MAX_REQUEST_CHARACTERS = 100_000
MAX_PENDING_REQUESTS = 10
CONNECT_SECONDS = 30.0
RETRY_SECONDS = 60.0

_LOGGER = logging.getLogger("offsetlake.zookeeper")
_LOGGER.addHandler(logging.NullHandler())  # otherwise Python writes each lost connection to standard error
LOST = (ConnectionLoss, SessionExpiredError, OperationTimeoutError, ConnectionClosedError)


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
        except (KazooTimeoutError, AuthFailedError, SASLException, RetryFailedError, *LOST) as error:
            raise _unavailable(address, error) from error
        if exists is None:
            raise BadRequest(f"There is no znode {address.chroot} at {SCHEME}{address.hosts}: check the chroot.")
        client.chroot = address.chroot  # only now: `start` warns about one that does not exist
        try:
            yield client
        except (RetryFailedError, *LOST) as error:
            raise _unavailable(address, error) from error
    finally:
        client.stop()
        client.close()


def read_many(client: KazooClient, request: Request, paths: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Read many znodes, in requests for up to MAX_READS of them, of which MAX_PENDING_REQUESTS are pending at a time.

    Args:
        client: The client. What was requested over a connection that was lost is requested again.
        request: What to read of each znode.
        paths: The paths of znodes.

    Yields:
        The path, and what the method of the client returns or the KazooException that it raises, such as NoNodeError;
        in the order of the paths.
    """
    pending: deque[tuple[list[str], Any]] = deque()
    for part in _parts(paths):
        result = client.handler.async_result()
        client._call(MultiRead(request, [client.chroot + path for path in part]), result)  # noqa: SLF001 - as `get_async`
        pending.append((part, result))
        if len(pending) >= MAX_PENDING_REQUESTS:
            yield from _responses(client, request, *pending.popleft())
    while pending:
        yield from _responses(client, request, *pending.popleft())


def _parts(paths: Iterable[str]) -> Iterator[list[str]]:
    """Yield the paths in lists for one request each, which a server limits to a size (jute.maxbuffer)."""
    part: list[str] = []
    size = 0
    for path in paths:
        if part and (len(part) == MAX_READS or size + len(path) > MAX_REQUEST_CHARACTERS):
            yield part
            part, size = [], 0
        part.append(path)
        size += len(path)
    if part:
        yield part


def _responses(client: KazooClient, request: Request, paths: list[str], result: Any) -> Iterator[tuple[str, Any]]:
    try:
        yield from zip(paths, result.get(), strict=True)
    except (UnimplementedError, *LOST):  # a server before ZooKeeper 3.6
        results = [getattr(client, f"{request}_async")(path) for path in paths]
        for path, single in zip(paths, results, strict=True):
            yield path, _response(client, request, path, single)


def _response(client: KazooClient, request: Request, path: str, result: Any) -> Any:
    """Return a response or the KazooException in it; after a loss of the connection, request it again."""
    try:
        return result.get()
    except LOST:
        pass
    except KazooException as error:
        return error
    try:
        return client.retry(getattr(client, request), path)
    except (RetryFailedError, *LOST):
        raise
    except KazooException as error:
        return error


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
