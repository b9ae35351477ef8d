"""ACLs: a TOML file that an operator writes, with the permissions of principals on groups and topics.

    [[acl]]
    principal = "User:billing"     # as in Kafka; "*" matches every principal
    group = "billing-*"            # * ? [abc] as in a shell
    permissions = ["read", "commit"]    # and "admin": delete groups and offsets

    [[acl]]
    principal = "User:billing"
    topic = "orders-*"             # at the listener for share consumers; a group or a topic, not both
    permissions = ["read"]         # the only one on topics

An operation that no entry permits is denied. No permission implies another one.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import translate
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from offsetlake.errors import BadRequest
from offsetlake.util.patterns import pattern_problem
from offsetlake.util.text_files import as_utf8

READ, COMMIT, ADMIN = 1, 2, 4
PERMISSIONS = {"read": READ, "commit": COMMIT, "admin": ADMIN}
READ_TOPIC = 8
"""The only permission on topics, as a bit that no permission on groups has."""

ANY_PERMISSION = READ | COMMIT | ADMIN
ANY_PRINCIPAL, ANY_GROUP = "*", "*"
ANONYMOUS = "User:ANONYMOUS"
"""The principal of clients that do not authenticate, as in Kafka."""

MAX_CACHED_GROUPS = 10_000
"""Maximum number of groups whose permissions are cached for one principal."""

MAX_CACHED_GROUP_BYTES = 255
"""Maximum length of a cached group name; a principal without permissions can fill the cache with names."""

MAX_CACHED_PRINCIPALS = 100
"""The most recent principals, which are kept although they have no connection: HTTP connections are short-lived."""

_KEYS = ("principal", "group", "topic", "permissions")


class Grant(NamedTuple):
    """The permissions, as bits, of one principal on the groups, or on the topics, that match a pattern."""

    principal: str
    pattern: str
    permissions: int
    is_of_topics: bool = False


class Access:
    """The permissions of one principal; the result for each name is cached until the ACL changes."""

    __slots__ = ("__weakref__", "_cached", "_cached_topics", "_denied", "_grants", "_topics")

    def __init__(self, grants: list[Grant]) -> None:
        self._cached: dict[bytes, int] = {}
        self._cached_topics: dict[bytes, bool] = {}
        self._denied: set[tuple[int, bytes]] = set()
        self.change(grants)

    def change(self, grants: list[Grant]) -> None:
        """Replace the grants."""
        self._grants = [
            (re.compile(translate(grant.pattern)).match, grant.pattern, grant.permissions)
            for grant in grants
            if not grant.is_of_topics
        ]
        self._topics = [re.compile(translate(grant.pattern)).match for grant in grants if grant.is_of_topics]
        self._cached.clear()
        self._cached_topics.clear()
        self._denied.clear()

    def may(self, permission: int, group: bytes) -> bool:
        """Check whether the principal has one of the permissions, given as bits, on a group."""
        permissions = self._cached.get(group)
        if permissions is None:
            permissions = self._permissions(group)
            if len(group) <= MAX_CACHED_GROUP_BYTES:
                if len(self._cached) >= MAX_CACHED_GROUPS:
                    self._cached.clear()
                self._cached[group] = permissions
        return permissions & permission != 0

    def sees(self, group: bytes) -> bool:
        """Check whether the principal may read a group, without caching: for lists of many groups."""
        return self._permissions(group) & READ != 0

    def sees_all(self) -> bool:
        """Check whether the principal may read every group."""
        return any(group == ANY_GROUP and permissions & READ for _, group, permissions in self._grants)

    def may_read_topic(self, topic: bytes) -> bool:
        """Check whether the principal may read and describe a topic, where topics have permissions."""
        readable = self._cached_topics.get(topic)
        if readable is None:
            name = topic.decode(errors="replace")
            readable = any(matches(name) for matches in self._topics)
            if len(topic) <= MAX_CACHED_GROUP_BYTES:
                if len(self._cached_topics) >= MAX_CACHED_GROUPS:
                    self._cached_topics.clear()
                self._cached_topics[topic] = readable
        return readable

    def may_read_log(self) -> bool:
        """Check whether the principal may read the commit log itself, which contains all groups."""
        return any(group == ANY_GROUP and permissions & (READ | ADMIN) for _, group, permissions in self._grants)

    def may_list_topic(self, _topic: str) -> bool:
        """Return whether the principal may learn of a topic that it does not name: only if it may read all groups."""
        return self.may_read_log()

    def may_act_as_broker(self) -> bool:
        """Check whether the principal may send the requests of brokers: it administers all groups."""
        return any(group == ANY_GROUP and permissions & ADMIN for _, group, permissions in self._grants)

    def is_first_refusal(self, permission: int, name: bytes) -> bool:
        """Record a denied operation; return whether it is the first of its kind since the ACL changed.

        Names that agree in their first MAX_CACHED_GROUP_BYTES count as one, as a log line shows no more of them.
        """
        if len(self._denied) >= MAX_CACHED_GROUPS:
            self._denied.clear()
        denied = permission, name[:MAX_CACHED_GROUP_BYTES]
        known = denied in self._denied
        self._denied.add(denied)
        return not known

    def _permissions(self, group: bytes) -> int:
        name, permissions = group.decode(errors="replace"), 0
        for matches, _, granted in self._grants:
            if matches(name):
                permissions |= granted
        return permissions


class _AllPermissions(Access):
    """The permissions of every principal where no ACL file is configured."""

    __slots__ = ()

    def may(self, permission: int, group: bytes) -> bool:
        return True

    def sees(self, group: bytes) -> bool:
        return True

    def sees_all(self) -> bool:
        return True

    def may_read_topic(self, topic: bytes) -> bool:
        return True

    def may_read_log(self) -> bool:
        return True

    def may_act_as_broker(self) -> bool:
        return True


ALL_PERMISSIONS: Access = _AllPermissions([])


class Acl:
    """The permissions in an ACL file; when it is read again, they change for connected clients too."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._grants: list[Grant] = []
        self._known: WeakValueDictionary[str, Access] = WeakValueDictionary()
        self._recent: dict[str, Access] = {}
        self.read()

    def read(self) -> None:
        """Read the file; raise BadRequest with all of its errors, in which case the permissions do not change."""
        grants, errors = _read(self._path)
        if errors:
            raise BadRequest("; ".join(errors))
        self._grants = grants
        for principal, access in self._known.items():
            access.change(self._grants_of(principal))

    def access(self, principal: str) -> Access:
        """Return the permissions of a principal: the same object for all of its connections."""
        access = self._known.get(principal)
        if access is None:
            access = self._known[principal] = Access(self._grants_of(principal))
        self._recent.pop(principal, None)
        self._recent[principal] = access
        if len(self._recent) > MAX_CACHED_PRINCIPALS:
            del self._recent[next(iter(self._recent))]
        return access

    def _grants_of(self, principal: str) -> list[Grant]:
        return [grant for grant in self._grants if grant.principal in {principal, ANY_PRINCIPAL}]


def problems(path: Path) -> list[str]:
    """Return all errors in an ACL file."""
    return _read(path)[1]


def _read(path: Path) -> tuple[list[Grant], list[str]]:
    try:
        data = tomllib.loads(as_utf8(path.read_bytes()).decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        return [], [f"Cannot read ACL file {path}: {error}"]
    entries = data.pop("acl", [])
    errors = [f"ACL file {path}: unknown key {key!r}; write one [[acl]] table for each entry" for key in data]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return [], [*errors, f"ACL file {path}: 'acl' is not an array; write one [[acl]] table for each entry"]
    for number, entry in enumerate(entries, start=1):
        errors += [f"ACL file {path}, [[acl]] entry {number}: {error}" for error in _errors(entry)]
    return ([] if errors else [_grant(entry) for entry in entries]), errors


def _grant(entry: Mapping[str, Any]) -> Grant:
    pattern, permissions = entry.get("group", entry.get("topic")), {PERMISSIONS[name] for name in entry["permissions"]}
    return Grant(entry["principal"], pattern, sum(permissions), "topic" in entry)


def _errors(entry: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"unknown key {key!r}; expected {', '.join(_KEYS)}" for key in entry if key not in _KEYS)
    principal, permissions = entry.get("principal"), entry.get("permissions")
    if not isinstance(principal, str) or not (principal == ANY_PRINCIPAL or principal.startswith("User:")):
        yield f'invalid principal {principal!r}; expected "User:NAME", or "*" for every principal'
    resource = "topic" if "topic" in entry else "group"
    if {"group", "topic"} <= entry.keys():
        yield "both a group and a topic; write one entry for each"
    elif problem := pattern_problem(entry.get(resource)):
        yield f"{resource}: {problem}"
    valid = [*PERMISSIONS] if resource == "group" else ["read"]
    names = ", ".join(valid)
    if not isinstance(permissions, list) or not permissions or not all(isinstance(name, str) for name in permissions):
        yield f'invalid permissions {permissions!r}; expected a list of {names}, such as ["read"]'
    else:
        yield from (f"unknown permission {name!r}; expected {names}" for name in permissions if name not in valid)
