"""Reads history by file: the files with rows of some ingest runs, and their rows of some log partitions."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from offsetlake.lake.definitions import definition
from offsetlake.lake.files import active_files, repeating_as_dictionaries, table_schema
from offsetlake.lake.lake import Lake

TIMED_TABLES = ("offset_commits", "transaction_markers", "group_records", "share_state_records")
"""The tables of the records of the log, which have timestamps."""

ALL_RUNS = 2**63 - 1
"""A number above those of all runs."""

_BATCH_ROWS = 1 << 17
_BATCH_READAHEAD = 2  # by default 16 batches of a file, decoded with all rows, wait for the condition


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A file of a history table, the range of log partitions it may contain, and its rows; 0 if unknown."""

    path: str
    first_partition: int
    last_partition: int
    rows: int


def history_files(
    lake: Lake, table: str, from_run: int, through_run: int, until_ms: int | None = None
) -> list[HistoryFile]:
    """Return the files that may contain rows of these ingest runs, appended to the log by an instant, if it is given.

    Records without a timestamp (Kafka before 0.10) count as appended by every instant.
    """
    files = active_files(lake, table)
    if any(row.get("min.ingest_run") is None for row in files):  # written by others, without statistics
        return partition_files(lake, table)
    return [
        history_file(lake, table, row)
        for row in files
        if row["min.ingest_run"] <= through_run and row["max.ingest_run"] >= from_run
        if until_ms is None or _may_be_appended_by(row, until_ms)
    ]


def _may_be_appended_by(row: dict[str, Any], until_ms: int) -> bool:
    earliest, without = row.get("min.log_timestamp"), row.get("null_count.log_timestamp")
    return earliest is None or earliest <= until_ms or without != 0


def smallest(lake: Lake, table: str, column: str) -> int | None:
    """Return the smallest value of a column of integers, None if it has none.

    Only files without statistics about the column are read.
    """
    found, unknown = [], []
    for file in active_files(lake, table):
        if (value := file.get(f"min.{column}")) is not None:
            found.append(value)
        elif not file["num_records"] or file.get(f"null_count.{column}") != file["num_records"]:
            unknown.append(file["path"])
    if unknown:
        values = file_dataset(lake, table, unknown).to_table([column])[column]
        found.append(pc.min(values).as_py())
    return min((value for value in found if value is not None), default=None)


@dataclass(frozen=True, slots=True)
class RecordSource(ABC):
    """A source of rows of history tables by log partition."""

    lake: Lake

    @abstractmethod
    def batches(
        self,
        table: str,
        partitions: Sequence[int],
        where: pc.Expression | None = None,
        columns: list[str] | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the rows of some log partitions batch by batch, by default all columns."""

    def rows(
        self,
        table: str,
        partitions: Sequence[int],
        where: pc.Expression | None = None,
        columns: list[str] | None = None,
    ) -> pa.Table:
        """Return rows of some log partitions as one table; for rows that are few compared to the commits."""
        schema = table_schema(table)
        wanted = pa.schema([schema.field(name) for name in columns]) if columns else schema
        return pa.concat_tables([wanted.empty_table(), *self.batches(table, partitions, where, columns)])


@dataclass(frozen=True, slots=True)
class History(RecordSource):
    """The rows of a range of ingest runs: the driver lists the files by table, tasks read them."""

    from_run: int
    through_run: int
    files: dict[str, list[HistoryFile]]

    @classmethod
    def open(
        cls,
        lake: Lake,
        tables: Iterable[str],
        from_run: int = 0,
        through_run: int = ALL_RUNS,
        until_ms: int | None = None,
    ) -> "History":
        """Return the history of a span of ingest runs in these tables, by default of all runs.

        With `until_ms`, files are omitted that contain only later records; other files may contain later ones too.
        """
        files = {table: history_files(lake, table, from_run, through_run, until_ms) for table in tables}
        return cls(lake, from_run, through_run, files)

    def partitions(self) -> list[int]:
        """Return the log partitions that may have rows."""
        of_all = [file for files in self.files.values() for file in files]
        return sorted({p for file in of_all for p in range(file.first_partition, file.last_partition + 1)})

    def batches(
        self,
        table: str,
        partitions: Sequence[int],
        where: pc.Expression | None = None,
        columns: list[str] | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the rows of some log partitions batch by batch, by default all columns."""
        of_runs = (pc.field("ingest_run") >= self.from_run) & (pc.field("ingest_run") <= self.through_run)
        wanted = of_runs if where is None else of_runs & where
        dataset, chosen = _rows_of(self.lake, table, self.files[table], partitions, wanted)
        scanner = dataset.scanner(
            columns=columns,
            filter=chosen,
            batch_size=_BATCH_ROWS,
            use_threads=False,
            batch_readahead=_BATCH_READAHEAD,
            fragment_readahead=1,
        )
        for batch in scanner.to_batches():
            if batch.num_rows:
                yield pa.Table.from_batches([batch])


def deciding_rows(
    source: RecordSource, partitions: Sequence[int], part_columns: Sequence[str], where: pc.Expression | None = None
) -> tuple[pa.Table, pa.Table]:
    """Return the markers of some log partitions, and columns of all parts of commits in parts there.

    They decide which commits take effect. The parts are those of all keys, because a commit in parts is complete only
    if all of its parts are there.
    """
    is_part = pc.field("commit_id").is_valid()
    parts = source.rows("offset_commits", partitions, is_part if where is None else is_part & where, [*part_columns])
    return source.rows("transaction_markers", partitions, where), parts


def file_dataset(lake: Lake, table: str, paths: Sequence[str], *, dictionaries: bool = False) -> ds.Dataset:
    """Return data files of a table as a dataset; with `dictionaries`, columns with repeated texts are dictionaries."""
    location = lake.table_location(table)
    schema = repeating_as_dictionaries(table) if dictionaries else table_schema(table)
    read = ds.ParquetReadOptions(dictionary_columns=definition(table).repeating if dictionaries else [])
    compared = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    return ds.dataset(
        [location.path_of(path) for path in paths],
        schema=schema,
        format=ds.ParquetFileFormat(read_options=read, default_fragment_scan_options=compared),
        filesystem=location.filesystem,
    )


def file_batches(lake: Lake, table: str, path: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield some columns of a data file, which may be large, batch by batch; repeated texts are dictionaries."""
    dataset = file_dataset(lake, table, [path], dictionaries=True)
    for fragment in dataset.get_fragments():
        for row_group in fragment.split_by_row_group():  # a scan of all of them reads many ahead
            yield from row_group.to_batches(dataset.schema, columns=[*columns])


def row_groups(
    lake: Lake,
    table: str,
    files: Sequence[HistoryFile],
    partitions: Sequence[int],
    where: pc.Expression,
    columns: Sequence[str],
) -> Iterator[pa.Table]:
    """Yield the rows of these log partitions in some files, of one row group at a time; the first table is empty.

    Repeated texts are dictionaries.
    """
    dataset, chosen = _rows_of(lake, table, files, partitions, where, dictionaries=True)
    yield dataset.schema.empty_table().select([*columns])
    for fragment in dataset.get_fragments():
        for row_group in fragment.split_by_row_group(chosen, schema=dataset.schema):
            yield row_group.to_table(dataset.schema, columns=[*columns], filter=chosen)


def partition_files(lake: Lake, table: str, version: int | None = None, from_run: int = 0) -> list[HistoryFile]:
    """Return the files of any table with a column log_partition, at a Delta version or the newest one.

    `from_run` excludes files that contain only rows of older runs, of a table with a column run_id.
    """
    files = active_files(lake, table, version)
    return [history_file(lake, table, row) for row in files if (row.get("max.run_id") or from_run) >= from_run]


def history_file(lake: Lake, table: str, row: dict[str, Any]) -> HistoryFile:
    """Return a file of any table with a column log_partition, given as `active_files` returns it."""
    rows = row.get("num_records") or 0
    if row.get("min.log_partition") is not None:
        return HistoryFile(row["path"], row["min.log_partition"], row["max.log_partition"], rows)
    column = file_dataset(lake, table, [row["path"]]).to_table(["log_partition"])["log_partition"]
    bounds = pc.min_max(column).as_py()
    return HistoryFile(row["path"], bounds["min"], bounds["max"], rows)


def partition_rows(
    lake: Lake,
    table: str,
    files: list[HistoryFile],
    partitions: Sequence[int],
    where: pc.Expression,
) -> pa.Table:
    """Return the rows of these log partitions in some files of a table; repeated texts are dictionaries."""
    dataset, chosen = _rows_of(lake, table, files, partitions, where, dictionaries=True)
    return dataset.to_table(filter=chosen, batch_readahead=_BATCH_READAHEAD)


def _rows_of(
    lake: Lake,
    table: str,
    files: Sequence[HistoryFile],
    partitions: Sequence[int],
    where: pc.Expression,
    *,
    dictionaries: bool = False,
) -> tuple[ds.Dataset, pc.Expression]:
    """Return the files that can have rows of these log partitions, as a dataset, and the condition on these rows."""
    low, high = min(partitions), max(partitions)
    paths = [f.path for f in files if f.first_partition <= high and f.last_partition >= low]
    chosen = pc.field("log_partition").isin(list(partitions))
    return file_dataset(lake, table, paths, dictionaries=dictionaries), chosen & where
