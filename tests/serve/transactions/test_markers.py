"""Which markers of other brokers may end the open transaction of a producer."""

import pytest
from kio.schema.write_txn_markers.v1 import request as v1
from kio.schema.write_txn_markers.v2 import request as v2
from kio.static.primitive import i8, i16, i32, i64

from offsetlake.node.cluster_transactions import may_end

MAX_EPOCH = 2**15 - 1


@pytest.mark.parametrize(
    ("transaction_version", "marker_epoch", "open_epoch", "expected"),
    [
        (None, 4, 5, False),
        (None, 5, 5, True),  # such clients keep their epoch
        (1, 5, 5, True),
        (2, 4, 5, False),
        (2, 5, 5, False),  # a late marker of the transaction before
        (2, 6, 5, True),
        (2, MAX_EPOCH, MAX_EPOCH, True),  # as in a broker: the epoch cannot be incremented
    ],
)
def test_a_marker_ends_the_transaction_of_its_epoch(
    transaction_version: int | None, marker_epoch: int, open_epoch: int, expected: bool
) -> None:
    values = {
        "producer_id": i64(1), "producer_epoch": i16(marker_epoch), "transaction_result": True, "topics": (),
        "coordinator_epoch": i32(0),
    }  # fmt: skip
    marker = (
        v1.WritableTxnMarker(**values)
        if transaction_version is None
        else v2.WritableTxnMarker(**values, transaction_version=i8(transaction_version))
    )
    assert may_end(marker, open_epoch) is expected
