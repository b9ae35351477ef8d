"""cleanup, reset, restore and undelete on a live broker; what they say is held against what the broker answers."""

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Literal

import pytest

from offsetlake.log.cluster.admin import OffsetToCommit
from support.broker import workload
from support.broker.broker import Broker
from support.e2e.live import Live, catch_up, lake_of, run_to_undo

pytestmark = [pytest.mark.broker, pytest.mark.slow]

Protocol = Literal["classic", "consumer"]


@pytest.fixture(scope="module")
def lake(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lake_of(broker, tmp_path_factory.mktemp("by-hand"))


@pytest.fixture
def live(broker: Broker, lake: Path, capsys: pytest.CaptureFixture[str]) -> Live:
    return Live(broker, lake, capsys)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["classic", "consumer", "simple"])
def test_idle_group_is_cleaned_up_and_restored(live: Live, kind: Protocol | Literal["simple"]) -> None:
    group = topic = live.topic(f"hand-idle-{kind}")
    offsets = {(topic, 0): 3, (topic, 2): 5}
    if kind == "simple":
        workload.simple_commit(live.broker.bootstrap, group, offsets)
    else:
        workload.member(live.broker.bootstrap, group, offsets, kind).close()
    planned = live.ask("cleanup", group)
    assert (planned.code, planned.outcomes()) == (0, dict.fromkeys((*offsets, None), "planned"))
    assert "3 changes are planned; nothing was changed. To execute them: offsetlake " in planned.err
    assert live.committed_offsets(group) == offsets
    done = live.ask("cleanup", group, "--execute")
    assert (done.code, done.outcomes()) == (0, dict.fromkeys((*offsets, None), "emitted"))
    assert done.reasons() == {None}
    assert all(row["log_offset"] is not None for row in done.rows)
    assert not live.group_exists(group)
    assert live.committed_offsets(group) == {}
    again = live.ask("cleanup", group, "--execute")
    assert (again.code, again.rows) == (2, [])
    assert f"There is no group '{group}'" in again.err
    back = live.ask("undelete", group, "--execute")
    assert (back.code, back.outcomes()) == (0, dict.fromkeys(offsets, "done"))
    assert live.committed_offsets(group) == offsets


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_in_use_is_refused(live: Live, protocol: Protocol) -> None:
    group = used = live.topic(f"hand-used-{protocol}")
    left = live.topic(f"hand-left-{protocol}")
    workload.simple_commit(live.broker.bootstrap, group, {(left, 0): 5})
    every = {(used, 0): 3, (left, 0): 5}
    with closing(workload.member(live.broker.bootstrap, group, {(used, 0): 3}, protocol)):
        for arguments in (
            ["cleanup", group, "--execute"],
            ["cleanup", group, "--topic", used, "--execute"],
            ["reset", group, "--all-topics", "--to-latest", "--execute"],
        ):
            refused = live.ask(*arguments)
            assert (refused.code, set(refused.outcomes().values())) == (8, {"refused"})
            assert all("members: rdkafka at /127.0.0.1" in str(reason) for reason in refused.reasons())
        assert live.committed_offsets(group) == every
        of_topic = live.ask("cleanup", group, "--topic", left, "--execute")
        assert (of_topic.code, of_topic.outcomes()) == (0, {(left, 0): "emitted"})
        assert live.committed_offsets(group) == {(used, 0): 3}
        # No offset of a group with members can be set, so what went must wait.
        waits = live.ask("undelete", group, "--execute")
        assert (waits.code, waits.outcomes()) == (8, {(left, 0): "refused"})
    assert live.ask("undelete", group, "--execute").outcomes() == {(left, 0): "done"}
    assert live.committed_offsets(group) == every
    assert {row["reason"][:15] for row in live.table("tombstones", group, "refused")} == {
        "it has members:",
        "it is subscribe",
    }


@pytest.mark.long
def test_cleanup_by_pattern_refuses_groups_in_use(live: Live) -> None:
    topic = live.topic("hand-team")
    for number in range(3):
        workload.simple_commit(live.broker.bootstrap, f"hand-team-idle-{number}", {(topic, number): number})
    with closing(workload.member(live.broker.bootstrap, "hand-team-busy", {(topic, 0): 1}, "classic")):
        planned = live.ask("cleanup", "hand-team-*")
        assert planned.code == 0
        assert "6 changes are planned, 2 cannot be made; nothing was changed." in planned.err
        keys = [(row["group_id"], row["topic"] is None) for row in planned.rows]
        assert keys == sorted(keys), "a group's rows are together"
        done = live.ask("cleanup", "hand-team-*", "--execute")
        assert done.code == 8
        assert "6 changes were made. To undo them:" in done.err
        assert "error: 2 of 8 changes were refused: see the column reason." in done.err
        assert live.committed_offsets("hand-team-busy") == {(topic, 0): 1}
    assert not any(live.group_exists(f"hand-team-idle-{number}") for number in range(3))
    restored = live.ask("restore", "--run", run_to_undo(done), "--execute")
    assert {row["group_id"] for row in restored.rows} == {f"hand-team-idle-{number}" for number in range(3)}
    assert [live.committed_offsets(f"hand-team-idle-{number}") for number in range(3)] == [
        {(topic, n): n} for n in range(3)
    ]


@pytest.mark.long
def test_unknown_groups_topics_and_runs_are_errors(live: Live) -> None:
    group = topic = live.topic("hand-missing", 1)
    workload.simple_commit(live.broker.bootstrap, group, {(topic, 0): 0})
    for arguments, said in (
        (["cleanup", "hand-no-such"], "There is no group 'hand-no-such'"),
        (["cleanup", group, "--topic", "hand-no-such"], "has an offset of topic 'hand-no-such'"),
        (["undelete", "hand-no-such"], "no group like 'hand-no-such' has ever committed"),
        (["reset", group, "--topic", "hand-no-such", "--to-latest"], "Unknown topic 'hand-no-such'"),
        (["reset", group, "--topic", f"{topic}:7", "--to-latest"], f"Unknown partition 7 of topic '{topic}'"),
        (["restore", "--run", "999999"], "run 999999 has changed no offset"),
        (["reset", "hand-new", "--from-group", "hand-no-such"], "Group 'hand-no-such' has no offsets to copy"),
    ):
        answer = live.ask(*arguments, "--execute")
        assert (answer.code, answer.rows) == (2, []), arguments
        assert said in answer.err


@pytest.mark.long
def test_every_reset_strategy_commits_its_offsets(live: Live) -> None:
    group = topic = live.topic("hand-reset", 3, records=10)
    start = {(topic, 0): 4, (topic, 1): 7}
    workload.simple_commit(live.broker.bootstrap, group, start)
    for options, expected in (
        (["--all-topics", "--to-earliest"], {0: 0, 1: 0}),
        (["--topic", topic, "--to-latest"], {0: 10, 1: 0, 2: 0}),
        (["--topic", f"{topic}:0", "--shift-by", "-3"], {0: 7, 1: 0, 2: 0}),
        (["--all-topics", "--to-datetime", "2020-01-01T00:00"], {0: 0, 1: 0, 2: 0}),
        (["--all-topics", "--by-duration", "1ms"], {0: 10, 1: 0, 2: 0}),
        (["--topic", f"{topic}:0", "--to-offset", "2", "--only-if", "10"], {0: 2, 1: 0, 2: 0}),
    ):
        done = live.ask("reset", group, *options, "--execute")
        assert (done.code, {*done.outcomes().values()} - {"unchanged"}) == (0, {"done"}), options
        assert {number: offset for (_, number), offset in live.committed_offsets(group).items()} == expected, options
    nothing = live.ask("reset", group, "--all-topics", "--to-current", "--execute")
    assert (nothing.code, {*nothing.outcomes().values()}) == (0, {"unchanged"})
    assert "Nothing to change." in nothing.err
    unexpected = live.ask("reset", group, "--all-topics", "--to-offset", "99", "--only-if", "2", "--execute")
    assert (unexpected.code, unexpected.reasons()) == (
        8,
        {"clamped to the log end 10", "the committed offset is 0 now, not 2"},
    )
    assert unexpected.rows[0]["reason"] == "clamped to the log end 10"
    assert {number: offset for (_, number), offset in live.committed_offsets(group).items()} == {0: 10, 1: 0, 2: 0}


@pytest.mark.long
def test_new_group_is_created_from_a_file_and_from_a_group(live: Live, tmp_path: Path) -> None:
    topic = live.topic("hand-copy", 3, records=10)
    exact = {(topic, 0): OffsetToCommit(4, 0, "naïve, мета 🦦"), (topic, 1): OffsetToCommit(0, -1, "")}
    live.commit("hand-copy", exact)
    copied = live.ask("reset", "hand-copy-of-group", "--from-group", "hand-copy", "--execute")
    assert copied.outcomes() == dict.fromkeys(exact, "done")
    assert live.offsets_with_metadata("hand-copy-of-group") == exact
    exported = live.plain("reset", "hand-copy", "--all-topics", "--to-current", "--export")
    assert (exported[0], sorted(exported[1].splitlines())) == (0, [f"{topic},0,4", f"{topic},1,0"])
    file = tmp_path / "offsets.csv"
    file.write_text(exported[1])
    filed = live.ask("reset", "hand-copy-of-file", "--from-file", str(file), "--execute")
    assert filed.outcomes() == dict.fromkeys(exact, "done")
    assert live.committed_offsets("hand-copy-of-file") == {(topic, 0): 4, (topic, 1): 0}
    file.write_text(f'"hand-copy-a","{topic}",0,99\n"hand-copy-b","{topic}",1,0\n"hand-copy-b","hand-no-such",0,1\n')
    several = live.ask("reset", "--from-file", str(file), "--execute")
    assert several.code == 8
    assert live.committed_offsets("hand-copy-a") == {(topic, 0): 10}
    assert live.committed_offsets("hand-copy-b") == {(topic, 1): 0}
    [refused] = [row for row in several.rows if row["outcome"] == "refused"]
    assert refused["reason"] == "UNKNOWN_TOPIC_OR_PARTITION (3): the topic or partition does not exist"


@pytest.mark.long
def test_restore_as_of_a_time_and_before_a_run(live: Live) -> None:
    group = topic = live.topic("hand-back", 3, records=10)
    then = {(topic, 0): OffsetToCommit(4, 0, "naïve, мета 🦦"), (topic, 1): OffsetToCommit(7, -1, "x")}
    live.commit(group, then)
    catch_up(live.broker, live.lake)
    offsets = live.ask("offsets", "--group", group, options=("--config", "")).rows
    instant = max(row["log_timestamp"] for row in offsets)  # a broker with much to do appends after the commit's time
    reset = live.ask("reset", group, "--topic", topic, "--to-latest", "--execute")
    assert live.committed_offsets(group) == {(topic, 0): 10, (topic, 1): 0, (topic, 2): 0}
    undone = live.ask("restore", "--run", run_to_undo(reset), "--execute")
    assert undone.outcomes() == {(topic, 0): "done", (topic, 1): "done", (topic, 2): "done"}
    assert live.offsets_with_metadata(group) == then
    cleaned = live.ask("cleanup", group, "--execute")
    assert live.offsets_with_metadata(group) == {}
    assert live.ask("restore", "--run", run_to_undo(cleaned), "--execute").code == 0
    assert live.offsets_with_metadata(group) == then
    live.commit(group, {(topic, 0): OffsetToCommit(9), (topic, 2): OffsetToCommit(1)})
    as_of = live.ask("restore", group, "--as-of", str(instant), "--execute")
    outcomes = {(topic, 0): "done", (topic, 1): "unchanged", (topic, 2): "unchanged"}
    assert (as_of.code, as_of.outcomes()) == (0, outcomes), as_of.err
    assert live.offsets_with_metadata(group) == then | {(topic, 2): OffsetToCommit(1)}
    # What the run has set was set anew since: undoing it would take that away.
    late = live.ask("restore", "--run", run_to_undo(reset), "--execute")
    assert (late.code, {row["partition"]: row["outcome"] for row in late.rows}) == (
        8,
        {0: "refused", 1: "refused", 2: "refused"},
    )


@pytest.mark.long
def test_group_with_an_open_transaction_is_refused(live: Live) -> None:
    group = topic = live.topic("hand-held", 2)
    workload.simple_commit(live.broker.bootstrap, group, {(topic, 0): 3})
    with ExitStack() as ends:
        hanging = workload.open_transaction(live.broker.bootstrap, "hand-held", group, {(topic, 1): 4})
        ends.callback(hanging.abort)
        for arguments in (["cleanup", group], ["reset", group, "--all-topics", "--to-latest"]):
            held = live.ask(*arguments, "--execute")
            assert held.code == 8
            assert all("an open transaction of producer" in str(reason) for reason in held.reasons())
        assert live.committed_offsets(group) == {(topic, 0): 3}
    assert live.ask("cleanup", group, "--execute").code == 0
    assert not live.group_exists(group)
