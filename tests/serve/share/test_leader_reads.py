"""Reads of a broker whose address changes, and which does not answer."""

import asyncio

from offsetlake.kafka.error_codes import BROKER_NOT_AVAILABLE
from offsetlake.log.cluster.connection import KafkaConnection
from offsetlake.share.leader_reads import MAX_READING, LeaderReads
from offsetlake.share.sessions import IdPartition

TIMEOUT_SECONDS = 120.0


def test_reads_under_way_and_pending_ones_fail_when_the_broker_is_closed() -> None:
    async def read() -> None:
        connected, handlers = asyncio.Event(), list["asyncio.Task[None] | None"]()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            handlers.append(asyncio.current_task())
            connected.set()
            await reader.read()
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        leader = LeaderReads(
            KafkaConnection.from_settings({"bootstrap.servers": "127.0.0.1:1"}), address, committed=False
        )
        reads = [leader.read(IdPartition(bytes(16), 0), offset, wait=False) for offset in range(MAX_READING)]
        await connected.wait()
        reads += [leader.read(IdPartition(bytes(16), 0), offset, wait=False) for offset in (8, 9)]
        leader.close()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert {(await each).error_code for each in reads} == {BROKER_NOT_AVAILABLE}
        server.close()
        await server.wait_closed()
        await asyncio.wait([each for each in handlers if each is not None])

    asyncio.run(read())
