"""A run of real share consumers over a serving process that is killed, with members that are killed and paused."""

import itertools
import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from support.broker.broker import Broker
from support.broker.kafka_tools import NEWER, OLDEST, java
from support.broker.workload import create_topic
from support.clients.fleet import TOPIC, Fleet
from support.clients.records import PARTITIONS, Records
from support.clients.schedule import Schedule
from support.e2e.in_process import InProcess
from support.e2e.lakes import cycle
from support.lakes import new_lake
from support.serve.kio_requests import ask
from support.serve.sharing import Sharing
from support.share_clients.evidence import Consumed, wrong_finally, wrong_tables
from support.share_clients.fleet import CONSOLE, KINDS, ShareMember, compile_clients
from support.share_clients.results import SharePlan, ShareResults
from support.share_clients.state_log import StateLog

END_SECONDS = 300
MIN_SERVING_SECONDS = 3
"""How long the process serves before it is killed again: members must be able to read in between."""

SESSION_MS = 5_000
"""How long the partitions of a member that was killed remain assigned to it."""

_DESCRIBE_GROUPS = 77
_TOOL = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"


class ShareRun:
    """One run."""

    def __init__(self, folder: Path, plan: SharePlan, report: Callable[[str], None]) -> None:
        self._folder, self._plan, self._report = folder, plan, report
        self._random = random.Random(plan.seed)
        (folder / "broker").mkdir(parents=True)
        features = () if plan.cluster_version == OLDEST else ("share.version=0",)
        self._broker = Broker(folder / "broker", version=plan.cluster_version, features=features)
        timeouts = {"share_record_lock_duration_ms": plan.lock_ms, "share_session_timeout_ms": SESSION_MS}
        self._serving = Sharing(folder, self._broker, **timeouts)
        self._members = Fleet[ShareMember]()
        self._schedule = Schedule()
        self._copies: list[tuple[int, Path]] = []
        self._served_since_ms = 0
        self.results = ShareResults(plan)

    def run(self) -> ShareResults:
        """Run all of the plan, and return what it has shown."""
        classes = self._folder / "clients"
        classes.mkdir()
        compile_clients(classes)
        with self._broker, ExitStack() as stack:
            create_topic(self._broker.bootstrap, TOPIC, PARTITIONS)
            self._start_serving()
            stack.callback(self._kill_process)
            stack.callback(self._members.kill)
            for name in self._plan.kinds:
                number = sum(member.kind.name == name for member in self._members)
                self._members.append(ShareMember(classes, self._serving.share, KINDS[name], number))
                self._members[-1].start()
            self._until_joined()
            started = time.monotonic()
            self._produce_and_disturb()
            self._until_completed()
            self.results.seconds = time.monotonic() - started
            self._look()
            self.results.wrong += self._members.stop()
            self._serving.stop()
            self._copy()
        self._compare()
        return self.results

    def _start_serving(self) -> None:
        self._serving = self._serving.again()
        self._serving.__enter__()
        self._served_since_ms = _now_ms()

    def _until_joined(self) -> None:
        sizes = Counter(member.kind.group for member in self._members)
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            self._members.running()
            values = ask(self._serving.share, _DESCRIBE_GROUPS, 1, group_ids=[*sizes])
            if all(len(group["members"]) == sizes[group["group_id"]] for group in values["groups"]):
                return
            time.sleep(0.5)
        raise AssertionError(f"The members did not join within {END_SECONDS} s")

    def _produce_and_disturb(self) -> None:
        plan, started = self._plan, time.monotonic()
        records = Records(self._broker.bootstrap, plan.records, plan.seconds)
        records.start()
        self._plan_evenly([self._kill_serving] * plan.kills)
        disturb = (self._kill_member, self._pause_member)
        self._plan_evenly([disturb[number % 2] for number in range(plan.member_events)])
        self._plan_evenly([self._look] * (plan.kills // 5))
        self._schedule.execute(self._members.running)
        records.join()
        self.results.ends = dict(sorted(records.ends.items()))
        self.results.wrong += records.failures
        self._report(f"produced {plan.records} records in {time.monotonic() - started:.0f} s")

    def _plan_evenly(self, actions: list[Callable[[], None]]) -> None:
        for number, action in enumerate(actions):
            self._schedule.later(self._plan.seconds * (number + self._random.uniform(0.2, 0.8)) / len(actions), action)

    def _kill_serving(self) -> None:
        killed_ms = _now_ms()
        if (left := MIN_SERVING_SECONDS - (killed_ms - self._served_since_ms) / 1000) > 0:
            self._schedule.later(left, self._kill_serving)
            return
        self._serving.kill()
        if len(self.results.outages) == self._plan.kills // 2:
            self._copy(killed_ms)
        self._note("killed the process")
        self._check_log()
        self._start_serving()
        self.results.outages.append((killed_ms, self._served_since_ms))

    def _kill_member(self) -> None:
        """Kill a member whose lines are complete; those of the console consumer are written after it reads on."""
        member = self._any_member(lambda each: each.kind.name != CONSOLE)
        member.kill()
        self._note(f"killed {member.name}")
        self._schedule.later(1, member.start)

    def _pause_member(self) -> None:
        """Pause a member until its lock has expired."""
        member = self._any_member(lambda _: True)
        member.pause()
        self._note(f"paused {member.name}")
        self._schedule.later(1 + self._plan.lock_ms / 1000, member.resume)

    def _any_member(self, accepts: Callable[[ShareMember], bool]) -> ShareMember:
        running = [member for member in self._members.running() if not member.is_paused and accepts(member)]
        return self._random.choice(running)

    def _look(self) -> None:
        """Run kafka-share-groups; while the process is restarted, it may fail."""
        for options in (("--list",), ("--describe", "--all-groups"), ("--describe", "--all-groups", "--members")):
            command = java(_TOOL, "--bootstrap-server", self._serving.share, *options, version=NEWER)
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            is_complete = all(group in done.stdout for group in self._plan.groups)
            self.results.tools["succeeded" if done.returncode == 0 and is_complete else "failed"] += 1

    def _note(self, text: str) -> None:
        self.results.events[text.split(maxsplit=1)[0]] += 1
        self._report(text)

    def _until_completed(self) -> None:
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            self._members.running()
            log = StateLog(self._folder / "log")
            open_records = {
                (group, partition): end - log.completed(group, partition)
                for group, (partition, end) in itertools.product(self._plan.groups, self.results.ends.items())
            }
            if not any(open_records.values()):
                return
            self._report(f"{sum(open_records.values())} records are open")
            time.sleep(1)
        self.results.wrong.append(f"Not all records were completed within {END_SECONDS} s: {open_records}")

    def _kill_process(self) -> None:
        self._serving.kill()

    def _check_log(self) -> None:
        self.results.wrong += [line for line in self._serving.said if "Traceback" in line or "rror" in line]

    def _copy(self, killed_ms: int | None = None) -> None:
        """Copy the log while the process does not run."""
        copy = self._folder / f"log-{len(self._copies)}"
        shutil.copytree(self._folder / "log", copy, ignore=shutil.ignore_patterns("*.sock"))
        self._copies.append((killed_ms or _now_ms(), copy))

    def _compare(self) -> None:
        results = self.results
        self._check_log()
        for group in self._plan.groups:
            consumed = results.consumed[group] = Consumed()
            for member in self._members:
                if member.kind.group == group:
                    consumed.add(member.name, member.output, self._plan.lock_ms)
        for killed_ms, copy in self._copies:
            log, rows = StateLog(copy), _tables(copy)
            results.compared += len(rows)
            for group, partition in itertools.product(self._plan.groups, results.ends):
                key, histories = (group, partition), log.histories[group, partition]
                results.wrong += wrong_tables(rows, key, histories, results.consumed[group], killed_ms)
        results.log = log
        for group, (partition, end) in itertools.product(self._plan.groups, results.ends.items()):
            histories = log.histories[group, partition]
            results.wrong += wrong_finally(results.consumed[group], partition, end, histories, results.outages)
            row = rows.get((group, partition), {})
            if sum(row.get(name) or 0 for name in ("start_offset", "delivery_complete_count")) != end:
                results.wrong.append(f"The tables contain open records of {group}, {partition}: {row}")


def _tables(log: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Read a log into tables; return the share partitions that `offsetlake share` shows, with their batches."""
    lake = log.with_name(f"{log.name}-lake")
    cycle(InProcess(), new_lake(lake), log)
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for options in ((), ("--batches",)):
        command = [sys.executable, "-m", "offsetlake.cli", "share", "--lake", lake, "--format", "json", *options]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        for row in map(json.loads, done.stdout.splitlines()):
            key = row["group_id"], row["partition"]
            if options:
                found[key]["batches"].append(row)
            else:
                found[key] = row | {"batches": []}
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
