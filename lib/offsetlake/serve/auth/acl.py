"""Who may do what to which groups: a TOML file that a person writes. What it does not give is denied.

    [[rights]]
    principal = "User:billing"     # as Kafka has it; "*" for everybody
    group = "billing-*"            # * ? [abc] as in a shell
    rights = ["read", "commit"]    # and admin: delete groups and offsets

Each right is one of its own: none brings another one.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import translate
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from offsetlake.errors import BadRequest
from offsetlake.rules.patterns import pattern_problem

READ, COMMIT, ADMIN = 1, 2, 4
NAMES = {"read": READ, "commit": COMMIT, "admin": ADMIN}
ANY_RIGHT = READ | COMMIT | ADMIN
EVERYBODY, EVERY_GROUP = "*", "*"
KEPT = 10_000  # groups a principal, whose rights are kept in mind
LONGEST_KEPT = 255  # bytes of their names: whoever has no rights can fill them all
HELD = 100  # principals that came last: by HTTP nobody stays connected
_KEYS = ("principal", "group", "rights")


class Grant(NamedTuple):
    """Rights, as bits, that one principal has on groups like the pattern."""

    principal: str
    group: str
    rights: int


class Access:
    """What one principal may do; each group is looked up once, until the rights change."""

    __slots__ = ("__weakref__", "_grants", "_kept", "_refused")

    def __init__(self, grants: list[Grant]) -> None:
        self._kept: dict[bytes, int] = {}
        self._refused: set[tuple[int, bytes]] = set()
        self.change(grants)

    def change(self, grants: list[Grant]) -> None:
        """Take other rights from now on."""
        self._grants = [(re.compile(translate(of.group)).match, of.group, of.rights) for of in grants]
        self._kept.clear()
        self._refused.clear()

    def may(self, right: int, group: bytes) -> bool:
        """Tell whether it may do to a group one of the things that `right` stands for."""
        rights = self._kept.get(group)
        if rights is None:
            rights = self._of(group)
            if len(group) <= LONGEST_KEPT:
                if len(self._kept) >= KEPT:
                    self._kept.clear()
                self._kept[group] = rights
        return rights & right != 0

    def sees(self, group: bytes) -> bool:
        """Tell whether it may read a group, one of very many: nothing is kept in mind."""
        return self._of(group) & READ != 0

    def may_read_log(self) -> bool:
        """Tell whether it may read the commit log itself, in which all groups are."""
        return any(group == EVERY_GROUP and rights & (READ | ADMIN) for _, group, rights in self._grants)

    def is_first_refusal(self, right: int, group: bytes) -> bool:
        """Tell whether this is refused for the first time since the rights changed: once is enough for a log.

        Long names that begin alike are one: a line shows no more of them.
        """
        if len(self._refused) >= KEPT:
            self._refused.clear()
        refused = right, group[:LONGEST_KEPT]
        known = refused in self._refused
        self._refused.add(refused)
        return not known

    def _of(self, group: bytes) -> int:
        name, rights = group.decode(errors="replace"), 0
        for fits, _, of in self._grants:
            if fits(name):
                rights |= of
        return rights


class _Everything(Access):
    """Where nobody gave rights, there are none to look up."""

    __slots__ = ()

    def may(self, right: int, group: bytes) -> bool:
        return True

    def sees(self, group: bytes) -> bool:
        return True

    def may_read_log(self) -> bool:
        return True


EVERYTHING: Access = _Everything([])


class Acl:
    """The rights of all, as a file says; `read` again, they hold for those who are connected already."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._grants: list[Grant] = []
        self._known: WeakValueDictionary[str, Access] = WeakValueDictionary()
        self._held: dict[str, Access] = {}
        self.read()

    def read(self) -> None:
        """Read the file; BadRequest that names all that is wrong with it, and then nothing changes."""
        grants, wrong = _read(self._path)
        if wrong:
            raise BadRequest("; ".join(wrong))
        self._grants = grants
        for principal, access in self._known.items():
            access.change(self._of(principal))

    def access(self, principal: str) -> Access:
        """Give what a principal may do: one and the same for all of its connections."""
        access = self._known.get(principal)
        if access is None:
            access = self._known[principal] = Access(self._of(principal))
        self._held.pop(principal, None)
        self._held[principal] = access
        if len(self._held) > HELD:
            del self._held[next(iter(self._held))]
        return access

    def _of(self, principal: str) -> list[Grant]:
        return [grant for grant in self._grants if grant.principal in {principal, EVERYBODY}]


def problems(path: Path) -> list[str]:
    """Say all that is wrong with a file of rights."""
    return _read(path)[1]


def _read(path: Path) -> tuple[list[Grant], list[str]]:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        return [], [f"rights {path} cannot be read: {error}"]
    entries = data.pop("rights", [])
    wrong = [f"rights {path}: unknown {key}; write [[rights]], once for each" for key in data]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return [], [*wrong, f"rights {path}: write [[rights]], once for each"]
    for number, entry in enumerate(entries, start=1):
        wrong += [f"rights {path}, [[rights]] number {number}: {what}" for what in _wrong(entry)]
    if wrong:
        return [], wrong
    return [Grant(of["principal"], of["group"], sum({NAMES[name] for name in of["rights"]})) for of in entries], []


def _wrong(entry: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"unknown {key}; known are {', '.join(_KEYS)}" for key in entry if key not in _KEYS)
    principal, rights = entry.get("principal"), entry.get("rights")
    if not isinstance(principal, str) or not (principal == EVERYBODY or principal.startswith("User:")):
        yield f'principal is {principal!r}: write "User:NAME", or "*" for everybody'
    if problem := pattern_problem(entry.get("group")):
        yield f"group: {problem}"
    if not isinstance(rights, list) or not rights or not all(isinstance(name, str) for name in rights):
        yield f'rights is {rights!r}: write some of {", ".join(NAMES)}, as in ["read", "commit"]'
    else:
        yield from (
            f"the right {name!r} is not known; known are {', '.join(NAMES)}" for name in rights if name not in NAMES
        )
