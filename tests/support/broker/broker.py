"""A real Kafka broker for tests: one KRaft node in a folder of its own, with plain, SASL and TLS listeners."""

import base64
import fcntl
import os
import random
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import trustme
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from support.broker.kafka_tools import OLDER, java

PASSWORDS = {"admin": "admin-secret", "reader": "reader-secret", "stranger": "stranger-secret"}
"""Users of PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512; `admin` may do everything, `reader` what tests allow it, `stranger`
never anything."""

LISTENERS = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
START_SECONDS = 300
STOP_SECONDS = 180

_FIRST_PORT, _LAST_PORT = 20_000, 32_767  # the kernel hands out higher ones to clients, in between at any time
_reserved: set[int] = set()


class BrokerFailedError(RuntimeError):
    """A broker command failed; the message ends with the tail of its log."""


class Broker:
    """A single-node Kafka broker and controller, formatted on construction and running inside `with`.

    `overrides` are broker properties by name; they win over the rig's own. `features` are levels, each as NAME=LEVEL.
    The folder must be empty. With `process.roles` and the id of a cluster, it is a node of that one
    (`support.broker.broker_cluster`). The port of the controller is free if it is not given.
    """

    def __init__(
        self,
        folder: Path,
        overrides: Mapping[str, str] | None = None,
        version: str = OLDER,
        cluster_id: str | None = None,
        features: Sequence[str] = ("share.version=1",),
        controller_port: int | None = None,
    ) -> None:
        self.folder, self.version = folder, version
        self.data_dir = folder / "data"
        self.certificate = folder / "certificate.pem"
        self.cluster_id = cluster_id or base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._ports = dict(zip((*LISTENERS, "CONTROLLER"), free_ports(len(LISTENERS) + 1), strict=True))
        if controller_port is not None:
            self._ports["CONTROLLER"] = controller_port
        self._properties = folder / "server.properties"
        self._log = folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        key_store = _certified(folder, self.certificate)
        settings = _properties(self.data_dir, self._ports, key_store) | dict(overrides or {})
        self._roles, self._node = settings["process.roles"].split(","), int(settings["node.id"])
        if len(self._roles) == 1:
            _keep_listeners(settings, self._roles[0])
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._format(features)

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self._process is not None
        return self._process.pid

    @property
    def addresses(self) -> dict[str, str]:
        """Addresses of the listener of the broker without authentication, and of that of the controller."""
        return {"broker": self._address("PLAINTEXT"), "controller": self._address("CONTROLLER")}

    @property
    def bootstrap(self) -> str:
        """Address of the PLAINTEXT listener, where every client is a super user."""
        return self._address("PLAINTEXT")

    @property
    def sasl_bootstrap(self) -> str:
        """Address of the SASL_PLAINTEXT listener."""
        return self._address("SASL_PLAINTEXT")

    @property
    def sasl_ssl_bootstrap(self) -> str:
        """Address of the SASL_SSL listener; its certificate authority is `certificate`."""
        return self._address("SASL_SSL")

    @property
    def ssl_bootstrap(self) -> str:
        """Address of the SSL listener, where every client is a super user; its authority is `certificate`."""
        return self._address("SSL")

    def start(self) -> None:
        """Start the broker and return once it is active; a controller alone has no listener that would show it."""
        if self._process is not None:
            raise BrokerFailedError("the broker already runs")
        with self._log.open("ab") as log:
            command = java("kafka.Kafka", str(self._properties), version=self.version)
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            if "broker" in self._roles:
                self.await_active({self._node})
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut down, which flushes and closes the logs; do nothing if the broker is not running."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired as slow:
            self.kill()
            raise BrokerFailedError(f"no shutdown within {STOP_SECONDS} s\n{self._tail()}") from slow
        self._process = None

    def kill(self) -> None:
        """End the process at once, as a crash does. Nothing to do if it is not running.

        The next start waits for the dead session to end: `broker.session.timeout.ms`, 9 s unless overridden.
        """
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Stop and start again, on the same ports and data."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _address(self, listener: str) -> str:
        return f"127.0.0.1:{self._ports[listener]}"

    def _format(self, features: Sequence[str]) -> None:
        arguments = [f"--config={self._properties}", f"--cluster-id={self.cluster_id}"]
        arguments += [f"--feature={feature}" for feature in features]
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512") if "controller" in self._roles else ():
            arguments += [f"--add-scram={mechanism}=[name={user},password={PASSWORDS[user]}]" for user in PASSWORDS]
        command = java("kafka.tools.StorageTool", "format", *arguments, version=self.version)
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode != 0:
            raise BrokerFailedError(f"formatting failed\n{done.stdout.decode()}{done.stderr.decode()}")

    def await_active(self, nodes: Collection[int]) -> None:
        """Wait until the metadata of this broker contains nodes, which it omits until the controller unfences them."""
        assert self._process is not None
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 100})
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                if admin.list_topics(timeout=5).brokers.keys() >= {*nodes}:
                    return
                time.sleep(0.02)
            except KafkaException as error:
                if self._process.poll() is not None:
                    raise BrokerFailedError(f"ended with {self._process.returncode}\n{self._tail()}") from error
        raise BrokerFailedError(f"nodes {sorted(nodes)} are not active within {START_SECONDS} s\n{self._tail()}")

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-60:])


def free_ports(count: int) -> Sequence[int]:
    """Return distinct unused loopback ports below the range of ephemeral ports.

    They are reserved until this process ends: no other process of the tests gets one before it is used, or while what
    listens on it is restarted.
    """
    found: list[int] = []
    for port in random.sample(range(_FIRST_PORT, _LAST_PORT + 1), _LAST_PORT + 1 - _FIRST_PORT):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if not _reserve(port):
            continue
        found.append(port)
        if len(found) == count:
            return found
    raise BrokerFailedError(f"no {count} free ports between {_FIRST_PORT} and {_LAST_PORT}")


def _reserve(port: int) -> bool:
    """Lock the byte at the number of a port in a file that the processes of the tests share."""
    if port in _reserved:
        return False
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _reserved.add(port)
    return True


@cache
def _reservations() -> int:
    return os.open(Path(tempfile.gettempdir()) / f"offsetlake-test-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT, 0o600)


def _certified(folder: Path, authority: Path) -> Path:
    """Write the certificate of an authority, and return a PEM key store with a key and a certificate of its making."""
    issuer, store = trustme.CA(), folder / "keystore.pem"
    issuer.cert_pem.write_to_path(str(authority))
    issued = issuer.issue_cert("localhost", "127.0.0.1")
    key = load_pem_private_key(issued.private_key_pem.bytes(), password=None)
    store.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))  # all that Java reads
    with store.open("ab") as file:
        file.writelines(part.bytes() for part in issued.cert_chain_pems)
    return store


def _properties(data_dir: Path, ports: Mapping[str, int], key_store: Path) -> dict[str, str]:
    """Return the broker's properties: every internal topic on one replica, the rest as Kafka's defaults if possible."""
    addresses = {listener: f"{listener}://127.0.0.1:{port}" for listener, port in ports.items()}
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": ",".join(addresses.values()),
        "advertised.listeners": ",".join(addresses[listener] for listener in LISTENERS),
        "listener.security.protocol.map": ",".join(["CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in LISTENERS)]),
        "log.dirs": str(data_dir),
        "num.partitions": "1",
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "2",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # A share group is assigned in its second heartbeat: five seconds by default.
        "group.share.heartbeat.interval.ms": "500",
        "group.share.min.heartbeat.interval.ms": "500",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key_store),
        **_sasl_properties(),
    }


def _keep_listeners(settings: dict[str, str], role: str) -> None:
    """Remove what a node with one role must not have."""
    listeners = settings["listeners"].split(",")
    kept = [each for each in listeners if each.startswith("CONTROLLER:") == (role == "controller")]
    settings["listeners"] = ",".join(kept)
    if role == "controller":
        del settings["advertised.listeners"], settings["inter.broker.listener.name"]


def _sasl_properties() -> dict[str, str]:
    login = "org.apache.kafka.common.security"
    plain_users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    settings = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}"
        settings[f"{prefix}.plain.sasl.jaas.config"] = f"{login}.plain.PlainLoginModule required {plain_users};"
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            settings[f"{prefix}.{mechanism}.sasl.jaas.config"] = f"{login}.scram.ScramLoginModule required;"
    return settings
