"""Record batches of a response to Fetch, which are divided between batches only."""

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from offsetlake.coordinator.share_partition.requests import FetchedAbortedTransaction, FetchedBatch
from offsetlake.share.fetched_records import FetchedRecords

GZIP = 1


def batch(first: int, count: int, *, producer_id: int = -1, compression: int = 0) -> bytes:
    is_transactional = producer_id >= 0
    builder = DefaultRecordBatchBuilder(2, compression, int(is_transactional), producer_id, 0, 0, 1 << 20)
    for number in range(count):
        builder.append(number, 1_000, None, b"value", [])
    data = bytearray(builder.build())
    data[:8] = first.to_bytes(8, "big")  # not covered by the checksum
    return bytes(data)


def abort_marker(offset: int, producer_id: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 1, producer_id, 0, 0, 1 << 20)
    builder.append(0, 1_000, b"\0\0\0\0", b"\0\0\0\0\0\0", [])
    data = bytearray(builder.build())
    data[:8] = offset.to_bytes(8, "big")
    data[22] |= 0x20  # a control batch
    return bytes(data)


def test_slices_are_whole_batches_and_unchanged() -> None:
    pieces = [batch(10, 5), batch(15, 3, compression=GZIP), batch(20, 1)]  # 18 and 19 were compacted away
    fetched = FetchedRecords(12, b"".join(pieces) + batch(21, 4)[:-1])  # the last one is incomplete
    assert [each[:2] for each in fetched.batches] == [(10, 14), (15, 17), (20, 20)]
    assert (fetched.start, fetched.end) == (12, 21)
    assert fetched.slice(12, 13) == pieces[0]
    assert fetched.slice(14, 15) == pieces[0] + pieces[1]
    assert fetched.slice(18, 20) == pieces[2]
    assert fetched.bytes_from(16) == len(pieces[1] + pieces[2])
    assert [each.first_offset for each in fetched.batches_from(12, 1)[0]] == [10]
    assert [each.first_offset for each in fetched.batches_from(16, 1 << 20)[0]] == [15, 20]
    assert [each.first_offset for each in fetched.batches_from(10, len(pieces[0] + pieces[1]))[0]] == [10, 15]


def test_aborted_transactions_end_at_their_marker() -> None:
    pieces = [batch(0, 2, producer_id=7), abort_marker(2, 7), batch(3, 1, producer_id=7), batch(4, 1, producer_id=8)]
    first, open_one = FetchedAbortedTransaction(7, 0), FetchedAbortedTransaction(8, 4)
    fetched = FetchedRecords(0, b"".join(pieces), [first, open_one])
    assert fetched.batches[1] == FetchedBatch(2, 2, 7, is_transactional=True, is_abort_marker=True)
    assert fetched.batches_from(0, 1 << 20)[1] == [first, open_one]
    assert fetched.batches_from(2, 1 << 20)[1] == [first, open_one]
    assert fetched.batches_from(3, 1 << 20)[1] == [open_one]


def test_batches_without_records_are_passed_on() -> None:
    """Compaction keeps the header of the last batch of a producer, and of a transaction marker."""
    header = bytearray(batch(0, 3)[:61])
    header[8:12] = (61 - 12).to_bytes(4, "big")
    header[57:61] = bytes(4)
    marker = bytearray(header)
    marker[:8] = (3).to_bytes(8, "big")
    marker[22] |= 0x20
    fetched = FetchedRecords(0, bytes(marker))
    assert fetched.batches == [FetchedBatch(3, 5)]
    fetched = FetchedRecords(0, bytes(header + marker))
    assert fetched.batches == [FetchedBatch(0, 2), FetchedBatch(3, 5)]
    assert fetched.end == 6


def test_nothing_was_fetched() -> None:
    fetched = FetchedRecords(5, b"")
    assert (fetched.batches, fetched.end, len(fetched)) == ([], 5, 0)
