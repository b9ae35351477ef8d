"""The table `history_cuts`: where history begins since `maintain` dropped the history before.

Its row is written before the files of history are replaced: a query never finds dropped history without its cut.
"""

from dataclasses import asdict, dataclass
from typing import Literal

from deltalake import DeltaTable

from offsetlake.lake.delta.open_tables import NO_HOOKS
from offsetlake.lake.files import FileChanges, TableFile, commit, committed
from offsetlake.lake.lake import Lake

Scope = Literal["history", "audit_events"]

_TABLE = "history_cuts"
_APPEND_ONLY = "delta.appendOnly"


@dataclass(frozen=True, slots=True)
class HistoryCut:
    """A row of `history_cuts`: the newest ingest run with dropped rows, and the instant from which history is complete.

    `begins_timestamp` is in ms since the epoch, None if no dropped record had a timestamp.
    """

    run_id: int
    scope: Scope
    through_run: int
    begins_timestamp: int | None


def last_cut(lake: Lake, scope: Scope, before_run: int | None = None) -> HistoryCut | None:
    """Return the newest cut of a scope, by a run before `before_run` if named; None if nothing was dropped."""
    if _TABLE not in lake.tables():  # an older program made the lake
        return None
    earlier = "true" if before_run is None else f"run_id < {before_run}"
    sql = (
        f"SELECT run_id, scope, through_run, begins_timestamp FROM {_TABLE} "  # noqa: S608
        f"WHERE scope = '{scope}' AND {earlier} ORDER BY run_id DESC LIMIT 1"
    )
    rows = lake.query(sql, _TABLE).to_pylist()
    return HistoryCut(**rows[0]) if rows else None


def record_cut(lake: Lake, cut: HistoryCut) -> None:
    """Write the row of a cut; does nothing if its run already did."""
    if committed(lake, _TABLE, f"cut-{cut.scope}", cut.run_id):
        return
    file = TableFile(lake, _TABLE)
    file.write_rows([asdict(cut)])
    commit(lake, _TABLE, [FileChanges(file.close())], f"cut-{cut.scope}", cut.run_id)


def replace_files(lake: Lake, table: str, changes: FileChanges, job: str, run_id: int) -> None:
    """Replace files of an append-only table by files with other rows, in one commit; once per run of a job.

    Delta refuses to remove rows from an append-only table, so the property is false during the commit.
    Raises LakeBusy if another program has rearranged the files.
    """
    if changes.removed and not committed(lake, table, job, run_id):
        _set_append_only(lake, table, value="false")
        commit(lake, table, [changes], job, run_id)
    _set_append_only(lake, table, value="true")


def _set_append_only(lake: Lake, table: str, *, value: str) -> None:
    opened = lake.without_rows(table)
    if opened.metadata().configuration.get(_APPEND_ONLY) == value:
        return
    properties = lake.properties("append-only", opened.version() + 1)

    def set_property(target: DeltaTable) -> None:
        target.alter.set_table_properties(
            {_APPEND_ONLY: value}, commit_properties=properties, post_commithook_properties=NO_HOOKS
        )

    with lake.open_tables() as tables:
        tables.write(table, set_property, properties)
