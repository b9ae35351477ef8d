"""The same requests of members, in the same order, cause the same answers and records in a broker and in the server."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from support.groups.comparison import Comparison, beside
from support.groups.scenarios import SCENARIOS, SCENARIOS_4_2, TOPICS
from support.groups.share_scenarios import warm_up

pytestmark = [pytest.mark.broker, pytest.mark.slow]

RECORD_TYPES = {"1", "2", "3", "5", "6", "7", "8", "16"}  # of offsets, classic groups and consumer groups
BESIDE = {"broker": SCENARIOS, "newer_broker": SCENARIOS_4_2}
"""The scenarios by the fixture of a broker."""

CASES = [("broker", name) for name in SCENARIOS]
CASES_4_2 = [pytest.param("newer_broker", name, marks=pytest.mark.long) for name in SCENARIOS_4_2]


@pytest.fixture(scope="module")
def comparisons(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Comparison]]:
    """Returns the comparison with the broker of a fixture."""
    with ExitStack() as stack:

        @cache
        def comparison(broker: str) -> Comparison:
            running, folder = request.getfixturevalue(broker), tmp_path_factory.mktemp("beside-a-broker")
            entered = stack.enter_context(beside(running, folder, TOPICS, BESIDE[broker]))
            if broker == "newer_broker":
                warm_up(running.bootstrap)
            return entered

        yield comparison


@pytest.mark.parametrize(("broker_fixture", "name"), [*CASES, *CASES_4_2])
def test_members_get_the_answers_of_a_broker(
    broker_fixture: str, name: str, comparisons: Callable[[str], Comparison]
) -> None:
    broker, server = comparisons(broker_fixture).answers(name)
    assert server == broker


@pytest.mark.parametrize(("broker_fixture", "name"), [*CASES, *CASES_4_2])
def test_groups_have_the_records_of_a_broker(
    broker_fixture: str, name: str, comparisons: Callable[[str], Comparison]
) -> None:
    broker, server = comparisons(broker_fixture).records(name)
    assert server == broker


@pytest.mark.parametrize("broker_fixture", ["broker"])
def test_records_of_all_types_are_compared(broker_fixture: str, comparisons: Callable[[str], Comparison]) -> None:
    records = [record for name in SCENARIOS for record in comparisons(broker_fixture).records(name)[0]]
    assert {record["key"]["type"] for record in records} == RECORD_TYPES
