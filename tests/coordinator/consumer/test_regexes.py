"""Subscriptions by regular expression."""

from typing import Any

import pytest

from offsetlake.coordinator.consumer import regexes
from offsetlake.coordinator.consumer.heartbeat import heartbeat
from offsetlake.coordinator.consumer.regexes import RegexEvaluation
from offsetlake.coordinator.consumer.requests import ConsumerHeartbeatRequest
from offsetlake.coordinator.steps import TimerKind
from offsetlake.kafka import error_codes
from support.coordinator.consumer_groups import GROUP, Host, topic_id, types

FOO, FOOD = topic_id(1), topic_id(2)


@pytest.fixture
def host() -> Host:
    """A cluster with the topics foo, food and bar."""
    host = Host()
    for name, partitions in (("foo", 2), ("food", 1), ("bar", 1)):
        host.topics.create(name, partitions)
    return host


def _evaluated(host: Host) -> dict[str, list[str]]:
    return dict(host.group.state.regexes)


def test_an_expression_is_evaluated_in_a_step_of_its_own(host: Host) -> None:
    response, records = host.send("m1", 0, subscribed_regex="foo.*")
    assert (response.member_epoch, response.assignment, types(records)) == (1, {}, [5, 3, 7, 6, 8])
    assert host.due_in(TimerKind.REGEX) == 0
    records = host.advance(0)
    assert types(records) == [16, 3]
    assert records[0].key == {"groupId": "orders", "regularExpression": "foo.*"}
    assert records[0].value == {"topics": ["foo", "food"], "version": 3, "timestamp": 1_000_000}
    response, records = host.send("m1", 1)
    assert (response.member_epoch, types(records)) == (2, [7, 6, 8])
    assert response.assignment == {FOO: frozenset({0, 1}), FOOD: frozenset({0})}


def test_an_expression_that_is_evaluated_already_is_used_at_once(host: Host) -> None:
    host.send("m1", 0, subscribed_regex="foo.*")
    host.advance(0)
    response, records = host.send("m2", 0, subscribed_regex="foo.*")
    assert (response.member_epoch, types(records)) == (3, [5, 3, 7, 7, 6, 8])
    assert (host.due_in(TimerKind.REGEX), host.group.homogeneous) == (None, True)


def test_a_member_changes_its_expression(host: Host) -> None:
    host.send("m1", 0, subscribed_regex="foo.*")
    host.advance(0)
    host.send("m1", 1)
    host.advance(10_001)
    response, records = host.send("m1", 2, subscribed_regex="foo")
    assert types(records) == [5, -16, 8]  # its partitions are revoked, and the new expression is not evaluated yet
    assert (response.member_epoch, response.assignment) == (2, {})
    assert types(host.advance(0)) == [16, 3]
    assert _evaluated(host) == {"foo": ["foo"]}
    response, _ = host.send("m1", 2, owned={})
    assert (response.member_epoch, response.assignment) == (3, {FOO: frozenset({0, 1})})


def test_an_expression_that_was_changed_before_its_evaluation_is_ignored(host: Host) -> None:
    host.send("m1", 0, subscribed_regex="foo.*")
    host.send("m1", 1, subscribed_regex="bar")
    assert host.advance(0) == []
    assert host.send("m1", 1)[1] == []
    assert types(host.advance(0)) == [16, 3]
    assert _evaluated(host) == {"bar": ["bar"]}


def test_a_member_replaces_its_expression_by_names(host: Host) -> None:
    host.send("m1", 0, subscribed_regex="foo.*")
    host.advance(0)
    host.send("m1", 1)
    response, records = host.send(
        "m1", 2, subscribed_regex="", subscribed_topics=("foo",), owned={FOO: frozenset({0, 1})}
    )
    assert (response.member_epoch, types(records)) == (3, [5, -16, 3, 7, 6, 8])
    assert (_evaluated(host), host.group.subscriptions.by_regex) == ({}, {})


def test_names_and_an_expression_are_added_up(host: Host) -> None:
    host.send("m1", 0, subscribed_topics=("foo",), subscribed_regex="b.r")
    host.advance(0)
    response, _ = host.send("m1", 1)
    assert response.assignment == {FOO: frozenset({0, 1}), topic_id(3): frozenset({0})}


def test_new_topics_are_matched_at_most_every_10_seconds(host: Host) -> None:
    host.send("m1", 0, subscribed_regex="foo.*")
    host.advance(0)
    host.send("m1", 1)
    host.topics.create("fool", 1)
    host.advance(10_000)
    host.send("m1", 2)
    assert host.due_in(TimerKind.REGEX) is None
    host.advance(1)
    host.send("m1", 2)
    assert host.due_in(TimerKind.REGEX) == 0
    host.send("m1", 2)
    assert types(host.advance(0)) == [16, 3]
    assert _evaluated(host) == {"foo.*": ["foo", "food", "fool"]}
    host.advance(20_000)
    assert host.send("m1", 2)[0].error_code == error_codes.NONE
    assert host.due_in(TimerKind.REGEX) is None


def test_expressions_are_evaluated_again_after_an_interval(host: Host) -> None:
    host.send("m1", 0, subscribed_regex="foo.*")
    host.advance(0)
    host.send("m1", 1)
    for _ in range(24):
        host.advance(25_000)
        host.send("m1", 2)
    assert host.due_in(TimerKind.REGEX) is None
    host.topics.delete("food")  # a deleted topic alone does not start an evaluation
    host.advance(1)
    host.send("m1", 2)
    assert types(host.advance(0)) == [16, 3]
    assert _evaluated(host) == {"foo.*": ["foo"]}


@pytest.mark.parametrize("by_timeout", [True, False])
def test_an_expression_is_deleted_with_its_last_member(host: Host, by_timeout: bool) -> None:
    host.send("m1", 0, subscribed_regex="foo.*")
    host.send("m2", 0, subscribed_regex="foo.*")
    host.advance(0)
    assert types(host.send("m1", -1)[1]) == [-8, -7, -5, 3]
    records = host.advance(45_000) if by_timeout else host.send("m2", -1)[1]
    assert types(records) == [-8, -7, -5, -16, 3]
    assert (_evaluated(host), host.group.state.metadata_hash) == ({}, 0)


def test_a_static_member_returns_with_another_expression(host: Host) -> None:
    host.send("m1", 0, subscribed_regex="foo.*", instance_id="i1")
    host.advance(0)
    host.send("m1", 1, instance_id="i1")
    host.send("m1", -2, instance_id="i1")
    host.advance(10_001)
    _, records = host.send("m2", 0, subscribed_regex="b.*", instance_id="i1")
    assert types(records) == [-8, -7, -5, 5, 7, 8, 5, -16, 8]
    assert types(host.advance(0)) == [16, 3]
    assert _evaluated(host) == {"b.*": ["bar"]}


def test_topics_that_the_principal_may_not_describe_do_not_match(host: Host) -> None:
    def may_describe(topic: str) -> bool:
        return topic != "food"

    host.send("m1", 0, subscribed_regex="foo.*", may_describe=may_describe)
    host.advance(0)
    assert _evaluated(host) == {"foo.*": ["foo"]}


def test_an_evaluation_that_could_not_be_planned_is_planned_again(host: Host) -> None:
    request = ConsumerHeartbeatRequest("orders", "m1", 0, rebalance_timeout_ms=1, subscribed_regex="foo", owned={})
    step = host.step()
    heartbeat(step, host.group, request, token=1)
    for undo in reversed(step.undo):
        undo(step, 16)
    assert (host.group.exists, host.group.subscriptions.topics()) == (False, set())
    host.send("m1", 0, subscribed_regex="foo")
    assert types(host.advance(0)) == [16, 3]


@pytest.mark.parametrize(
    "expression",
    ["(", "[a", "a{2000}", "(?=a)", r"(a)\1", "x**", "*", "[b-a]", "((((a{99}){99}){99}){99})", r"[\pL\p{Nd}]{200}"],
)
def test_invalid_expressions(host: Host, expression: str) -> None:
    response, records = host.send("m1", 0, subscribed_regex=expression)
    assert (response.error_code, records) == (error_codes.INVALID_REGULAR_EXPRESSION, [])
    start = f"SubscribedTopicRegex `{expression}` is not a valid regular expression: "
    assert (response.error_message or "").startswith(start)
    assert not host.group.exists


@pytest.mark.parametrize(
    ("expression", "matched"),
    [
        ("foo", ["foo"]), ("fo+d?", ["foo", "food"]), ("oo", []), ("FOO", []), ("(?i)FOO", ["foo"]), ("", []),
        (r"\Qfoo\E", ["foo"]), ("[[:alpha:]]{3}", ["bar", "foo"]), ("(?P<n>b)ar|food", ["bar", "food"]),
        (".*", ["bar", "foo", "food"]),
    ],
)  # fmt: skip
def test_an_expression_must_match_the_whole_name(host: Host, expression: str, matched: list[str]) -> None:
    evaluation = RegexEvaluation(GROUP, frozenset({expression}), lambda _: True)
    assert dict(regexes.evaluate(evaluation, host.topics.names())) == {expression: matched}


def test_an_expression_that_explodes_in_other_engines_is_linear() -> None:
    """A backtracking engine needs 2**100 steps."""
    names = ["a" * 100 + "b", "a" * 100]
    evaluation = RegexEvaluation(GROUP, frozenset({"(a+)+", "(a|aa)+c?", "(a?){100}a{100}"}), lambda _: True)
    found: dict[str, Any] = dict(regexes.evaluate(evaluation, names))
    assert found == dict.fromkeys(evaluation.expressions, names[1:])


def test_expressions_that_match_too_many_topics_for_one_batch_are_not_evaluated() -> None:
    evaluation = RegexEvaluation(GROUP, frozenset({"a.*", ".*b"}), lambda _: True)
    names = ["a" * 249 + "b"] * 2_050
    assert next(regexes.evaluate(evaluation, names))[1] == names
    with pytest.raises(regexes.TooManyMatches):
        list(regexes.evaluate(evaluation, names))


def test_expressions_too_large_for_one_batch_are_not_evaluated() -> None:
    """Each record contains the group ID."""
    expressions = frozenset(f"{number}{'x' * 10_000}" for number in range(40))
    short = RegexEvaluation(GROUP, expressions, lambda _: True)
    assert dict(regexes.evaluate(short, ["a"])).keys() == expressions
    with pytest.raises(regexes.TooManyMatches):
        list(regexes.evaluate(RegexEvaluation("g" * 20_000, expressions, lambda _: True), ["a"]))


def test_an_expression_of_the_log_that_cannot_be_compiled_matches_nothing() -> None:
    evaluation = RegexEvaluation(GROUP, frozenset({"("}), lambda _: True)
    assert dict(regexes.evaluate(evaluation, ["a"])) == {"(": []}


def test_an_expression_without_members_is_deleted_at_the_next_evaluation(host: Host) -> None:
    """A client that uses one ID for two members can leave an expression that no member is subscribed to."""
    host.send("m1", 0, subscribed_regex="bar")
    host.advance(0)
    host.send("m2", 0, subscribed_topics=("foo",), instance_id="i1")
    host.send("m2", -2, instance_id="i1")
    host.send("m1", 0, subscribed_topics=("foo",), instance_id="i1")
    host.send("m3", 0, subscribed_regex="food")
    host.advance(10_001)
    assert set(_evaluated(host)) == {"bar"}
    host.send("m3", 0, subscribed_regex="food")
    assert types(host.advance(0)) == [16, -16, 3]
    assert set(_evaluated(host)) == {"food"}
