"""The address of an ensemble of ZooKeeper, and the settings of a connection to it; without the client library."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from offsetlake.errors import BadRequest

SCHEME = "zookeeper://"
_HOST = r"(?:[^\s:/,@\[\]]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}"
_URL = re.compile(rf"{SCHEME}(?P<hosts>{_HOST}(?:,{_HOST})*)(?P<chroot>(?:/(?!\.\.?(?:/|$))[^/]+)*)/?")

SETTINGS = (
    "digest.user", "digest.password", "sasl.mechanism", "sasl.service", "sasl.principal", "sasl.username",
    "sasl.password", "tls.ca", "tls.certificate", "tls.key",
)  # fmt: skip
"""The names of the settings of a connection.

Those of `digest` authenticate with the scheme `digest`, those of `sasl` as kazoo does (GSSAPI or DIGEST-MD5), and those
of `tls` are paths of PEM files.
"""


@dataclass(frozen=True, slots=True)
class ZooKeeperAddress:
    """The servers of an ensemble, as HOST:PORT with commas between them, and the chroot, empty for none."""

    hosts: str
    chroot: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, url: str, settings: Mapping[str, str]) -> Self:
        """Parse `zookeeper://HOST:PORT[,HOST:PORT...][/chroot]`; raise BadRequest for anything else.

        Args:
            url: The URL, without credentials.
            settings: Values of SETTINGS.
        """
        match = _URL.fullmatch(url)
        if match is None:
            shown = "the address" if "@" in url else repr(url)  # what is before @ may be a password
            raise BadRequest(
                f"Invalid address of ZooKeeper, {shown}: expected zookeeper://HOST:PORT[,HOST:PORT...][/chroot]."
            )
        return cls(match["hosts"], match["chroot"], settings)

    def __str__(self) -> str:
        """Return the URL."""
        return f"{SCHEME}{self.hosts}{self.chroot}"
