"""The errors of the project; each message says what failed, why, and what to do."""

from collections.abc import Callable


class OffsetlakeError(Exception):
    """Base class of errors that a user can act on; the command line prints them and exits with `exit_code`."""

    exit_code = 1


class UndecodableRecord(OffsetlakeError):
    """The bytes are not a record of a known type and version; the record is quarantined."""


class CorruptBatch(OffsetlakeError):
    """The checksum of a record batch is wrong or the batch is malformed; its bytes are quarantined."""


class LogUnavailable(OffsetlakeError):
    """The log does not exist, access is denied, or no broker is reachable."""

    exit_code = 3


class NotRead(LogUnavailable):
    """The log that the lake was read from does not contain the log partition of a group that a question names."""


class LogMismatch(OffsetlakeError):
    """The log is not the one that the lake was created from, or it has lost records that the lake has read."""

    exit_code = 4


class LogBusy(OffsetlakeError):
    """Another process or a broker owns the log, so this process must not write to it."""

    exit_code = 7


class LakeBusy(OffsetlakeError):
    """Another job is writing to the lake, or was interrupted and must be resumed first."""

    exit_code = 5


class LakeUnusable(OffsetlakeError):
    """The lake cannot be read or written: wrong folder, newer version, no space, no permission."""

    exit_code = 6


class TableChanged(OffsetlakeError):
    """Another program changed rows or columns of a table, which jobs do not read until it is rebuilt or restored."""

    exit_code = 10


class Refused(OffsetlakeError):
    """A requested change was refused: a group in use, a concurrent commit, an error of the broker."""

    exit_code = 8


class CheckFailed(OffsetlakeError):
    """A table violates an expectation; the following tasks of a schedule must wait for an operator."""

    exit_code = 9


class NotEnoughMemory(OffsetlakeError):
    """A query needs more memory than queries may use."""

    exit_code = 11


class NotInstalled(OffsetlakeError):
    """A command needs packages of an extra, such as `offsetlake[serve]`, that are not installed."""

    exit_code = 12


class BadRequest(OffsetlakeError):
    """An option, a setting or a query is invalid."""

    exit_code = 2


class NotInLake(BadRequest):
    """The lake contains no group, offset or share partition that a question names.

    `suggest` returns a sentence with a similar name, after a blank, or an empty text. Only the command line calls it:
    visitors of the console may not see every group.
    """

    def __init__(self, message: str, suggest: Callable[[], str] = str) -> None:
        super().__init__(message)
        self.suggest = suggest


class FleetFailed(OffsetlakeError):
    """Lakes of a fleet failed; the exit code is the one that they have in common, otherwise 1."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
