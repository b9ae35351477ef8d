"""Evaluates expectations with Great Expectations and writes its HTML pages; the only module that imports it."""

import html
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa

os.environ["GX_ANALYTICS_ENABLED"] = "false"  # telemetry, which is read on import

import great_expectations as gx
from great_expectations.data_context import EphemeralDataContext
from great_expectations.data_context.types.base import ProgressBarsConfig

from offsetlake.errors import BadRequest
from offsetlake.pipeline.checks.expectations import Evidence, Expectation, Suite

_ANSWER = pa.schema(
    [
        *((name, pa.string()) for name in ("suite", "expectation", "table")),
        ("version", pa.int64()),
        ("success", pa.bool_()),
        ("observed", pa.string()),
    ]
)


def evaluate(
    suites: Sequence[Suite],
    evidence: Mapping[str, Sequence[Evidence]],
    versions: Mapping[str, int],
    docs: Path | None,
    say: Callable[[str], None],
) -> pa.Table:
    """Return for each expectation of the suites whether the tables satisfy it at these Delta versions.

    | column      | description |
    |-------------|-------------|
    | suite       | name of the suite |
    | expectation | description of the expectation |
    | table, version | the table, and its Delta version |
    | success     | whether the table satisfies the expectation |
    | observed    | number of violating rows and the first of them, or the number of rows checked |

    `evidence` is by suite what `expectations.evidence` returned. HTML pages are written to the folder `docs`, if it is
    named. Raises BadRequest if the folder cannot be written.
    """
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    rows = []
    for suite in suites:
        of_suite = evidence[suite.name]
        succeeded = _validate(context, suite, of_suite, versions)
        rows += [
            {
                "suite": suite.name,
                "expectation": expectation.description,
                "table": expectation.table,
                "version": versions[expectation.table],
                "success": succeeded[expectation.column],
                "observed": str(violations),
            }
            for expectation, violations in zip(suite.expectations, of_suite, strict=True)
        ]
    if docs is not None:
        say(f"writing pages to {docs}")
        _write_docs(context, docs)
    return pa.Table.from_pylist(rows, schema=_ANSWER)


def _validate(
    context: EphemeralDataContext, suite: Suite, of_suite: Sequence[Evidence], versions: Mapping[str, int]
) -> dict[str, bool]:
    """Validate the counts of violating rows; return by column whether the expectation is satisfied."""
    counts = pd.DataFrame(
        {
            expectation.column: [len(violations.rows)]
            for expectation, violations in zip(suite.expectations, of_suite, strict=True)
        }
    )
    rules = [
        {
            "type": expectation.type,
            "kwargs": dict(expectation.kwargs),
            "description": _on_page(expectation, versions, violations),
        }
        for expectation, violations in zip(suite.expectations, of_suite, strict=True)
    ]
    rows_found = context.data_sources.add_pandas(suite.name).add_dataframe_asset("rows_that_break_it")
    definition = gx.ValidationDefinition(
        name=suite.name,
        data=rows_found.add_batch_definition_whole_dataframe("counts"),
        suite=context.suites.add(gx.ExpectationSuite(name=suite.name, expectations=rules)),
    )
    done = context.validation_definitions.add(definition).run(batch_parameters={"dataframe": counts})
    return {result.expectation_config.kwargs["column"]: result.success for result in done.results}


def _on_page(expectation: Expectation, versions: Mapping[str, int], violations: Evidence) -> str:
    """Return the HTML that describes an expectation and its evidence; names in it are untrusted."""
    where = f"{expectation.table} at version {versions[expectation.table]}"
    return html.escape(f"{expectation.description}. In {where}: {violations}").replace("$", "&#36;")


def _write_docs(context: EphemeralDataContext, docs: Path) -> None:
    store = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(docs.absolute())}
    try:
        docs.mkdir(parents=True, exist_ok=True)
        context.add_data_docs_site(
            "offsetlake", {"class_name": "SiteBuilder", "store_backend": store, "show_how_to_buttons": False}
        )
        context.build_data_docs()
    except OSError as error:
        raise BadRequest(f"the pages cannot be written to {docs}: {error.strerror}") from error
