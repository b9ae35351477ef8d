"""What is done before a log is read or written: it is repaired after a crash, and checked that it may be written."""

from offsetlake.errors import LogBusy
from offsetlake.log.address import LogAddress
from offsetlake.log.disk.folder import partitions_in
from offsetlake.log.writer.journal import JOURNAL
from offsetlake.log.writer.ownership import owned, refuse_broker_folder
from offsetlake.log.writer.recovery import recover


def repair_after_crash(log: LogAddress) -> None:
    """Repair a log in a folder that is only read, if a crash has left a journal; no process may own it.

    While a server owns the log, its segments contain everything that is acknowledged.

    Raises:
        LogUnavailable: As `recover`, and if the folder cannot be written.
    """
    if log.folder is not None and (log.folder / JOURNAL).exists():
        try:
            with owned(log.folder, "the repair of a log after a crash"):
                recover(log.folder)
        except LogBusy:
            return


def check_writable(log: LogAddress) -> None:
    """Check that a log exists and can be reached, and that it is not in the folder of a broker.

    Raises:
        LogUnavailable: It does not exist, or cannot be reached.
        LogBusy: It is in the folder of a broker, which only that broker may write to.
        BadRequest: A certificate file of the connection cannot be read.
    """
    if log.folder is None:
        log.describe()
    else:
        partitions_in(log.folder)
        refuse_broker_folder(log.folder)
