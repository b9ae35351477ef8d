"""The settings of single share groups, as brokers return them."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from offsetlake.coordinator.settings import CoordinatorSettings
from offsetlake.errors import LogUnavailable
from offsetlake.kafka.error_codes import GROUP_AUTHORIZATION_FAILED
from offsetlake.share import group_settings
from offsetlake.share.group_settings import GroupSettings
from offsetlake.share.leader_reads import Fetched
from support.serve.share_cluster import PARTITION, ShareCluster

DEFAULTS = CoordinatorSettings(share_record_lock_duration_ms=12_000)
OF_GROUP, OF_BROKER = 8, 5
TIMEOUT_SECONDS = 120.0
Config = tuple[str, str, int]


class Brokers:
    """Brokers with settings by group; a group may have an error code instead, and the brokers may not answer."""

    def __init__(self, settings: dict[str, int | Sequence[Config]]) -> None:
        self.settings = settings
        self.requested: list[list[str]] = []
        self.available = True

    async def send(self, api: int, _versions: range, values: Any) -> Any:
        """Answer DescribeConfigs."""
        assert api == 32
        self.requested.append([each["resource_name"] for each in values["resources"]])
        await asyncio.sleep(0)
        if not self.available:
            raise LogUnavailable("no broker answers")
        results = []
        for group in self.requested[-1]:
            found = self.settings.get(group, ())
            error, configs = (found, ()) if isinstance(found, int) else (0, found)
            described = [SimpleNamespace(name=name, value=value, config_source=at) for name, value, at in configs]
            results.append(SimpleNamespace(resource_name=group, error_code=error, configs=described))
        return SimpleNamespace(entity=lambda: SimpleNamespace(results=results))


def of(brokers: Any) -> GroupSettings:
    return GroupSettings(brokers, DEFAULTS)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, TIMEOUT_SECONDS))


@pytest.mark.parametrize(
    ("configs", "changes"),
    [
        ([], {}),
        ([("share.record.lock.duration.ms", "15000", OF_GROUP)], {"share_record_lock_duration_ms": 15_000}),
        ([("share.record.lock.duration.ms", "15000", OF_BROKER)], {}),
        ([("share.record.lock.duration.ms", "long", OF_GROUP), ("unknown", "1", OF_GROUP)], {}),
        ([("share.auto.offset.reset", "earliest", OF_GROUP)], {"share_auto_offset_reset": "earliest"}),
        ([("share.auto.offset.reset", "by_duration:PT1H", OF_GROUP)], {"share_auto_offset_reset": "by_duration:PT1H"}),
        ([("share.auto.offset.reset", "by_duration:1", OF_GROUP)], {}),
        ([("share.auto.offset.reset", "none", OF_GROUP)], {}),
        ([("share.isolation.level", "read_committed", OF_GROUP)], {"share_isolation_level": "read_committed"}),
        ([("share.session.timeout.ms", "50000", OF_GROUP)], {"share_session_timeout_ms": 50_000}),
        ([("share.session.timeout.ms", "5000", OF_GROUP)], {}),  # all sessions would expire
        ([("share.heartbeat.interval.ms", "9000", OF_GROUP)], {"share_heartbeat_interval_ms": 9_000}),
    ],
)
def test_what_is_set_for_a_group_replaces_the_settings_of_the_process(
    configs: list[Config], changes: dict[str, Any]
) -> None:
    async def read() -> None:
        assert await of(Brokers({"g": configs})).read("g") == replace(DEFAULTS, **changes)

    run(read())


def test_a_group_whose_settings_are_not_shown_has_those_of_the_process(caplog: pytest.LogCaptureFixture) -> None:
    async def read() -> None:
        settings = of(Brokers({"one": GROUP_AUTHORIZATION_FAILED, "other": GROUP_AUTHORIZATION_FAILED}))
        assert await settings.read("one") == await settings.read("other") == DEFAULTS
        assert len([line for line in caplog.messages if "error code 30" in line]) == 1

    run(read())


def test_all_groups_in_use_are_read_together_and_each_once_until_the_interval_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"group-{number}" for number in range(250)]

    async def read() -> None:
        brokers = Brokers({})
        settings = of(brokers)
        for name in names:
            assert settings.of(name) == DEFAULTS
        await settings.read(names[-1])
        assert [len(each) for each in brokers.requested] == [100, 100, 50]
        await asyncio.gather(*map(settings.read, names))
        assert len(brokers.requested) == 3
        changed: list[str] = []
        settings.changed.append(changed.append)
        brokers.settings = {names[7]: [("share.record.lock.duration.ms", "15000", OF_GROUP)]}
        monkeypatch.setattr(group_settings, "READ_INTERVAL_SECONDS", 0.0)
        while settings.of(names[7]) == DEFAULTS:
            await asyncio.sleep(0)
        assert changed == [names[7]]
        monkeypatch.setattr(group_settings, "_KEPT_SECONDS", 0.0)
        settings.of(names[7])
        while len(settings._known) > 1:  # groups that are not used are forgotten
            settings.of(names[7])
            await asyncio.sleep(0)
        settings.close()

    run(read())


def test_what_is_known_stays_while_no_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_settings, "RETRY_SECONDS", 0.0)

    async def read() -> None:
        brokers = Brokers({"known": [("share.record.lock.duration.ms", "15000", OF_GROUP)]})
        settings = of(brokers)
        known = await settings.read("known")
        brokers.available = False
        monkeypatch.setattr(group_settings, "READ_INTERVAL_SECONDS", 0.0)
        with pytest.raises(LogUnavailable):
            await settings.read("new")
        assert settings.of("known") == known != DEFAULTS
        brokers.available = True
        assert await settings.read("new") == DEFAULTS
        settings.close()

    run(read())


def test_share_partitions_get_changed_settings() -> None:
    async def change() -> None:
        sharing = ShareCluster(lambda _partition, _offset: Fetched(0, end=0))
        brokers: Any = Brokers({"group": [("share.record.lock.duration.ms", "15000", OF_GROUP)]})
        sharing.cluster.send = brokers.send
        found = sharing.partitions.get("group", PARTITION)
        while found.records is None:
            await asyncio.sleep(0)
        assert found.records.settings.record_lock_duration_ms == 15_000
        brokers.settings = {}
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(group_settings, "READ_INTERVAL_SECONDS", 0.0)
            while found.records.settings.record_lock_duration_ms == 15_000:
                sharing.settings.of("group")
                await asyncio.sleep(0)
        assert found.records.settings.record_lock_duration_ms == 30_000
        sharing.partitions.close()
        sharing.settings.close()

    run(change())
