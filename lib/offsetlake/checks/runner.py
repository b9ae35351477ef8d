"""What Great Expectations says of a lake, and its HTML pages about it. No other module imports that library."""

import html
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa

os.environ["GX_ANALYTICS_ENABLED"] = "false"  # its telemetry; read when it is imported

import great_expectations as gx
from great_expectations.data_context import EphemeralDataContext
from great_expectations.data_context.types.base import ProgressBarsConfig

from offsetlake.checks.expectations import Evidence, Expectation, Suite
from offsetlake.errors import BadRequest

_ANSWER = pa.schema(
    [
        *((name, pa.string()) for name in ("suite", "expectation", "table")),
        ("version", pa.int64()),
        ("success", pa.bool_()),
        ("observed", pa.string()),
    ]
)


def judged(
    suites: Sequence[Suite],
    evidence: Mapping[str, Sequence[Evidence]],
    versions: Mapping[str, int],
    docs: Path | None,
    say: Callable[[str], None],
) -> pa.Table:
    """Return for each expectation of the suites whether it holds of the tables at these Delta versions.

    | column      | is |
    |-------------|----|
    | suite       | its name |
    | expectation | what has to hold, in words |
    | table, version | what it is about, and at which Delta version |
    | success     | whether it holds |
    | observed    | how many rows break it and the first of them; or of how many none does |

    `evidence` is what `expectations.evidence` has found, by suite. Pages about it are written to the folder `docs`,
    where one is named. Raises BadRequest where the folder cannot be written.
    """
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    rows = []
    for suite in suites:
        found = evidence[suite.name]
        held = _held(context, suite, found, versions)
        rows += [
            {
                "suite": suite.name,
                "expectation": each.description,
                "table": each.table,
                "version": versions[each.table],
                "success": held[each.column],
                "observed": str(seen),
            }
            for each, seen in zip(suite.expectations, found, strict=True)
        ]
    if docs is not None:
        say(f"writing pages to {docs}")
        _write_docs(context, docs)
    return pa.Table.from_pylist(rows, schema=_ANSWER)


def _held(
    context: EphemeralDataContext, suite: Suite, found: Sequence[Evidence], versions: Mapping[str, int]
) -> dict[str, bool]:
    """Have the counts of rows judged, one column an expectation; tells by column whether it holds."""
    counts = pd.DataFrame({each.column: [len(seen.rows)] for each, seen in zip(suite.expectations, found, strict=True)})
    rules = [
        {"type": each.type, "kwargs": dict(each.kwargs), "description": _on_page(each, versions, seen)}
        for each, seen in zip(suite.expectations, found, strict=True)
    ]
    rows_found = context.data_sources.add_pandas(suite.name).add_dataframe_asset("rows_that_break_it")
    definition = gx.ValidationDefinition(
        name=suite.name,
        data=rows_found.add_batch_definition_whole_dataframe("counts"),
        suite=context.suites.add(gx.ExpectationSuite(name=suite.name, expectations=rules)),
    )
    done = context.validation_definitions.add(definition).run(batch_parameters={"dataframe": counts})
    return {each.expectation_config.kwargs["column"]: each.success for each in done.results}


def _on_page(expectation: Expectation, versions: Mapping[str, int], seen: Evidence) -> str:
    """Say on a page of HTML what has to hold and what was seen; the names in it come from anybody."""
    where = f"{expectation.table} at version {versions[expectation.table]}"
    return html.escape(f"{expectation.description}. In {where}: {seen}").replace("$", "&#36;")


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
