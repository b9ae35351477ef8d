"""The object that `offsetlake.open` returns. docs/python-api.md describes it with an example of each question."""

from offsetlake.api.changes import ChangeQuestions
from offsetlake.api.history import HistoryQuestions
from offsetlake.api.state import StateQuestions
from offsetlake.lake.lake import Lake
from offsetlake.lake.location.locate import LakeLocation


class OpenLake(StateQuestions, HistoryQuestions, ChangeQuestions):
    """Answers questions about a lake. It only reads, takes no lock, and reads the newest tables for each question.

    Each answer is a `pyarrow.Table`, whose schema has the notes that `offsetlake.notes` returns: what the answer lacks
    or leaves in doubt. Times in answers are int64, in ms since the epoch, unless a method says otherwise. The columns
    of the tables that a method names are described in docs/tables.md.

    Every method raises LakeUnusable if the lake cannot be read, TableChanged if another program changed a table, and
    NotEnoughMemory if a query needs too much memory. An error has the notes that the answer would have had
    (`__notes__`), if the log was not read completely.
    """


def open_lake(lake: LakeLocation) -> OpenLake:
    """Open a lake for questions.

    Args:
        lake: The folder of the lake, or its URI, such as `s3://bucket/lake`.

    Raises:
        LakeUnusable: There is no lake in the folder, or a newer version of offsetlake made it.
        BadRequest: The URI is invalid.
    """
    return OpenLake(Lake.open(lake).location)
