"""Start offsets of share groups, from responses with errors of share partitions."""

import pytest

from offsetlake.errors import LogUnavailable
from offsetlake.kafka.error_codes import NONE, UNKNOWN_SERVER_ERROR, UNKNOWN_TOPIC_OR_PARTITION
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.cluster.share_admin import ShareGroupAdmin
from offsetlake.log.cluster.share_requests import DescribeResponse


@pytest.mark.parametrize("error", [UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_SERVER_ERROR])
def test_only_share_partitions_that_do_not_exist_are_omitted(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    partitions = [(0, 5, 0, NONE, None, {}), (1, 0, 0, error, None, {})]
    response = DescribeResponse(0, [("g", [("t", 0, 1, partitions, {})], NONE, None, {})], {})
    monkeypatch.setattr(ShareGroupAdmin, "_send", lambda *_: response)
    admin = ShareGroupAdmin(KafkaConnection.from_settings({"bootstrap.servers": "127.0.0.1:1"}))
    if error == UNKNOWN_TOPIC_OR_PARTITION:
        assert admin.start_offsets("g") == {("t", 0): 5}
    else:
        with pytest.raises(LogUnavailable, match=r"t-1 of group g: UNKNOWN_SERVER_ERROR"):
            admin.start_offsets("g")
