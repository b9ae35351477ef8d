"""Commits of other programs to a table: read from its Delta log, and classified by whether they changed rows.

A commit of offsetlake has a transaction identifier whose application starts with `offsetlake-`. Among the others, a
commit whose added and removed files have `dataChange` false keeps the rows (OPTIMIZE, REORG, clustering). Any other
commit that adds or removes files changes rows, unless a later commit (RESTORE) restores exactly the former files.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError

from offsetlake.lake.delta.log_entries import (
    CHECKSUM,
    NO_CHECKSUM,
    DeltaLog,
    entries,
    entry_fault,
    entry_name,
    newest_checkpoint,
)
from offsetlake.lake.location.location import Location
from offsetlake.util.times import to_iso

_OURS = "offsetlake-"
_REBUILT, _EVERYTHING = "offsetlake.rebuilt", "all"
_VERSIONS = "offsetlake.versions"

File = tuple[str, str]
"""A data file as Delta identifies it: by its path and its deletion vector (empty if it has none)."""


def app_id(job: str) -> str:
    """Return the application identifier under which the Delta log records the newest run of a job."""
    return f"{_OURS}{job}"


FENCE = app_id("lease")
"""The application identifier under which the Delta log records the epoch of the lease of the newest commit."""


def ours(
    job: str, number: int, epoch: int = 0, rebuilt: str | None = None, versions: Mapping[str, int] | None = None
) -> CommitProperties:
    """Return the properties that mark a commit as one of offsetlake.

    The epoch of the lease is recorded too, by which a former holder learns that another process has taken it over. Of
    two commits by delta-rs itself that were prepared at the same version, Delta then refuses the second one. `rebuilt`
    is the `rebuilt_scope` of a commit that rebuilt a table, `versions` are those in which a run has left the tables.
    """
    leases = [Transaction(FENCE, epoch)] if epoch else []
    return CommitProperties(
        app_transactions=[Transaction(app_id(job), number), *leases],
        custom_metadata={CHECKSUM: NO_CHECKSUM}
        | ({} if rebuilt is None else {_REBUILT: rebuilt})
        | ({} if versions is None else {_VERSIONS: json.dumps({**versions})}),
    )


def recorded_versions(entry: bytes | None) -> dict[str, int]:
    """Return the versions in which the run has left the tables that committed this entry; none if it has none."""
    line = (entry or b"{}").split(b"\n")[0]
    found: dict[str, int] = json.loads(json.loads(line).get("commitInfo", {}).get(_VERSIONS, "{}"))
    return found


def rebuilt_scope(log_partitions: list[int] | None) -> str:
    """Return what a commit has rebuilt, as its properties contain it: some log partitions, or all if None."""
    return _EVERYTHING if log_partitions is None else ",".join(map(str, log_partitions))


@dataclass(slots=True)
class Commit:
    """A commit with the properties that its classification needs.

    | field | description |
    |-------|-------------|
    | added, removed | its data files; `added` with their statistics, as JSON |
    | is_ours | whether offsetlake made it |
    | keeps_rows | whether `dataChange` is false for all its files |
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
        """Return the version of the commit, its operation, its engine and user, and its time."""
        engine = self.info.get("engineInfo", "an unknown engine")
        user = f", user {self.info['userName']}" if self.info.get("userName") else ""
        when = f", {to_iso(self.info['timestamp'])}" if "timestamp" in self.info else ""
        return f"version {self.version} ({self.info.get('operation', 'unknown operation')} by {engine}{user}{when})"


class _Files:
    """The difference in files that commits of others have made: equal differences mean equal rows."""

    def __init__(self) -> None:
        self._existed: dict[File, bool] = {}
        self._exists: dict[File, bool] = {}

    def apply(self, commit: Commit) -> frozenset[File]:
        """Apply the files of a commit; return the files that exist now but did not at first, or the reverse."""
        for file in commit.removed:
            self._existed.setdefault(file, True)
            self._exists[file] = False
        for file in commit.added:
            self._existed.setdefault(file, False)
            self._exists[file] = True
        return frozenset(file for file, exists in self._exists.items() if exists != self._existed[file])


@dataclass(slots=True)
class Findings:
    """The changes that other programs made to a table since its last verified version.

    | field      | description |
    |------------|-------------|
    | version    | the newest version |
    | readable   | the newest version whose files only offsetlake has arranged |
    | rearranged | commits that only rearranged files |
    | changed    | commits that changed rows and that no rebuild has repaired |
    | altered    | the newest commit that changed the schema, the properties or the protocol |
    | missing    | why commits can no longer be read; empty if they can |
    | damaged    | what is wrong with an entry of the log; empty if nothing is |
    | repaired   | log partitions rebuilt since the last of `changed` |
    | overlaid   | whether offsetlake has written since the first of `changed` |
    """

    version: int
    readable: int
    rearranged: list[Commit] = field(default_factory=list)
    changed: list[Commit] = field(default_factory=list)
    altered: Commit | None = None
    missing: str = ""
    damaged: str = ""
    repaired: set[int] = field(default_factory=set)
    overlaid: bool = False
    _files: _Files = field(default_factory=_Files)
    _same_rows: set[frozenset[File]] = field(default_factory=lambda: {frozenset()})

    def add(self, commit: Commit) -> None:
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
                self.repaired.clear()
        if not self.changed and not self.rearranged:
            self.readable = commit.version

    def _ours(self, commit: Commit) -> None:
        if commit.rebuilt is not None:
            self.repaired |= commit.rebuilt
            if not commit.rebuilt:
                self.changed, self.rearranged, self.altered = [], [], None
        self.overlaid = bool(self.changed)
        if not self.changed:
            self._files, self._same_rows, self.readable = _Files(), {frozenset()}, commit.version


def follow(location: Location, log: DeltaLog, table: str, since: int | None) -> Findings:
    """Return the findings about a table at a location after version `since`; None means all commits in its log."""
    names = log.names() if since is None else log.names(after=f"{since:020}")
    listed, checkpoint = entries(names), newest_checkpoint(names)
    first = min(listed, default=0) if since is None else since + 1
    findings = Findings(first - 1, first - 1)
    if location.tears_writes and since in listed and max([checkpoint, *listed]) == since:
        findings.damaged = entry_fault(since, log.read(entry_name(since)))
    version = first
    while version in listed and not findings.damaged:
        content = log.read(entry_name(version))
        findings.damaged = entry_fault(version, content)
        if content is not None and not findings.damaged:
            findings.add(_read(table, version, content.decode()))
            version += 1
    findings.missing = "" if findings.damaged else _missing(since, findings.version, checkpoint, listed)
    if findings.changed and findings.repaired and _changed_partitions(location, findings.changed) <= findings.repaired:
        findings.changed = []
    return findings


def _missing(since: int | None, newest: int, checkpoint: int, listed: set[int]) -> str:
    """Return why commits that are not verified yet cannot be read or the table is too old; empty if neither is so.

    `checkpoint` is the newest checkpoint, `listed` are the versions in the log, both from `since` on.
    """
    if max([checkpoint, *listed]) > newest:
        return f"because its log no longer has version {newest + 1}, which was not verified yet"
    if since is not None and checkpoint < since and since not in listed:
        return f"because its version is older than {since}, which was verified: an older copy has replaced it"
    return ""


def _read(table: str, version: int, text: str) -> Commit:
    """Read a commit; of a commit of offsetlake only its `commitInfo`."""
    commit = Commit(table, version)
    lines = text.removesuffix("\n").split("\n")  # names can contain other line separators, such as U+2028
    transactions = (json.loads(line)["txn"] for line in lines if line.startswith('{"txn"'))
    commit.is_ours = any(str(transaction["appId"]).startswith(_OURS) for transaction in transactions)
    for line in lines:
        if commit.is_ours and not line.startswith('{"commitInfo"'):
            continue
        for kind, action in json.loads(line).items():
            _add_action(commit, kind, action)
    return commit


def _add_action(commit: Commit, kind: str, action: dict[str, Any]) -> None:
    if kind == "commitInfo":
        commit.info = action
        scope = action.get(_REBUILT)
        if scope is not None:
            commit.rebuilt = frozenset() if scope == _EVERYTHING else frozenset(map(int, scope.split(",")))
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


def _changed_partitions(location: Location, changed: list[Commit]) -> set[int]:
    """Return the log partitions whose rows the commits may have changed; -1 if some are unknown."""
    try:
        files = pa.table(
            DeltaTable(str(location), version=changed[0].version - 1).get_add_actions(flatten=True)
        ).to_pylist()
    except DeltaError:  # the log no longer has that version
        return {-1}
    spans = {row["path"]: (row.get("min.log_partition"), row.get("max.log_partition")) for row in files}
    partitions: set[int] = set()
    for commit in changed:
        for (path, _), stats in commit.added.items():
            bounds = json.loads(stats or "{}")
            spans[path] = tuple(bounds.get(name, {}).get("log_partition") for name in ("minValues", "maxValues"))
        for path, _ in (*commit.added, *commit.removed):
            low, high = spans.get(path, (None, None))
            partitions |= {-1} if low is None or high is None else {*range(low, high + 1)}
    return partitions
