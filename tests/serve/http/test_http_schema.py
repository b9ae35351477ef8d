"""Schemathesis sends requests that the OpenAPI description allows, and many that it does not, to a running server."""

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
    ("POST", "/v1/rewind"),
}
SECONDS = 120
PAGE = Path(__file__).parents[3] / "docs" / "http.md"


@pytest.fixture(scope="session")
def schema(over_http: Serving) -> schemathesis.BaseSchema:
    schema = schemathesis.openapi.from_url(f"{over_http.http}/openapi.json")
    rejection = schema.config.checks.negative_data_rejection
    rejection.expected_statuses = [*rejection.expected_statuses, "413"]  # more rows than allowed can also be too large
    return schema


@pytest.mark.long
def test_schema_describes_all_operations(schema: schemathesis.BaseSchema) -> None:
    operations = {(operation.ok().method.upper(), operation.ok().path) for operation in schema.get_all_operations()}
    assert operations == OPERATIONS


def test_the_page_lists_every_operation_with_its_parameters(schema: schemathesis.BaseSchema) -> None:
    rows = re.findall(r"^\| `([A-Z]+) (/\S+)` \| (.*?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    paths = schema.raw_schema["paths"]
    assert {(method, path, frozenset(re.findall(r"`(\w+)`", parameters))) for method, path, parameters in rows} == {
        (method.upper(), path, frozenset(parameter["name"] for parameter in operation.get("parameters", ())))
        for path, operations in paths.items()
        for method, operation in operations.items()
    }


@pytest.mark.parametrize("mode", [*GenerationMode])
@pytest.mark.parametrize(("method", "path"), sorted(OPERATIONS))
def test_answers_conform_to_the_schema(
    schema: schemathesis.BaseSchema, method: str, path: str, mode: GenerationMode
) -> None:
    operation = schema[path][method]
    if mode is GenerationMode.NEGATIVE and not (operation.query or operation.body):
        return  # the request has no parameters

    @settings(
        max_examples=20, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck]
    )
    @given(operation.as_strategy(generation_mode=mode))
    def answers(case: schemathesis.Case) -> None:
        if mode is GenerationMode.POSITIVE:
            case.query.pop("as_of", None)  # a child process answers valid timestamps, in seconds each
            if path in {"/v1/commit", "/v1/rewind"}:  # no schema can express that partitions are unique
                case.body["offsets"] = [
                    *{(row["topic"], row["partition"]): row for row in case.body["offsets"]}.values()
                ]
        case.call_and_validate(timeout=SECONDS)

    answers()
