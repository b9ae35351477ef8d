"""What comes between plan and act on a live broker: refused, or told where Kafka cannot prevent it; and rights."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Literal

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AdminClient,
    ResourceType,
)

from offsetlake.log.cluster.admin import ClusterAdmin, OffsetToCommit
from offsetlake.pipeline.emit.cluster_writer import ClusterWriter
from support.broker import acls, workload
from support.broker.broker import PASSWORDS, Broker
from support.e2e.live import Live, lake_of

pytestmark = [pytest.mark.broker, pytest.mark.slow]

STAYS = "the group has offsets that are not deleted"


@pytest.fixture(scope="module")
def lake(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lake_of(broker, tmp_path_factory.mktemp("between"))


@pytest.fixture
def live(broker: Broker, lake: Path, capsys: pytest.CaptureFixture[str]) -> Live:
    return Live(broker, lake, capsys)


@pytest.fixture
def just_before(monkeypatch: pytest.MonkeyPatch) -> Callable[[type, str, Callable[[], object]], None]:
    """Have something happen right before a method is called for the first time."""

    def make(owner: type, name: str, happens: Callable[[], object]) -> None:
        method: Any = getattr(owner, name)

        def called(*arguments: Any) -> Any:
            monkeypatch.setattr(owner, name, method)
            happens()
            return method(*arguments)

        monkeypatch.setattr(owner, name, called)

    return make


JustBefore = Callable[[type, str, Callable[[], object]], None]


@pytest.mark.long
def test_commit_before_the_request_is_not_deleted(live: Live, just_before: JustBefore) -> None:
    group = topic = live.topic("between-plan")
    workload.simple_commit(live.broker.bootstrap, group, {(topic, 0): 3, (topic, 1): 4})
    just_before(
        ClusterWriter,
        "write",
        lambda: live.commit(group, {(topic, 0): OffsetToCommit(9), (topic, 2): OffsetToCommit(1)}),
    )
    answer = live.ask("cleanup", group, "--execute")
    assert answer.code == 8
    assert answer.outcomes() == {(topic, 0): "refused", (topic, 1): "emitted", None: "refused"}
    assert answer.reasons() == {"the committed offset is 9 now, not 3", None, STAYS}
    assert live.committed_offsets(group) == {(topic, 0): 9, (topic, 2): 1}
    just_before(ClusterWriter, "write", lambda: live.commit(group, {(topic, 0): OffsetToCommit(8)}))
    reset = live.ask("reset", group, "--topic", f"{topic}:0", "--to-earliest", "--execute")
    assert (reset.code, reset.reasons()) == (8, {"the committed offset is 8 now, not 9"})
    assert live.committed_offsets(group) == {(topic, 0): 8, (topic, 2): 1}


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_with_a_new_member_is_not_deleted(
    live: Live, just_before: JustBefore, protocol: Literal["classic", "consumer"]
) -> None:
    group = topic = live.topic(f"between-joins-{protocol}")
    offsets = {(topic, 0): 3}
    workload.simple_commit(live.broker.bootstrap, group, offsets)
    with ExitStack() as leaves:

        def joins() -> None:
            leaves.enter_context(closing(workload.member(live.broker.bootstrap, group, offsets, protocol)))

        just_before(ClusterWriter, "write", joins)
        cleanup = live.ask("cleanup", group, "--execute")
    subscribed = "GROUP_SUBSCRIBED_TO_TOPIC (86): an active member of the group is subscribed to the topic"
    assert (cleanup.code, cleanup.reasons()) == (8, {subscribed, STAYS})
    with ExitStack() as leaves:
        just_before(ClusterWriter, "write", joins)
        reset = live.ask("reset", group, "--topic", topic, "--to-offset", "0", "--execute")
    assert (reset.code, reset.reasons()) == (8, {"UNKNOWN_MEMBER_ID (25): the group has active members"})
    assert live.committed_offsets(group) == offsets


@pytest.mark.long
def test_concurrently_deleted_commit_is_noted_and_restored(live: Live, just_before: JustBefore) -> None:
    group = topic = live.topic("between-lost")
    live.commit(group, {(topic, 0): OffsetToCommit(3)})
    # The same offset again: by what a broker answers it is the commit that was judged.
    just_before(ClusterWriter, "write", lambda: live.commit(group, {(topic, 0): OffsetToCommit(3, 5, "мета")}))
    [of_offset, of_group] = live.ask("cleanup", group, "--execute").rows
    assert (of_offset["outcome"], of_group["outcome"], of_group["reason"]) == ("emitted", "emitted", None)
    lost = of_offset["log_offset"] - 1
    note = (
        f"a commit of 3 at log offset {lost} was made concurrently and was deleted: `offsetlake undelete` restores it"
    )
    assert of_offset["reason"] == note
    live.ask("undelete", group, "--execute")
    assert live.offsets_with_metadata(group) == {(topic, 0): (3, 5, "мета")}
    just_before(ClusterAdmin, "delete_offsets", lambda: live.commit(group, {(topic, 0): OffsetToCommit(7)}))
    assert "a commit of 7 at log offset" in live.ask("cleanup", group, "--execute").rows[0]["reason"]
    live.ask("undelete", group, "--execute")
    assert live.offsets_with_metadata(group) == {(topic, 0): (7, -1, "")}


@pytest.mark.long
def test_commits_deleted_with_their_group_are_noted_and_restored(live: Live, just_before: JustBefore) -> None:
    group = topic = live.topic("between-group")
    live.commit(group, {(topic, 0): OffsetToCommit(3)})
    late = {(topic, 0): 8, (topic, 1): 9}
    just_before(ClusterAdmin, "delete_group", lambda: workload.simple_commit(live.broker.bootstrap, group, late))
    [of_offset, of_group] = live.ask("cleanup", group, "--execute").rows
    assert "a commit of 8 at log offset" in of_offset["reason"]
    assert f"{topic}-1: a commit of 9 at log offset" in of_group["reason"]
    assert not live.group_exists(group)
    live.ask("undelete", group, "--execute")
    assert live.committed_offsets(group) == late


@pytest.mark.long
def test_transaction_deleted_with_its_group_is_noted(live: Live, just_before: JustBefore) -> None:
    group = topic = live.topic("between-transaction")
    live.commit(group, {(topic, 0): OffsetToCommit(3)})
    with ExitStack() as ends:

        def begins() -> None:
            offsets = {(topic, 1): 4}
            ends.callback(workload.open_transaction(live.broker.bootstrap, group, group, offsets).commit)

        just_before(ClusterAdmin, "delete_group", begins)
        of_group = live.ask("cleanup", group, "--execute").rows[-1]
        assert (of_group["topic"], of_group["outcome"]) == (None, "emitted")
        assert f"{topic}-1: a transactional commit of 4 at log offset" in of_group["reason"]
    assert live.committed_offsets(group) == {}
    assert live.ask("undelete", group, "--topic", topic, "--execute").code == 0
    assert live.committed_offsets(group) == {(topic, 0): 3, (topic, 1): 4}


@pytest.mark.long
def test_overwritten_commit_is_noted(live: Live, just_before: JustBefore) -> None:
    group = topic = live.topic("between-overwritten", records=10)
    live.commit(group, {(topic, 0): OffsetToCommit(3)})
    just_before(ClusterAdmin, "commit", lambda: workload.simple_commit(live.broker.bootstrap, group, {(topic, 0): 7}))
    done = live.ask("reset", group, "--all-topics", "--to-earliest", "--execute")
    assert (done.code, live.committed_offsets(group)) == (0, {(topic, 0): 0})
    assert "a commit of 7 at log offset" in done.rows[0]["reason"]
    command = f"reset {group} --topic {topic}:0 --to-offset 7"
    assert f"was overwritten: `offsetlake {command}` restores it" in done.rows[0]["reason"]
    assert live.ask(*command.split(), "--execute").code == 0
    assert live.committed_offsets(group) == {(topic, 0): 7}


@pytest.fixture
def allow(broker: Broker) -> Iterator[Callable[[ResourceType, str, AclOperation], None]]:
    """Give the user `reader` a right for the time of a test."""
    given: list[AclBindingFilter] = []

    def allowing(kind: ResourceType, name: str, operation: AclOperation) -> None:
        given.append(acls.allow(broker.bootstrap, kind, name, operation))

    yield allowing
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    for each in client.delete_acls(given).values():
        each.result(30)


@pytest.mark.long
def test_principal_with_permission_for_one_topic_changes_only_that_topic(
    live: Live, allow: Callable[[ResourceType, str, AclOperation], None], tmp_path: Path
) -> None:
    group = mine = live.topic("between-mine", records=10)
    seen, hidden = live.topic("between-seen"), live.topic("between-hidden")
    offsets = {(mine, 0): 3, (seen, 0): 4, (hidden, 0): 5}
    workload.simple_commit(live.broker.bootstrap, group, offsets)
    live.ask("cleanup", "between-no-such")  # lets the broker make all of its log's topics
    for topic in ("__consumer_offsets", "__share_group_state", mine):
        allow(ResourceType.TOPIC, topic, AclOperation.READ)
    allow(ResourceType.TOPIC, seen, AclOperation.DESCRIBE)
    allow(ResourceType.GROUP, group, AclOperation.READ)
    file = tmp_path / "reader.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=reader\n"
        f"sasl.password={PASSWORDS['reader']}\n"
    )
    as_reader = ("--bootstrap", live.broker.sasl_bootstrap, "--kafka-config", str(file))
    no_right = "TOPIC_AUTHORIZATION_FAILED (29): this user is not authorized for the topic; an ACL for READ is required"
    reset = live.ask("reset", group, "--all-topics", "--to-offset", "0", "--execute", options=as_reader)
    assert (reset.code, reset.outcomes()) == (
        8, {(mine, 0): "done", (seen, 0): "refused", (hidden, 0): "refused"},
    )  # fmt: skip
    assert {row["reason"] for row in live.table("alterations", group, "refused")} == {no_right}
    kept = live.ask("cleanup", group, "--topic", mine, "--execute", options=as_reader)
    assert (kept.code, live.committed_offsets(group)) == (8, offsets | {(mine, 0): 0})
    assert str(kept.rows[0]["reason"]).startswith("GROUP_AUTHORIZATION_FAILED (30): this user is not authorized")
    allow(ResourceType.GROUP, group, AclOperation.DELETE)
    cleanup = live.ask("cleanup", group, "--execute", options=as_reader)
    assert (cleanup.code, cleanup.outcomes()) == (
        8, {(mine, 0): "emitted", (seen, 0): "refused", (hidden, 0): "refused", None: "refused"},
    )  # fmt: skip
    assert {row["reason"] for row in live.table("tombstones", group, "refused") if row["topic"] != mine} == {
        no_right,
        STAYS,
    }
    assert live.committed_offsets(group) == {(seen, 0): 4, (hidden, 0): 5}
