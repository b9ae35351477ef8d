"""The policy `share_idle` on a live broker: it deletes a share group that was read, with its share partitions.

The broker is not shared, because the policy applies to all share groups.
"""

from pathlib import Path

import pytest

from offsetlake.lake.lake import Lake
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.log.cluster.share_admin import ShareGroupAdmin
from support.broker import workload
from support.broker.broker import Broker
from support.broker.kafka_tools import NEWER
from support.e2e.lakes import LATER, rows
from support.e2e.live import Live, catch_up, lake_of
from support.serve.groups_with_members import FIRST, join
from support.serve.wire_client import WireClient

pytestmark = [pytest.mark.broker, pytest.mark.long]

READ, USED_AGAIN = "idle-read", "idle-used-again"


def test_idle_share_group_is_deleted_unless_it_is_used_again(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "offsetlake.toml"
    config.write_text('[retention]\ndefault = "36500d"\nshare_idle = "30d"\n', encoding="utf-8")
    with Broker(tmp_path_factory.mktemp("broker"), version=NEWER) as broker:
        live = Live(broker, lake_of(broker, tmp_path), capsys)
        for topic in (READ, USED_AGAIN, FIRST):
            live.topic(topic, partitions=2, records=30)
        workload.share_group(broker.bootstrap, READ, READ, 20)
        with ShareGroupAdmin(KafkaConnection(bootstrap=broker.bootstrap)) as admin:
            assert admin.alter(USED_AGAIN, {(USED_AGAIN, 0): 20}) == {(USED_AGAIN, 0): None}
        catch_up(broker, live.lake)
        assert live.plain("expire", "--config", str(config))[0] == 0
        assert rows(Lake.open(live.lake), "tombstones") == []
        assert live.plain("expire", "--config", str(config), "--now", str(LATER))[0] == 0
        planned = rows(Lake.open(live.lake), "tombstones")
        assert {(row["group_id"], row["topic"], row["rule"]) for row in planned} == {
            (group, None, "share_idle") for group in (READ, USED_AGAIN)
        }
        with WireClient(broker.bootstrap) as client:
            join(client, "share", USED_AGAIN)
            assert live.plain("emit")[0] == 0
            assert (live.group_exists(READ), live.group_exists(USED_AGAIN)) == (False, True)
        [refused] = live.table("tombstones", USED_AGAIN, "refused")
        assert "the group changed after the last compaction" in refused["reason"]
        assert len(live.table("tombstones", READ, "emitted")) == 1
        with ShareGroupAdmin(KafkaConnection(bootstrap=broker.bootstrap)) as admin:
            assert admin.start_offsets(READ) == {}
            assert admin.start_offsets(USED_AGAIN)[USED_AGAIN, 0] == 20
        catch_up(broker, live.lake)
        assert {row["group_id"] for row in rows(Lake.open(live.lake), "share_partitions")} == {USED_AGAIN}
