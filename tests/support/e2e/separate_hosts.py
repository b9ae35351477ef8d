"""Network namespaces that stand for separate hosts: each has its own loopback interface and one address on a bridge."""

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from support.e2e.cluster import Host

BRIDGE_ADDRESS = "10.213.7.254"  # of this process; no address of the network is reachable from other machines


def available() -> bool:
    """Check whether this process can create network namespaces."""
    return os.geteuid() == 0 and subprocess.run(["ip", "netns"], capture_output=True, check=False).returncode == 0


@contextmanager
def separate_hosts(count: int) -> Iterator[list[Host]]:
    """Create hosts that reach each other and BRIDGE_ADDRESS, but not the loopback addresses of each other."""
    name = uuid.uuid4().hex[:6]
    bridge = f"br{name}"
    with ExitStack() as created:
        _ip("link", "add", bridge, "type", "bridge")
        created.callback(_ip, "link", "del", bridge)
        _ip("address", "add", f"{BRIDGE_ADDRESS}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        hosts = [Host(f"10.213.7.{number}", f"host{number}-{name}") for number in range(1, count + 1)]
        for number, host in enumerate(hosts):
            namespace, port = str(host.namespace), f"v{number}{name}"
            _ip("netns", "add", namespace)
            created.callback(_ip, "netns", "del", namespace)
            _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _ip("link", "set", port, "master", bridge, "up")
            _ip("-n", namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
            _ip("-n", namespace, "link", "set", "eth0", "up")
            _ip("-n", namespace, "link", "set", "lo", "up")
        yield hosts


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
