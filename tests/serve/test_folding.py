"""Taking over snapshots when something fails on the way: nothing that was acknowledged goes, and the server goes on."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from offsetlake.serve.folding import Folding
from serve import commands
from serve.in_process import SECONDS, InProcess

GROUP, TOPIC = "billing", "orders"


@pytest.fixture
def folding(served: InProcess) -> Folding:
    return Folding(served.parts.settings, served.store, served.writes, served.appender, asyncio.Lock())


def wait(served: InProcess, work: Coroutine[Any, Any, Any]) -> None:
    served.loop.run_until_complete(asyncio.wait_for(work, SECONDS))


def assert_serves(served: InProcess, offset: int) -> None:
    """What was committed stands, and more can be."""
    assert commands.stored(served, GROUP)[TOPIC, 0] == offset
    assert not served.store.frozen
    assert commands.commit(served, GROUP, TOPIC, 0, offset + 1) == 0
    assert commands.stored(served, GROUP)[TOPIC, 0] == offset + 1


def test_a_fold_that_is_cancelled_while_it_waits_for_its_turn_keeps_nobody_from_writing(
    served: InProcess, folding: Folding
) -> None:
    assert commands.commit(served, GROUP, TOPIC, 0, 100) == 0

    async def cancel() -> None:
        fold = asyncio.create_task(folding._fold())
        await asyncio.sleep(0)
        fold.cancel()
        await asyncio.wait([fold])

    wait(served, cancel())
    assert_serves(served, 100)
    assert served.store.thaws == 0
