"""A run of real consumers over a serving process that is killed, with members that are killed, paused and added."""

import itertools
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient, NewPartitions

from support.broker.kafka_tools import group_command, java
from support.broker.workload import create_topic, simple_commit
from support.clients.evidence import moved_back
from support.clients.fleet import KINDS, RESULTS, TOPIC, Fleet, Member, compile_clients
from support.clients.output import Batch, batches
from support.clients.records import PARTITIONS, RESULT_PARTITIONS, Records, results_of
from support.clients.results import Plan, Results
from support.clients.schedule import Schedule
from support.serve.adopted import Adopted, committed

SECONDS, END_SECONDS = 120, 300
MIN_SERVING_SECONDS = 8
"""How long the process serves before it is killed again: groups must be able to finish a rebalance in between."""

MAX_PARTITIONS = 16
STABLE = ConsumerGroupState.STABLE
FEATURES = "org.apache.kafka.tools.FeatureCommand"


class Run:
    """One run."""

    def __init__(self, folder: Path, plan: Plan, report: Callable[[str], None]) -> None:
        self._folder, self._plan, self._report = folder, plan, report
        self._random = random.Random(plan.seed)
        self._adopted = Adopted(folder / "cluster")
        self._bootstrap = self._adopted.broker.bootstrap
        self._serving, self._served_since_ms = self._adopted.serving(), 0
        self._members = Fleet[Member]()
        self._schedule = Schedule()
        self.results = Results(plan)

    def run(self) -> Results:
        """Run all of the plan, and return what it has shown."""
        classes = self._folder / "clients"
        classes.mkdir()
        compile_clients(classes)
        with self._adopted.broker, ExitStack() as stack:
            self._adopt()
            self._start_serving()
            stack.callback(self._stop_serving)
            stack.callback(self._members.kill)
            for name in self._plan.kinds:
                self._add(name)
            self._until_joined()
            started = time.monotonic()
            self._produce_and_disturb()
            self._until_read()
            self.results.seconds = time.monotonic() - started
            self.results.failures += self._members.stop()
            self._look()
            if "pipeline" in self.results.groups:
                self.results.results = Counter(results_of(self._bootstrap))
        self._collect()
        return self.results

    def _adopt(self) -> None:
        for topic, partitions in ((TOPIC, PARTITIONS), (RESULTS, RESULT_PARTITIONS)):
            create_topic(self._bootstrap, topic, partitions)
        simple_commit(self._bootstrap, "before", {(TOPIC, 0): 0})
        code, output = self._adopted.adopt("--execute")
        assert code == 0, output

    def _start_serving(self) -> None:
        coordinator = {"consumer_session_timeout_ms": self._plan.session_ms, "consumer_heartbeat_interval_ms": 1_000}
        self._serving = self._adopted.serving(coordinator=coordinator, http=None)
        self._serving.__enter__()
        self._served_since_ms = _now_ms()

    def _stop_serving(self) -> None:
        self._serving.stop()

    def _until_joined(self) -> None:
        sizes = Counter(member.kind.group for member in self._members)
        admin, deadline = AdminClient({"bootstrap.servers": self._bootstrap}), time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            described = admin.describe_consumer_groups(self.results.groups, request_timeout=SECONDS)
            groups = [described[group].result() for group in self.results.groups]
            if all(len(group.members) == sizes[group.group_id] and group.state == STABLE for group in groups):
                return
            time.sleep(0.5)
        raise AssertionError(f"The members did not join within {END_SECONDS} s")

    def _produce_and_disturb(self) -> None:
        records, started = Records(self._bootstrap, self._plan.records, self._plan.seconds), time.monotonic()
        records.start()
        self._plan_events(records, started)
        self._schedule.execute(self._members.running)
        records.join()
        self.results.ends = dict(sorted(records.ends.items()))
        self.results.failures += records.failures

    def _plan_events(self, records: Records, started: float) -> None:
        plan = self._plan
        for number in range(plan.kills):
            within = self._random.uniform(0.2, 0.8)
            self._schedule.at(started + plan.seconds * (number + within) / plan.kills, self._kill_serving)
        actions = itertools.cycle((self._kill_member, self._pause_briefly, self._pause_long, self._add_member))
        for number in range(plan.member_events):
            within = self._random.uniform(0.2, 0.8)
            self._schedule.at(started + plan.seconds * (number + within) / plan.member_events, next(actions))
        for number, partitions in enumerate((PARTITIONS + 2, MAX_PARTITIONS), 1):
            due = started + plan.seconds * number / 3
            self._schedule.at(due, lambda partitions=partitions: self._add_partitions(records, partitions))  # type: ignore[misc]
        if "pipeline" in plan.kinds:
            self._schedule.at(started + plan.seconds / 2, self._downgrade_transactions)
        for number in range(1, 6):
            self._schedule.at(started + plan.seconds * number / 6, self._look)

    def _kill_serving(self) -> None:
        killed_ms = _now_ms()
        if (left := MIN_SERVING_SECONDS - (killed_ms - self._served_since_ms) / 1000) > 0:
            self._schedule.later(left, self._kill_serving)
            return
        self._serving.kill()
        for member in self._members:
            member.coordinator_was_killed = True
        self._note("killed the process")
        self._check_log()
        self._start_serving()
        self.results.outages.append((killed_ms, self._served_since_ms))

    def _add(self, name: str) -> Member:
        number = sum(member.kind.name == name for member in self._members)
        member = Member(self._folder / "clients", self._bootstrap, KINDS[name], number, self._plan.session_ms)
        self._members.append(member)
        member.start()
        return member

    def _add_member(self) -> None:
        self._note(f"added {self._add(self._random.choice(sorted(set(self._plan.kinds)))).name}")

    def _any_member(self) -> Member:
        return self._random.choice([member for member in self._members.running() if not member.is_paused])

    def _kill_member(self) -> None:
        member = self._any_member()
        member.kill()
        self._note(f"killed {member.name}")
        self._schedule.later(self._random.choice((1, 2 + self._plan.session_ms / 1000)), member.start)

    def _pause_briefly(self) -> None:
        self._pause(2)

    def _pause_long(self) -> None:
        self._pause(5 + self._plan.session_ms / 1000)

    def _pause(self, seconds: float) -> None:
        member = self._any_member()
        member.pause()
        self._note(f"paused {member.name} for {seconds:.0f} s")
        self._schedule.later(seconds, member.resume)

    def _add_partitions(self, records: Records, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        admin.create_partitions([NewPartitions(TOPIC, partitions)])[TOPIC].result(SECONDS)
        records.partitions = partitions
        self._note(f"added partitions up to {partitions}")

    def _downgrade_transactions(self) -> None:
        change = ("downgrade", "--feature", "transaction.version=1")
        subprocess.run(java(FEATURES, "--bootstrap-server", self._bootstrap, *change), check=True, capture_output=True)
        self._note("downgraded transactions to version 1")

    def _look(self) -> None:
        """Run Kafka's group tool; while the process is restarted, it may fail."""
        for options in (
            ("--list", "--state"),
            ("--describe", "--all-groups"),
            ("--describe", "--all-groups", "--members"),
        ):
            done = group_command(self._bootstrap, *options)
            self.results.tools["succeeded" if done.code == 0 and "Error" not in done.err else "failed"] += 1

    def _note(self, text: str) -> None:
        self.results.events[text.split(maxsplit=1)[0]] += 1
        self._report(text)

    def _until_read(self) -> None:
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            self._members.running()
            self._read()
            if self._is_committed() and not any(self.results.missing(group) for group in self.results.groups):
                return
            time.sleep(2)
        self.results.failures.append(f"Not all records were read and committed within {END_SECONDS} s of the last one")

    def _is_committed(self) -> bool:
        found = committed(self._bootstrap, self.results.groups)
        self.results.committed = {
            group: {partition: offset for (_, partition), offset in sorted(offsets.items()) if offset > 0}
            for group, offsets in found.items()
        }
        return all(offsets == self.results.ends for offsets in self.results.committed.values())

    def _read(self) -> None:
        read: dict[str, list[Batch]] = {group: [] for group in self.results.groups}
        for member in self._members:
            read[member.kind.group] += batches(member.output) if member.output.exists() else []
        self.results.read = read

    def _check_log(self) -> None:
        self.results.failures += [line for line in self._serving.said if "Traceback" in line or "Error" in line]

    def _collect(self) -> None:
        self._check_log()
        self._read()
        self.results.commits, self.results.moved_back = moved_back(self._adopted.log)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
