"""Turns history into that of an older version, which did not compare commits when it ingested them."""

import random
from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from offsetlake.lake.files import FileChanges, TableFile, active_files
from offsetlake.lake.history.history_cuts import replace_files
from offsetlake.lake.lake import Lake

TABLE = "offset_commits"
STEPS = ("repeats", "routine")

Files = Iterable[pa.Table]


def paths(lake: Lake) -> set[str]:
    """Return the data files of history."""
    return {file["path"] for file in active_files(lake, TABLE)}


def forget_steps(lake: Lake, arrange: Callable[[Files], Files] = list) -> None:
    """Write history again in files without the columns of steps; `arrange` distributes the rows over the files."""
    changes = FileChanges([], sorted(paths(lake)))
    location = lake.table_location(TABLE)
    for rows in arrange(
        [pq.read_table(location.path_of(path), filesystem=location.filesystem) for path in changes.removed]
    ):
        file = TableFile(lake, TABLE)
        file._schema = pa.schema([field for field in file._schema if field.name not in STEPS])
        file.write(rows)
        changes.added += file.close()
    with lake.lock("test"):
        replace_files(lake, TABLE, changes, "older", lake.versions(TABLE)[TABLE] + 1)


def scattered(rng: random.Random, files: int) -> Callable[[Files], Files]:
    """Distribute slices of the log over files, as if tasks had read them and `maintain` had merged some files."""

    def scatter(found: Files) -> Files:
        rows = pa.concat_tables(found).sort_by([("log_partition", "ascending"), ("log_offset", "ascending")])
        numbers: list[int] = []
        while len(numbers) < rows.num_rows:
            numbers += [rng.randrange(files)] * rng.choice((1, 5, 50, 200))
        file_of_row = pa.array(numbers[: rows.num_rows])
        return [rows.filter(pc.equal(file_of_row, number)) for number in range(files)]

    return scatter
