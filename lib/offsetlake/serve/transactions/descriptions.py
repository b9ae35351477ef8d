"""ListTransactions and DescribeTransactions (KIP-664), as a broker answers them (`TransactionStateManager`)."""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

from offsetlake.auth.acl import ANY_PERMISSION
from offsetlake.coordinator.consumer.regexes import compiled
from offsetlake.coordinator.epoch_groups.requests import RequestError
from offsetlake.kafka.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_REQUEST,
    NONE,
    NOT_COORDINATOR,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_NOT_FOUND,
)
from offsetlake.log.positions import OFFSETS_TOPIC
from offsetlake.serve.net.client import RequestContext
from offsetlake.serve.net.handlers import Handlers, at_once
from offsetlake.serve.protocol.api_keys import DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS
from offsetlake.serve.protocol.encoding import Lazy, Values
from offsetlake.serve.steps import Steps
from offsetlake.serve.storage.store import Store
from offsetlake.serve.transactions.coordinator import Transactions
from offsetlake.serve.transactions.rules import State, Transaction
from offsetlake.util.times import now_ms

_NAMES = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
}
_KNOWN_NAMES = {*_NAMES.values(), "Dead", "PrepareEpochFence"}


class TransactionDescriptions:
    """Answers about the transactional ids that this process coordinates: none in front of a cluster."""

    def __init__(self, store: Store, transactions: Transactions, *, coordinates: bool) -> None:
        self._store, self._transactions, self._coordinates = store, transactions, coordinates

    def handlers(self) -> Handlers:
        """Return the handlers by API key."""
        return {LIST_TRANSACTIONS: at_once(self.list), DESCRIBE_TRANSACTIONS: at_once(self.describe)}

    def list(self, request: Any, context: RequestContext) -> Steps[Values]:
        """Answer ListTransactions: those that the client may use and that the filters select."""
        if self._coordinates and self._store.loading:
            return {"error_code": COORDINATOR_LOAD_IN_PROGRESS, "transaction_states": []}
        unknown = [name for name in request.state_filters if name not in _KNOWN_NAMES]
        selected: list[Transaction] = []
        try:
            is_selected = _filter(request)
        except RequestError as error:
            return {"error_code": error.error_code, "transaction_states": []}
        for each in [*self._transactions.states.values()] if self._coordinates else ():
            if is_selected(each) and context.client.access.may(ANY_PERMISSION, each.transactional_id.encode()):
                selected.append(each)
            yield 0
        states = (
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "transaction_state": _NAMES[each.state],
            }
            for each in selected
        )
        return {
            "error_code": NONE,
            "unknown_state_filters": unknown,
            "transaction_states": Lazy(len(selected), states),
        }

    def describe(self, request: Any, context: RequestContext) -> Values:
        """Answer DescribeTransactions."""
        names = request.transactional_ids
        return {"transaction_states": Lazy(len(names), self._described(names, context))}

    def _described(self, names: Iterable[str], context: RequestContext) -> Iterator[Values]:
        for name in names:
            found = self._transactions.states.get(name) if self._coordinates else None
            error = self._error(name, found, context)
            answer = {"transactional_id": name, "error_code": error, "transaction_state": "", "topics": []}
            if found is None or error:
                yield {**answer, "producer_id": 0, "producer_epoch": 0, "transaction_start_time": 0}
                continue
            topics = [{"topic": OFFSETS_TOPIC, "partitions": sorted(found.partitions)}] if found.partitions else []
            yield {
                **answer,
                "transaction_state": _NAMES[found.state],
                "transaction_timeout": timedelta(milliseconds=found.timeout),
                "transaction_start_time": found.started,
                "producer_id": found.producer_id,
                "producer_epoch": found.epoch,
                "topics": topics,
            }

    def _error(self, name: str, found: Transaction | None, context: RequestContext) -> int:
        if not context.may(ANY_PERMISSION, name.encode()):
            return TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if not name:
            return INVALID_REQUEST
        if not self._coordinates:
            return NOT_COORDINATOR
        if self._store.loading:
            return COORDINATOR_LOAD_IN_PROGRESS
        return NONE if found else TRANSACTIONAL_ID_NOT_FOUND


def _filter(request: Any) -> Callable[[Transaction], bool]:
    """Return whether the filters of a ListTransactions select a transaction; raise RequestError if one is invalid."""
    states, producers, now = {*request.state_filters}, {*request.producer_id_filters}, now_ms()
    duration, pattern = getattr(request, "duration_filter", -1), getattr(request, "transactional_id_pattern", None)
    expression = compiled(pattern) if pattern else None

    def is_selected(transaction: Transaction) -> bool:
        return (
            (not states or _NAMES[transaction.state] in states)
            and (not producers or transaction.producer_id in producers)
            and (duration < 0 or now - transaction.started > duration)
            and (expression is None or expression.fullmatch(transaction.transactional_id) is not None)
        )

    return is_selected
