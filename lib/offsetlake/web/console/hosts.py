"""Local names in the Host header of requests."""

import re

_LOCAL_HOSTS = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]+)?")


def is_local(host: str) -> bool:
    """Check whether a Host header is a name that only this machine can have."""
    return _LOCAL_HOSTS.fullmatch(host) is not None
