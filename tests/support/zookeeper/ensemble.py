"""A real ZooKeeper for tests: one server, or an ensemble, each server in a process of its own."""

import os
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from support.broker.broker import free_ports

JARS = Path(__file__).parents[3] / ".jars" / "zookeeper"
START_SECONDS = 300
JVM_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.admin.enableServer=false")


class Ensemble:
    """Servers of ZooKeeper in a folder, which run inside `with`; with one server, standalone.

    `options` are properties of each server by name, `flags` are options of its JVM.
    """

    def __init__(
        self, folder: Path, servers: int = 1, options: dict[str, str] | None = None, flags: tuple[str, ...] = ()
    ) -> None:
        if not JARS.is_dir():
            raise FileNotFoundError(f"No jars of ZooKeeper in {JARS}: `make .jars/zookeeper/.ready` fetches them.")
        self._folder, self._flags = folder, flags
        ports = free_ports(3 * servers)
        self._ports = ports[:servers]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        settings = {"tickTime": "500", "initLimit": "60", "syncLimit": "20", "maxClientCnxns": "0", "forceSync": "no"}
        if servers > 1:
            settings |= {
                f"server.{number}": f"127.0.0.1:{ports[servers + number]}:{ports[2 * servers + number]}"
                for number in range(servers)
            }
        for number in range(servers):
            data = folder / f"data-{number}"
            data.mkdir(parents=True)
            (data / "myid").write_text(str(number))
            own = settings | (options or {}) | {"dataDir": str(data), "clientPort": str(self._ports[number])}
            own["clientPortAddress"] = "127.0.0.1"
            (folder / f"{number}.cfg").write_text("".join(f"{name}={value}\n" for name, value in own.items()))

    @property
    def hosts(self) -> str:
        """The addresses of all servers, with commas between them."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def url(self, chroot: str = "") -> str:
        """Return the address as the command line accepts it."""
        return f"zookeeper://{self.hosts}{chroot}"

    def start(self, number: int) -> None:
        """Start a server."""
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = ["java", *JVM_FLAGS, *self._flags, "-cp", f"{JARS}/*", main, str(self._folder / f"{number}.cfg")]
        with (self._folder / f"{number}.log").open("ab") as log:
            self._processes[number] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def kill(self, number: int) -> None:
        """Kill a server with SIGKILL."""
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def pause(self, number: int = 0) -> None:
        """Stop a server from responding, without closing its connections."""
        os.kill(self._processes[number].pid, signal.SIGSTOP)

    def resume(self, number: int = 0) -> None:
        """Let a paused server continue."""
        os.kill(self._processes[number].pid, signal.SIGCONT)

    def leader(self) -> int:
        """Return the number of the server that is the leader, by its log."""
        for number in self._processes:
            client = KazooClient(f"127.0.0.1:{self._ports[number]}")
            client.start(START_SECONDS)
            mode = client.command(b"srvr")
            client.stop()
            client.close()
            if "Mode: leader" in mode:
                return number
        raise AssertionError("The ensemble has no leader.")

    def __enter__(self) -> Self:
        for number in range(len(self._ports)):
            self.start(number)
        deadline = time.monotonic() + START_SECONDS
        for port in self._ports:
            while True:
                client = KazooClient(f"127.0.0.1:{port}")
                try:
                    client.start(10)
                    client.exists("/")
                    break
                except (KazooException, KazooTimeoutError):
                    if time.monotonic() > deadline:
                        raise
                finally:
                    client.stop()
                    client.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in [*self._processes]:
            self.kill(number)


def sasl_ensemble(folder: Path, user: str, password: str) -> Ensemble:
    """Return a server that also authenticates a user by SASL (DIGEST-MD5)."""
    folder.mkdir()
    jaas = folder / "jaas.conf"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    jaas.write_text(f'Server {{ {module} required user_{user}="{password}"; }};\n')
    provider = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    return Ensemble(folder, options=provider, flags=(f"-Djava.security.auth.login.config={jaas}",))


def open_client(ensemble: Ensemble, chroot: str = "") -> KazooClient:
    """Return a client with a session."""
    client = KazooClient(f"{ensemble.hosts}{chroot}", randomize_hosts=False)
    client.start(START_SECONDS)
    return client


def put_offsets(client: KazooClient, group: str, offsets: dict[tuple[str, str], bytes]) -> None:
    """Write znodes of offsets, by topic and partition, as consumers do."""
    for (topic, partition), value in offsets.items():
        path = f"/consumers/{group}/offsets/{topic}/{partition}"
        if client.exists(path):
            client.set(path, value)
        else:
            client.create(path, value, makepath=True)
