"""A kafka-python admin client that is made anew as often as the request timeout allows, and says why it is not."""

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
"""What a request ends with that has no answer, or an error for one."""

T = TypeVar("T")

if logging.getLogger("kafka").level == logging.NOTSET:
    # Every failure reaches the caller with its cause; the library would print it once more.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)


class GivenUpError(Exception):
    """No final answer within the request timeout: `answer` says what came last, `outcome` what it means for an act."""

    def __init__(self, last: BaseException, timeout_ms: int, *, lost: bool) -> None:
        said = refusals.in_words(last.errno) if isinstance(last, BrokerResponseError) else str(last)
        self.answer = f"{said}; given up after request.timeout.ms = {timeout_ms}"
        self.outcome = f"{self.answer}; whether it was done is not known" if lost else self.answer
        super().__init__(self.answer)


class AdminSession:
    """One client at a time. Raises LogUnavailable with the likely cause where brokers do not let us in."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._settings = connection
        self._client: Any = None

    def open(self) -> None:
        """Connect; raises BadRequest as well, for certificate files that cannot be read here."""
        # Says in words why a cluster is not reached, where kafka-python only says that it is not; and refuses brokers
        # so old that to ask them about a topic creates it.
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
        """End the client's connections and its thread."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def look(self, ask: Callable[[Any], T]) -> T:
        """Give what `ask` gets from the client, or raise LogUnavailable."""
        try:
            return self.within_timeout(ask)
        except BrokerResponseError as refusal:
            raise self.unavailable(str(refusals.in_words(refusal.errno))) from refusal
        except GivenUpError as given_up:
            if isinstance(given_up.__cause__, LogUnavailable):
                raise LogUnavailable(given_up.answer) from given_up  # which names the cluster already
            raise self.unavailable(given_up.answer) from given_up

    def within_timeout(self, attempt: Callable[[Any], T]) -> T:
        """Give what `attempt` gets from the client, tried again where it fails in a way that may pass.

        Raises a BrokerResponseError that stays, and GivenUpError after the request timeout.
        """
        deadline, lost = self.deadline(), False
        while True:
            try:
                if self._client is None:
                    self.open()
                return attempt(self._client)
            except FAILURES as failure:
                if isinstance(failure, BrokerResponseError) and not may_pass(failure):
                    raise
                lost = lost or is_lost(failure)
                # With a new client: this one would ask the coordinator it has once found for good.
                self.close()
                if time.monotonic() >= deadline:
                    raise GivenUpError(failure, self._settings.request_timeout_ms, lost=lost) from failure
                time.sleep(RETRY_PAUSE)

    def deadline(self) -> float:
        """Give the end of a request timeout that begins now, by the monotonic clock."""
        return time.monotonic() + self._settings.request_timeout

    def unavailable(self, why: str) -> LogUnavailable:
        """Make the error that names the cluster as well."""
        return LogUnavailable(f"Kafka at {self._settings.bootstrap} by {self._settings.security_protocol}: {why}")


def may_pass(refusal: Any) -> bool:
    """Whether an error a broker answered may give way to another try."""
    return refusal.retriable or refusal.errno in refusals.PASSING


def is_lost(failure: BaseException) -> bool:
    """Whether it may have been done all the same: sent, and not answered as a coordinator does before it acts."""
    if isinstance(failure, BrokerResponseError):
        return failure.retriable and failure.errno not in refusals.PASSING
    return not isinstance(failure, LogUnavailable)


def raise_passing(*codes: int) -> None:
    """Raise the first of the error codes that says the coordinator is not ready."""
    for code in codes:
        if code in refusals.PASSING:
            raise for_code(code)
