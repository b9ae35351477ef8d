"""The cases of Kafka's SharePartitionTest, with the results that Kafka expects (`README.md` beside this file)."""

import pytest

from support.coordinator.share_cases import Case, cases

CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_a_case_of_kafka(name: str) -> None:
    case = Case()
    for step in CASES[name]:
        case.run(step)
