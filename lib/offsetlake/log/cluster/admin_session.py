"""A kafka-python admin client that reconnects until the request timeout and explains failures."""

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from kafka import KafkaAdminClient
from kafka.errors import BrokerResponseError, KafkaError, for_code

from offsetlake.errors import LogUnavailable
from offsetlake.log.cluster import refusals, topic
from offsetlake.log.cluster.connection import KafkaConnection

RETRY_PAUSE = 0.1

FAILURES = (KafkaError, OSError, LogUnavailable)
"""The errors of a request without a response, or with an error response."""

T = TypeVar("T")

if logging.getLogger("kafka").level == logging.NOTSET:
    # The caller gets every failure with its cause; the library would log it as well.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)


class GivenUpError(Exception):
    """No final response within the request timeout.

    Attributes:
        answer: The last failure.
        outcome: The last failure, and whether the request may have been executed.
    """

    def __init__(self, last: BaseException, timeout_ms: int, *, lost: bool) -> None:
        reason = refusals.explain(last.errno) if isinstance(last, BrokerResponseError) else str(last)
        self.answer = f"{reason}; gave up after request.timeout.ms = {timeout_ms}"
        self.outcome = f"{self.answer}; whether the request was executed is unknown" if lost else self.answer
        super().__init__(self.answer)


class AdminSession:
    """Owns an admin client; raises LogUnavailable with the likely cause if the brokers cannot be used."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._settings = connection
        self._client: Any = None

    def open(self) -> None:
        """Connect to the cluster.

        Raises:
            LogUnavailable: No broker is reachable, or the brokers reject the client.
            BadRequest: A certificate file cannot be read.
        """
        # Explains why a cluster is unreachable, which kafka-python does not, and refuses brokers that are so old that a
        # Metadata request creates topics.
        topic.describe(self._settings, [])
        settings = self._settings
        try:
            self._client = KafkaAdminClient(
                bootstrap_servers=settings.bootstrap,
                client_id="offsetlake",
                security_protocol=settings.security_protocol,
                sasl_mechanism=settings.sasl_mechanism,
                sasl_plain_username=settings.sasl_username,
                sasl_plain_password=settings.sasl_password,
                ssl_context=settings.ssl_context(),
                request_timeout_ms=settings.request_timeout_ms,
                bootstrap_timeout_ms=settings.request_timeout_ms,
            )
        except KafkaError as failure:
            raise self.unavailable(str(failure)) from failure

    def close(self) -> None:
        """Close the connections and stop the thread of the client."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def read(self, request: Callable[[Any], T]) -> T:
        """Return the result of a request that only reads.

        Raises:
            LogUnavailable: The request failed.
        """
        try:
            return self.within_timeout(request)
        except BrokerResponseError as refusal:
            raise self.unavailable(str(refusals.explain(refusal.errno))) from refusal
        except GivenUpError as given_up:
            if isinstance(given_up.__cause__, LogUnavailable):
                raise LogUnavailable(given_up.answer) from given_up  # the message already names the cluster
            raise self.unavailable(given_up.answer) from given_up

    def within_timeout(self, attempt: Callable[[Any], T]) -> T:
        """Return the result of `attempt`, retried after temporary failures until the request timeout.

        Raises:
            BrokerResponseError: The broker refused the request.
            GivenUpError: The request timeout expired.
        """
        deadline, lost = self.deadline(), False
        while True:
            try:
                if self._client is None:
                    self.open()
                return attempt(self._client)
            except FAILURES as failure:
                if isinstance(failure, BrokerResponseError) and not is_temporary(failure):
                    raise
                lost = lost or is_lost(failure)
                # A new client is needed, because this one never looks up the coordinator again.
                self.close()
                if time.monotonic() >= deadline:
                    raise GivenUpError(failure, self._settings.request_timeout_ms, lost=lost) from failure
                time.sleep(RETRY_PAUSE)

    def deadline(self) -> float:
        """Return the end of a request timeout that starts now, on the monotonic clock."""
        return time.monotonic() + self._settings.request_timeout

    def unavailable(self, reason: str) -> LogUnavailable:
        """Return an error that names the cluster and the reason."""
        return LogUnavailable(f"Kafka at {self._settings.bootstrap} by {self._settings.security_protocol}: {reason}")


def is_temporary(refusal: Any) -> bool:
    """Return whether a retry may succeed after an error response."""
    return refusal.retriable or refusal.errno in refusals.COORDINATOR_UNAVAILABLE


def is_lost(failure: BaseException) -> bool:
    """Return whether a failed request may have been executed: it was sent, and no coordinator rejected it."""
    if isinstance(failure, BrokerResponseError):
        return failure.retriable and failure.errno not in refusals.COORDINATOR_UNAVAILABLE
    return not isinstance(failure, LogUnavailable)


def raise_temporary(*codes: int) -> None:
    """Raise the first of the error codes that means that the coordinator is unavailable."""
    for code in codes:
        if code in refusals.COORDINATOR_UNAVAILABLE:
            raise for_code(code)
