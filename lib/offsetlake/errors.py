"""Every error the project raises on purpose: one tree, each message says what, why and what to do."""


class OffsetlakeError(Exception):
    """The root: anything a user can act on. The command line prints it and leaves with `exit_code`."""

    exit_code = 1


class UndecodableRecord(OffsetlakeError):
    """Bytes that are no record of a known type and version. The record goes to `quarantine`."""


class CorruptBatch(OffsetlakeError):
    """Bytes of a record batch that fail their checksum or cannot be walked. They go to `quarantine`."""


class LogUnavailable(OffsetlakeError):
    """The log cannot be read: no such folder or topic, not a log, not allowed, broker not reached."""

    exit_code = 3


class LogMismatch(OffsetlakeError):
    """The log is not the one this lake holds, or ends before the position the lake has read to."""

    exit_code = 4


class LogBusy(OffsetlakeError):
    """Another process writes to the log, or it is a broker's own: it must not be written here."""

    exit_code = 7


class LakeBusy(OffsetlakeError):
    """Another job writes to the lake, or was cut short and has to be finished first."""

    exit_code = 5


class LakeUnusable(OffsetlakeError):
    """The lake cannot be read or written: not a lake, a newer version, no space, no permission."""

    exit_code = 6


class TableChanged(OffsetlakeError):
    """Another program changed the rows or columns of a table: no job reads it until it is rebuilt or restored."""

    exit_code = 10


class Refused(OffsetlakeError):
    """Something that was asked for was not done: a group in use, a commit that came in between, a broker's refusal."""

    exit_code = 8


class CheckFailed(OffsetlakeError):
    """An expectation of what the tables hold is broken: what comes next in a schedule must wait for a person."""

    exit_code = 9


class NotEnoughMemory(OffsetlakeError):
    """A query that would need more memory than queries may use."""

    exit_code = 11


class BadRequest(OffsetlakeError):
    """An option, a setting or a query that makes no sense."""

    exit_code = 2
