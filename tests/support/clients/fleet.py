"""Real consumers of all kinds as processes, which can be killed, paused and stopped."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from support.broker.kafka_tools import compile_java, java
from support.clients.output import events

TESTS = Path(__file__).parents[2]
SOURCE = Path(__file__).parent / "java" / "RealClients.java"
STOP_SECONDS = 180
HEARTBEAT_MS = 1_000
TOPIC, RESULTS, PATTERN = "clients-records", "clients-results", "^clients-rec.*"

UNRELEASED, FENCED = "UnreleasedInstanceIdException", "FencedInstanceIdException"
RANGE = "partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor"
STICKY = "partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
CONSUMER = "group.protocol=consumer"
SHARED = (
    "auto.offset.reset=earliest",
    "metadata.max.age.ms=2000",
    "reconnect.backoff.max.ms=1000",
    "max.poll.interval.ms=30000",
)
LIBRDKAFKA = ("topic.metadata.refresh.interval.ms=2000", "enable.auto.commit=false", "log_level=0")


@dataclass(frozen=True)
class Kind:
    """A kind of consumer: its group, its library, whether it is a static member, and its properties."""

    name: str
    group: str
    library: str
    properties: Sequence[str] = ()
    is_static: bool = False
    topic: str = TOPIC


KINDS = {
    kind.name: kind
    for kind in (
        Kind("java-eager", "eager", "java", (RANGE,)),
        Kind("java-eager-static", "eager", "java", (RANGE,), is_static=True),
        Kind("librdkafka-eager", "eager", "librdkafka", ("partition.assignment.strategy=range",)),
        Kind("aiokafka", "eager", "aiokafka"),
        Kind("kafka-python", "eager", "kafka-python"),
        Kind("console", "eager", "console", (RANGE,)),
        Kind("java-cooperative", "cooperative", "java", (STICKY,)),
        Kind("java-cooperative-static", "cooperative", "java", (STICKY,), is_static=True),
        Kind(
            "librdkafka-cooperative",
            "cooperative",
            "librdkafka",
            ("partition.assignment.strategy=cooperative-sticky",),
        ),
        Kind("java-consumer", "consumer", "java", (CONSUMER,)),
        Kind("java-consumer-static", "consumer", "java", (CONSUMER,), is_static=True),
        Kind("librdkafka-consumer", "consumer", "librdkafka", (CONSUMER,)),
        Kind("java-consumer-regex", "consumer-regex", "java", (CONSUMER,), topic=PATTERN),
        Kind("librdkafka-consumer-regex", "consumer-regex", "librdkafka", (CONSUMER,), topic=PATTERN),
        Kind("java-regex", "regex", "java", (RANGE,), topic=PATTERN),
        Kind("pipeline", "pipeline", "java", (RANGE,)),
    )
}
"""All kinds by name."""


class Member:
    """A consumer process and its output, which several processes after each other append to."""

    def __init__(self, folder: Path, bootstrap: str, kind: Kind, number: int, session_ms: int) -> None:
        self.kind, self.name = kind, f"{kind.name}-{number}"
        self.output = folder / f"{self.name}.tsv"
        self.starts, self.is_paused = 0, False
        self.coordinator_was_killed = False  # since the process was started
        self.failures: list[str] = []
        self._folder, self._bootstrap, self._session_ms = folder, bootstrap, session_ms
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start a process."""
        self.starts += 1
        self.coordinator_was_killed = False
        with (self._folder / f"{self.name}.log").open("ab") as log:
            output = self.output.open("ab") if self.kind.library == "console" else log
            environment = os.environ | {"PYTHONPATH": str(TESTS)}
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=output, stderr=log, env=environment
            )

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(STOP_SECONDS)
        self._process, self.is_paused = None, False

    def pause(self) -> None:
        """Pause the process with SIGSTOP."""
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """Continue a paused process."""
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def request_stop(self) -> None:
        """Send SIGTERM."""
        self._signal(signal.SIGTERM)

    def stopped(self) -> None:
        """Wait for the end of a process that has got SIGTERM, and note an error."""
        if self._process is None:
            return
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.failures.append(f"{self.name} did not end within {STOP_SECONDS} s of SIGTERM")
            self.kill()
            return
        java_codes = {143, -signal.SIGTERM} if self.kind.library in {"java", "console"} else set()
        if code != 0 and code not in java_codes:
            self.failures.append(f"{self.name} ended with {code}")
        self._process = None

    @property
    def is_running(self) -> bool:
        """Check whether a process runs; one that has ended by itself is a failure, unless a broker ends it as well."""
        if self._process is None:
            return False
        code = self._process.poll()
        if code is not None and self.kind.is_static and self._may_end(events(self.output)[-1][1]):
            self.start()
        elif code is not None:
            self.failures.append(f"{self.name} ended by itself with {code}")
            self._process = None
        return self._process is not None

    def _may_end(self, last_event: str) -> bool:
        """Check whether a broker may refuse a static member for good, so that its client must be started again.

        A static member of the consumer protocol that was killed is refused until its session is over, which its client
        does not wait for.

        A static member of the classic protocol that joins without a member ID while the group rebalances gets a new ID
        in the reply to JoinGroup. Brokers write no record then, but only when the leader has sent the assignments:
        in `GroupMetadataManager`, `updateStaticMemberThenRebalanceOrCompleteJoin` writes one in a Stable group alone,
        `completeClassicGroupJoin` one of an Empty group alone, and `classicGroupSync` that of the generation. If the
        coordinator is killed in between, the group that it loads has the former ID for the instance ID, and
        `ClassicGroup.validateMember` fences the client that sends the new one.
        """
        if CONSUMER in self.kind.properties:
            return UNRELEASED in last_event
        return FENCED in last_event and self.coordinator_was_killed

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running and self._process is not None:
            self._process.send_signal(number)

    def _command(self) -> list[str]:
        kind = self.kind
        properties = [f"bootstrap.servers={self._bootstrap}", f"group.id={kind.group}", *SHARED, *kind.properties]
        if CONSUMER not in kind.properties:
            properties += [f"session.timeout.ms={self._session_ms}", f"heartbeat.interval.ms={HEARTBEAT_MS}"]
        if kind.is_static:
            properties.append(f"group.instance.id={self.name}")
        if kind.library == "console":
            return self._console(properties)
        if kind.library != "java":
            program = [sys.executable, "-m", "support.clients.python_clients", kind.library]
            return [*program, str(self.output), kind.topic, *properties, *LIBRDKAFKA]
        properties.append("enable.auto.commit=false")
        mode, more = "consume", [kind.topic]
        if kind.name == "pipeline":
            mode, more = "pipeline", [kind.topic, RESULTS, self.name]
            properties.append("isolation.level=read_committed")
        return java("RealClients", mode, str(self.output), *more, *properties, classes=self._folder)

    def _console(self, properties: Sequence[str]) -> list[str]:
        server = ["--bootstrap-server", self._bootstrap, "--topic", self.kind.topic, "--group", self.kind.group]
        shown = [f"--property=print.{name}=true" for name in ("timestamp", "partition", "offset")]
        settings = [f"--consumer-property={each}" for each in properties if not each.startswith("bootstrap")]
        consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        return java(consumer, *server, *shown, *settings, log_level="OFF")  # warnings would break the lines of records


MemberT = TypeVar("MemberT", bound=Member)


class Fleet(list[MemberT]):
    """The members of a run."""

    def running(self) -> list[MemberT]:
        """Return the members whose processes run, and note those that have ended by themselves."""
        return [member for member in self if member.is_running]

    def stop(self) -> list[str]:
        """End the running members with SIGTERM; return the failures of all members."""
        running = self.running()
        for member in running:
            member.request_stop()
        for member in running:
            member.stopped()
        return [text for member in self for text in member.failures]

    def kill(self) -> None:
        """End all members with SIGKILL."""
        for member in self:
            member.kill()


def compile_clients(folder: Path) -> None:
    """Compile the Java program into a folder."""
    compile_java(SOURCE, folder)
