"""Regular expressions of subscriptions: RE2's syntax, evaluated in linear time.

A heartbeat only checks and stores an expression. The host evaluates all expressions of the group outside of a step, and
stores their topics in a step: after the heartbeat, again after topics were created, and again after an interval.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import NamedTuple

import re2

from offsetlake.coordinator.consumer import records
from offsetlake.coordinator.consumer.group import ConsumerGroup
from offsetlake.coordinator.consumer.member import ConsumerMember
from offsetlake.coordinator.epoch_groups.requests import RequestError
from offsetlake.coordinator.steps import Record, Step, TimerKind
from offsetlake.kafka import error_codes

MIN_REFRESH_INTERVAL_MS = 10_000
"""The least time between two evaluations of a group (`REGEX_BATCH_REFRESH_MIN_INTERVAL_MS`)."""

MAX_MATCHED_BYTES = 1 << 20
"""Maximum size of all expressions of a group and the topic names that they match: their records are one batch."""

MAX_PROGRAM_BYTES = 1 << 20
"""Maximum memory of a compiled expression. RE2 compiles that much in some 10 ms."""

_MATCH_BYTES = 8  # are counted for each topic that an expression matches, besides its name
_RECORD_BYTES = (
    100  # are counted for each expression, besides itself and the group ID, which is in the key of its record
)
_NEVER = -(2**63)

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = MAX_PROGRAM_BYTES


class TooManyMatches(Exception):
    """The expressions of a group and the topics that they match are more than one record batch can contain."""


class RegexEvaluation(NamedTuple):
    """The expressions of a group that are about to be evaluated, and the topics that they may match."""

    group_id: str
    expressions: frozenset[str]
    may_describe: Callable[[str], bool]


class RegexChange(Enum):
    """What a heartbeat changed in the regular expression of the member."""

    NONE = auto()
    CHANGED = auto()
    """The topics of the new expression are not known yet."""
    CHANGED_AND_EVALUATED = auto()
    """The topics of the new expression are known, or there is no expression any more."""


def update(
    step: Step,
    group: ConsumerGroup,
    old: ConsumerMember,
    new: ConsumerMember,
    may_describe: Callable[[str], bool],
    out: list[Record],
) -> RegexChange:
    """Check the regular expression of a member, and plan an evaluation if one is due.

    Raises:
        RequestError: The expression is not valid.
    """
    subscribers = group.subscriptions.regex_members
    change, is_new = RegexChange.NONE, False
    if old.metadata["subscribedTopicRegex"] != new.metadata["subscribedTopicRegex"]:
        change = RegexChange.CHANGED
        if old.regex and subscribers.get(old.regex) == 1:
            out.append(records.no_regex(group.group_id, old.regex))
        if new.regex and new.regex not in subscribers:
            is_new = True
            compiled(new.regex)
        elif new.regex in group.state.regexes or (old.regex and not new.regex):
            change = RegexChange.CHANGED_AND_EVALUATED
    if not (is_new or subscribers) or group.regexes_to_evaluate is not None:
        return change
    refreshed_at_ms = group.state.regex_timestamp if group.state.regexes else _NEVER
    if step.now_ms > refreshed_at_ms + MIN_REFRESH_INTERVAL_MS:
        after = group.subscriptions.copy()
        after.replace(old, new)
        outdated = step.now_ms > refreshed_at_ms + step.settings.regex_refresh_interval_ms
        if (is_new or outdated or _is_incomplete(step, group, after.regex_members)) and after.regex_members:
            _plan(step, group, RegexEvaluation(group.group_id, frozenset(after.regex_members), may_describe))
    return change


def evaluate(evaluation: RegexEvaluation, topics: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each expression with the topics that it matches as a whole.

    This does not use the state of the group, so that it can run in a thread.

    Raises:
        TooManyMatches: The expressions and the topics that they match take more than MAX_MATCHED_BYTES.
    """
    names, key_bytes = list(topics), _RECORD_BYTES + len(evaluation.group_id.encode())
    matched_bytes = key_bytes  # of the group epoch
    for expression in evaluation.expressions:
        matched = [name for name in _matching(expression, names) if evaluation.may_describe(name)]
        matched_bytes += key_bytes + len(expression.encode()) + sum(map(len, matched)) + _MATCH_BYTES * len(matched)
        if matched_bytes > MAX_MATCHED_BYTES:
            raise TooManyMatches
        yield expression, matched


def _matching(expression: str, names: Iterable[str]) -> list[str]:
    """Return the names that an expression matches as a whole; none if only another coordinator can compile it."""
    try:
        pattern = compiled(expression)
    except RequestError:
        return []
    return [name for name in names if pattern.fullmatch(name)]


def store(step: Step, group: ConsumerGroup, matched: Mapping[str, Iterable[str]], version: int) -> None:
    """Write the topics that expressions match, and a new group epoch if these or the topics have changed.

    Args:
        step: The step.
        group: The group.
        matched: What `evaluate` returned.
        version: The version of the topics when the evaluation started.
    """
    group.regexes_to_evaluate = None
    if not group.exists:
        return
    state, after = group.state, group.subscriptions.copy()
    out, bump = [], False
    for expression in sorted(matched):
        if expression not in group.subscriptions.regex_members:
            continue
        old, new = state.regexes.get(expression, []), list(matched[expression])
        if set(old) != set(new):
            bump = True
            after.match(old, new)
        out.append(records.regex(group.group_id, expression, new, version, step.now_ms))
    # A broker keeps an expression whose last subscriber was overwritten by a static member with the same member ID.
    for expression in sorted(state.regexes.keys() - group.subscriptions.regex_members.keys()):
        after.match(state.regexes[expression], ())
        out.append(records.no_regex(group.group_id, expression))
    metadata_hash = step.hashes.of(after.topics(), step.topics)
    if bump or metadata_hash != state.metadata_hash:
        out.append(records.group_epoch(group.group_id, state.epoch + 1, metadata_hash))
        group.metadata_refreshed(step.now_ms, state.epoch + 1)
    group.append(step, out)


def _is_incomplete(step: Step, group: ConsumerGroup, regex_members: Mapping[str, int]) -> bool:
    version = group.state.regex_version if group.state.regexes else 0
    return regex_members.keys() != group.state.regexes.keys() or version < step.topics.creation_version()


def _plan(step: Step, group: ConsumerGroup, evaluation: RegexEvaluation) -> None:
    group.regexes_to_evaluate = evaluation

    def undo(_step: Step, _error: int) -> None:
        group.regexes_to_evaluate = None

    step.undo.append(undo)
    step.set_timer(TimerKind.REGEX, group.group_id, 0)


def compiled(expression: str) -> "re2._Regexp[str]":
    """Return a compiled expression; raise RequestError if it is not valid."""
    try:
        return re2.compile(expression, _OPTIONS)
    except re2.error as error:
        # The message of RE2 ends with the part of the expression that is not valid.
        reason = bytes(error.args[0]).decode("utf-8", "replace").split(": ")[0]
        message = f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {reason}."
        raise RequestError(error_codes.INVALID_REGULAR_EXPRESSION, message) from error
    finally:
        re2.purge()  # otherwise 128 compiled expressions stay in memory
