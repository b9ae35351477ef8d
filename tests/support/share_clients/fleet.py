"""Real share consumers as processes, which can be killed, paused and stopped."""

from dataclasses import dataclass
from pathlib import Path

from support.broker.kafka_tools import NEWER, OLDER, compile_java, java
from support.clients.fleet import TOPIC, Kind, Member

CONSOLE = "console"
EXPLICIT, MIXED = "explicit", "mixed"
"""The groups: only members that release and reject some records, and others as well."""

_SOURCE = Path(__file__).parent / "java" / "ShareClients.java"
_PROPERTIES = ("reconnect.backoff.max.ms=1000", "metadata.max.age.ms=2000", "max.poll.records=100")


@dataclass(frozen=True)
class ShareKind(Kind):
    """A kind of share consumer: its version of Kafka, and its acknowledgement mode."""

    version: str = NEWER
    mode: str = "explicit"


KINDS = {
    kind.name: kind
    for kind in (
        ShareKind("java-4.1-explicit", EXPLICIT, "java", version=OLDER),
        ShareKind("java-4.2-explicit", EXPLICIT, "java"),
        ShareKind("java-4.2-limit", EXPLICIT, "java", ("share.acquire.mode=record_limit",)),
        ShareKind("java-4.1-implicit", MIXED, "java", version=OLDER, mode="implicit"),
        ShareKind("java-4.2-implicit", MIXED, "java", mode="implicit"),
        ShareKind("java-4.2-both", MIXED, "java"),
        ShareKind(CONSOLE, MIXED, CONSOLE),
    )
}
"""All kinds by name."""


class ShareMember(Member):
    """A share consumer process and its output."""

    def __init__(self, folder: Path, bootstrap: str, kind: ShareKind, number: int) -> None:
        super().__init__(folder, bootstrap, kind, number, session_ms=0)
        self._share_kind = kind

    def _command(self) -> list[str]:
        kind = self._share_kind
        if kind.library != CONSOLE:
            server = (f"bootstrap.servers={self._bootstrap}", f"group.id={kind.group}")
            arguments = (str(self.output), kind.mode, TOPIC, *server, *_PROPERTIES, *kind.properties)
            return java("ShareClients", *arguments, version=kind.version, classes=self._folder)
        shown = [f"--formatter-property=print.{name}=true" for name in ("partition", "offset", "delivery")]
        settings = [f"--command-property={each}" for each in _PROPERTIES]
        server = ("--bootstrap-server", self._bootstrap, "--topic", TOPIC, "--group", kind.group)
        command = java(
            "org.apache.kafka.tools.consumer.ConsoleShareConsumer", *server, *shown, *settings, version=NEWER
        )
        command.insert(command.index("-cp"), "-Dlog4j2.level=OFF")  # its warnings would break the lines of records
        return command


def compile_clients(folder: Path) -> None:
    """Compile the Java program into a folder."""
    compile_java(_SOURCE, folder)
