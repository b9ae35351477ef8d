"""ShareFetch without records: permissions, and the sessions of one connection."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from offsetlake.kafka.error_codes import GROUP_AUTHORIZATION_FAILED, NONE
from offsetlake.serve.auth.acl import COMMIT, READ, Access, Grant
from offsetlake.serve.auth.principals import Client, RequestContext
from offsetlake.serve.protocol.encoding import Values
from offsetlake.serve.share.leader_reads import Fetched
from offsetlake.serve.share.sessions import ShareSessions
from offsetlake.serve.share.share_apis import ShareApis
from offsetlake.serve.share.share_fetch import ShareFetch
from support.serve.share_cluster import ShareCluster

LOCK_MS = 30_000


def apis(sessions: ShareSessions) -> ShareApis:
    sharing = ShareCluster(lambda _partition, _offset: Fetched(0, end=0))
    return ShareApis(sessions, sharing.partitions, ShareFetch(sharing.partitions, sharing.reads), LOCK_MS)


async def fetch(share: ShareApis, group: str, client: Client) -> Values:
    """Open a session without partitions."""
    request: Any = SimpleNamespace(
        group_id=group, member_id="member", share_session_epoch=0, topics=[], forgotten_topics_data=[],
        max_wait=timedelta(0), min_bytes=0, max_bytes=1, max_records=1, batch_size=1, share_acquire_mode=0,
        is_renew_ack=False,
    )  # fmt: skip
    return await share.fetch(request, RequestContext(2, client, None))


def test_a_connection_has_one_session() -> None:
    async def open_sessions() -> None:
        sessions, client = ShareSessions(2), Client()
        share = apis(sessions)
        for number in range(5):
            assert (await fetch(share, f"group-{number}", client))["error_code"] == NONE
        assert len(sessions) == 1
        share.disconnect(client)
        assert len(sessions) == 0

    asyncio.run(open_sessions())


@pytest.mark.parametrize(("permission", "error"), [(READ, GROUP_AUTHORIZATION_FAILED), (COMMIT, NONE)])
def test_fetching_and_acknowledging_need_the_permission_to_commit(permission: int, error: int) -> None:
    client = Client()
    client.access = Access([Grant("User:reader", "*", permission)])
    assert asyncio.run(fetch(apis(ShareSessions(1)), "group", client))["error_code"] == error
