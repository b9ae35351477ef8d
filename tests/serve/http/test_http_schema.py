"""Schemathesis asks a running server all that its OpenAPI description allows, and much that it does not."""

import re
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.generation import GenerationMode

from support.serve.serving import Serving

pytestmark = pytest.mark.slow

OPERATIONS = {
    ("GET", "/livez"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/v1/snapshot"),
    ("GET", "/v1/groups"),
    ("DELETE", "/v1/groups"),
    ("GET", "/v1/offsets"),
    ("DELETE", "/v1/offsets"),
    ("POST", "/v1/commit"),
}
SECONDS = 30
PAGE = Path(__file__).parents[3] / "docs" / "http.md"


@pytest.fixture(scope="session")
def described(over_http: Serving) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(f"{over_http.http}/openapi.json")


def test_all_there_is_is_described(described: schemathesis.BaseSchema) -> None:
    found = {(of.ok().method.upper(), of.ok().path) for of in described.get_all_operations()}
    assert found == OPERATIONS


def test_the_page_lists_every_operation_with_its_parameters(described: schemathesis.BaseSchema) -> None:
    rows = re.findall(r"^\| `([A-Z]+) (/\S+)` \| (.*?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    paths = described.raw_schema["paths"]
    assert {(method, path, frozenset(re.findall(r"`(\w+)`", parameters))) for method, path, parameters in rows} == {
        (method.upper(), path, frozenset(parameter["name"] for parameter in operation.get("parameters", ())))
        for path, operations in paths.items()
        for method, operation in operations.items()
    }


@pytest.mark.parametrize("mode", [*GenerationMode])
@pytest.mark.parametrize(("method", "path"), sorted(OPERATIONS))
def test_it_answers_as_it_is_described(
    described: schemathesis.BaseSchema, method: str, path: str, mode: GenerationMode
) -> None:
    operation = described[path][method]
    if mode is GenerationMode.NEGATIVE and not (operation.query or operation.body):
        return  # there is nothing to get wrong

    @settings(
        max_examples=20, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck]
    )
    @given(operation.as_strategy(generation_mode=mode))
    def answers(case: schemathesis.Case) -> None:
        if mode is GenerationMode.POSITIVE:
            case.query.pop("as_of", None)  # most texts are no instant; a child answers those that are, seconds each
            if path == "/v1/commit":  # what no schema says: no partition is named twice
                case.body["offsets"] = [*{(of["topic"], of["partition"]): of for of in case.body["offsets"]}.values()]
        case.call_and_validate(timeout=SECONDS)

    answers()
