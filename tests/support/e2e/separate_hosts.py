"""Network namespaces that stand for separate hosts: each has its own loopback interface and one address on a bridge."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from support.e2e.cluster import Host

_NETWORKS = range(256)


def available() -> bool:
    """Check whether this process can create network namespaces."""
    return os.geteuid() == 0 and subprocess.run(["ip", "netns"], capture_output=True, check=False).returncode == 0


@contextmanager
def separate_hosts(count: int) -> Iterator[list[Host]]:
    """Create hosts that reach each other, but not the loopback addresses of each other; the first is this process.

    Runs at the same time have different networks. What a killed run has left is removed by the next one.
    """
    with ExitStack() as created:
        number = _reserved(created)
        created.callback(_remove, number)
        bridge = f"hosts{number}"
        hosts = [Host(f"10.213.{number}.254")]  # no address of the network is reachable from other machines
        hosts += [Host(f"10.213.{number}.{host}", f"hosts{number}-{host}") for host in range(1, count)]
        _ip("link", "add", bridge, "type", "bridge")
        _ip("address", "add", f"{hosts[0].address}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for host in hosts[1:]:
            namespace = str(host.namespace)
            _ip("netns", "add", namespace)
            _ip("link", "add", namespace, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _ip("link", "set", namespace, "master", bridge, "up")
            _ip("-n", namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
            _ip("-n", namespace, "link", "set", "eth0", "up")
            _ip("-n", namespace, "link", "set", "lo", "up")
        yield hosts


def _reserved(stack: ExitStack) -> int:
    """Return the number of a free network, which no other process gets until the stack is closed or this one ends."""
    for number in _NETWORKS:
        lock = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
        with suppress(OSError):  # the address is in use
            lock.bind(f"\0offsetlake-separate-hosts-{number}")
            _remove(number)
            if f"10.213.{number}." not in _ip("address"):
                return number
    raise RuntimeError("All networks are in use")


def _remove(number: int) -> None:
    """Remove the bridge, the namespaces and their processes, of this process or of one that was killed."""
    namespaces = sorted(Path("/run/netns").glob(f"hosts{number}-*"))
    for namespace in namespaces:
        for process in _ip("netns", "pids", namespace.name).split():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        _ip("netns", "del", namespace.name)
    for link in sorted(Path("/sys/class/net").glob(f"hosts{number}*")):
        if link.name == f"hosts{number}" or link.name.startswith(f"hosts{number}-"):
            subprocess.run(["ip", "link", "del", link.name], capture_output=True, check=False)  # may end meanwhile


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout
