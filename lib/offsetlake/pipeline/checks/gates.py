"""Records the history that failed a gate: later gates check it again, until it passes or an operator accepts it."""

from collections.abc import Collection, Mapping, Sequence

from offsetlake.lake.lake import Lake
from offsetlake.lake.sql.select import select_at
from offsetlake.pipeline.checks.expectations import Suite

_FILE = "gates.json"


def held_back(lake: Lake) -> dict[str, int]:
    """Return by suite the ingest run after which history is held back; suites whose last gate passed are missing."""
    held = lake.files.read(_FILE) or {}
    if not all(isinstance(run, int) for run in held.values()):
        raise lake.files.damaged(_FILE, "it contains other values than numbers of runs")
    return held


def settle(lake: Lake, suites: Sequence[Suite], versions: Mapping[str, int], failed: Collection[str]) -> None:
    """Record the history that failed the gates of these suites, and release the history that passed."""
    held = held_back(lake)
    kept = {name: run for name, run in held.items() if name not in {suite.name for suite in suites}}
    for suite in suites:
        if suite.name in failed and suite.new_since:
            kept[suite.name] = held.get(suite.name, select_at(lake, suite.new_since, versions)["run_id"][0].as_py())
    _write(lake, held, kept)


def accept(lake: Lake, suites: Sequence[Suite]) -> None:
    """Record that a person accepts the history so far, so that later gates check only what is compacted from now on."""
    held = held_back(lake)
    compacted = lake.query("SELECT max(through_run) AS run_id FROM runs WHERE job = 'compact'", "runs")
    run = compacted["run_id"][0].as_py() or 0
    _write(lake, held, held | {suite.name: run for suite in suites if suite.new_since})


def _write(lake: Lake, before: Mapping[str, int], now: dict[str, int]) -> None:
    if now != before:
        with lake.location.errors():
            lake.files.write(_FILE, now)
