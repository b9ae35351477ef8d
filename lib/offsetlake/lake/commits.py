"""Commits of other programs to a table: read from its Delta log, and classified by whether they changed rows.

A commit of ours has a transaction identifier whose application starts with `offsetlake-`. Among the others, a commit
whose added and removed files have `dataChange` false keeps the rows (OPTIMIZE, REORG, clustering). Any other commit
that adds or removes files changes rows, unless a later commit (RESTORE) restores exactly the former files.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError

from offsetlake.util.times import to_iso

_OURS = "offsetlake-"
_REBUILT, _EVERYTHING = "offsetlake.rebuilt", "all"

File = tuple[str, str]
"""A data file as Delta identifies it: by its path and its deletion vector (empty if it has none)."""


def app_id(job: str) -> str:
    """Return the application identifier under which the Delta log keeps the newest run of a job."""
    return f"{_OURS}{job}"


def ours(job: str, number: int) -> CommitProperties:
    """Return the properties that mark a commit as ours."""
    return CommitProperties(app_transactions=[Transaction(app_id(job), number)])


def rebuilt(job: str, number: int, log_partitions: list[int] | None) -> CommitProperties:
    """Return the properties that mark a commit that rebuilt a table, or some of its log partitions."""
    named = _EVERYTHING if log_partitions is None else ",".join(map(str, log_partitions))
    return CommitProperties(app_transactions=[Transaction(app_id(job), number)], custom_metadata={_REBUILT: named})


@dataclass(slots=True)
class Commit:
    """A commit, as far as its classification needs it.

    | field | description |
    |-------|-------------|
    | added, removed | its data files; `added` with their statistics, as JSON |
    | keeps_rows | whether all its files are marked as no change of data |
    | alters | whether it changes the schema, the properties or the protocol of the table |
    | rebuilt | the log partitions it rebuilt; empty means all |
    """

    table: str
    version: int
    info: dict[str, Any] = field(default_factory=dict)
    added: dict[File, str | None] = field(default_factory=dict)
    removed: set[File] = field(default_factory=set)
    is_ours: bool = False
    keeps_rows: bool = True
    alters: bool = False
    rebuilt: frozenset[int] | None = None

    def __str__(self) -> str:
        """Return the version of the commit, its operation, who made it and when."""
        engine = self.info.get("engineInfo", "an unknown engine")
        user = f", user {self.info['userName']}" if self.info.get("userName") else ""
        when = f", {to_iso(self.info['timestamp'])}" if "timestamp" in self.info else ""
        return f"version {self.version} ({self.info.get('operation', 'unknown operation')} by {engine}{user}{when})"


class _Files:
    """The files that others added and removed, compared to those before: equal differences mean equal rows."""

    def __init__(self) -> None:
        self._before: dict[File, bool] = {}
        self._now: dict[File, bool] = {}

    def apply(self, commit: Commit) -> frozenset[File]:
        """Apply the files of a commit; return the files that exist now and did not before, or the reverse."""
        for file in commit.removed:
            self._before.setdefault(file, True)
            self._now[file] = False
        for file in commit.added:
            self._before.setdefault(file, False)
            self._now[file] = True
        return frozenset(file for file, there in self._now.items() if there != self._before[file])


@dataclass(slots=True)
class Findings:
    """What other programs did to a table since its last verified version.

    | field      | description |
    |------------|-------------|
    | version    | the newest version |
    | readable   | the newest version with all rows in files that only we arranged |
    | rearranged | commits that only rearranged files |
    | changed    | commits that changed rows, and that no rebuild has repaired |
    | altered    | the newest commit that changed the schema, the properties or the protocol |
    | missing    | a message if commits can no longer be read |
    | mended     | log partitions rebuilt since the last of `changed` |
    | overlaid   | whether we have written since the first of `changed` |
    """

    version: int
    readable: int
    rearranged: list[Commit] = field(default_factory=list)
    changed: list[Commit] = field(default_factory=list)
    altered: Commit | None = None
    missing: str = ""
    mended: set[int] = field(default_factory=set)
    overlaid: bool = False
    _files: _Files = field(default_factory=_Files)
    _same_rows: set[frozenset[File]] = field(default_factory=lambda: {frozenset()})

    def take_in(self, commit: Commit) -> None:
        """Add the next commit to the findings."""
        self.version = commit.version
        if commit.is_ours:
            self._ours(commit)
            return
        if commit.alters:
            self.altered = commit
        if commit.added or commit.removed:
            difference = self._files.apply(commit)
            if difference in self._same_rows:
                self.changed = []
            elif commit.keeps_rows:
                self.rearranged.append(commit)
                if not self.changed:
                    self._same_rows.add(difference)
            else:
                self.changed.append(commit)
                self.mended.clear()
        if not self.changed and not self.rearranged:
            self.readable = commit.version

    def _ours(self, commit: Commit) -> None:
        if commit.rebuilt is not None:
            self.mended |= commit.rebuilt
            if not commit.rebuilt:
                self.changed, self.rearranged, self.altered = [], [], None
        self.overlaid = bool(self.changed)
        if not self.changed:
            self._files, self._same_rows, self.readable = _Files(), {frozenset()}, commit.version


def follow(folder: Path, table: str, since: int | None) -> Findings:
    """Return the findings about the table in `folder` after version `since`; None means all commits in its log."""
    log = folder / "_delta_log"
    first = min(_versions(log), default=0) if since is None else since + 1
    found = Findings(first - 1, first - 1)
    for commit in _commits(log, table, first):
        found.take_in(commit)
    found.missing = _missing(log, since, found.version)
    if found.changed and found.mended and _touched(folder, found.changed) <= found.mended:
        found.changed = []
    return found


def _versions(log: Path) -> list[int]:
    return [int(file.stem) for file in log.glob(f"{'[0-9]' * 20}.json")]


def _commits(log: Path, table: str, first: int) -> Iterator[Commit]:
    version = first
    while (file := log / f"{version:020}.json").exists():
        yield _read(table, version, file.read_text(encoding="utf-8"))
        version += 1


def _missing(log: Path, since: int | None, newest: int) -> str:
    """Return a message if commits are no longer in the log, or if there are fewer than before."""
    pointer = log / "_last_checkpoint"
    checkpoint = json.loads(pointer.read_text(encoding="utf-8"))["version"] if pointer.exists() else -1
    if checkpoint > newest:
        return f"because its log no longer has version {newest + 1}, which was not verified yet"
    if since is not None and newest == since and checkpoint < since and since not in _versions(log):
        return f"because its version is older than {since}, which was verified: an older copy has replaced it"
    return ""


def _read(table: str, version: int, text: str) -> Commit:
    """Read a commit; of our own commits only that they are ours."""
    commit = Commit(table, version)
    lines = text.removesuffix("\n").split("\n")  # names can contain other line separators, such as U+2028
    transactions = (json.loads(line)["txn"] for line in lines if line.startswith('{"txn"'))
    commit.is_ours = any(str(transaction["appId"]).startswith(_OURS) for transaction in transactions)
    for line in lines:
        if commit.is_ours and not line.startswith('{"commitInfo"'):
            continue
        for kind, action in json.loads(line).items():
            _take_in(commit, kind, action)
    return commit


def _take_in(commit: Commit, kind: str, action: dict[str, Any]) -> None:
    if kind == "commitInfo":
        commit.info = action
        named = action.get(_REBUILT)
        if named is not None:
            commit.rebuilt = frozenset() if named == _EVERYTHING else frozenset(map(int, named.split(",")))
    elif kind in ("metaData", "protocol"):
        commit.alters = True
    elif kind in ("add", "remove"):
        vector = action.get("deletionVector")
        file = (action["path"], json.dumps(vector, sort_keys=True) if vector else "")
        commit.keeps_rows &= not action.get("dataChange", True)
        if kind == "add":
            commit.added[file] = action.get("stats")
        else:
            commit.removed.add(file)


def _touched(folder: Path, changed: list[Commit]) -> set[int]:
    """Return the log partitions whose rows the commits may have changed; -1 stands for unknown ones."""
    try:
        before = pa.table(DeltaTable(folder, version=changed[0].version - 1).get_add_actions(flatten=True)).to_pylist()
    except DeltaError:  # the log no longer has that version
        return {-1}
    spans = {row["path"]: (row.get("min.log_partition"), row.get("max.log_partition")) for row in before}
    found: set[int] = set()
    for commit in changed:
        for (path, _), stats in commit.added.items():
            bounds = json.loads(stats or "{}")
            spans[path] = tuple(bounds.get(name, {}).get("log_partition") for name in ("minValues", "maxValues"))
        for path, _ in (*commit.added, *commit.removed):
            low, high = spans.get(path, (None, None))
            found |= {-1} if low is None or high is None else {*range(low, high + 1)}
    return found
