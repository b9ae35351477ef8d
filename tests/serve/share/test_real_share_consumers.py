"""Kafka's share consumers of versions 4.1 and 4.2 over a broker without share groups, while their leader is killed."""

from pathlib import Path

import pytest

from support.share_clients.results import SharePlan
from support.share_clients.run import ShareRun

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.long]


def test_every_record_is_completed_exactly_once_while_the_process_is_killed(tmp_path: Path) -> None:
    kinds = ("java-4.1-explicit", "java-4.2-limit", "java-4.2-implicit")
    plan = SharePlan(3_000, seconds=6, kills=2, kinds=kinds, member_events=2, lock_ms=3_000)
    results = ShareRun(tmp_path, plan, lambda _: None).run()
    assert results.wrong == []
    explicit, mixed = results.outcomes("explicit"), results.outcomes("mixed")
    assert explicit["limit"] == explicit["rejected"] == plan.records // 50
    assert mixed == {"accepted": plan.records}
    assert all(results.promises(group) for group in plan.groups)
    assert len(results.outages) == 2
    assert results.compared
