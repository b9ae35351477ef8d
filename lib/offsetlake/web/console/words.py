"""Explains changes of offsets in plain words."""

from collections.abc import Mapping
from typing import Any

from offsetlake.queries.exploring.step import OffsetStep
from offsetlake.rules.groups.state import UNKNOWN
from offsetlake.util.amounts import counted

Row = Mapping[str, Any]

_TOOL = (
    "The group had had members, but had none when this commit was made. So it was not made by a member, but by a tool "
    "such as kafka-consumer-groups, or by a consumer that assigns its partitions itself."
)
_BACK_WITHOUT_MEMBERS = (
    "The offset was set back. No run of offsetlake did that, and the log has no record of a member of the group. So it "
    "was done by a tool such as kafka-consumer-groups, or by a client that assigns its partitions itself."
)
_MEANINGS = {
    "rewind": "The offset was set back. No run of offsetlake did that, and the group was not known to be empty, as it "
    "is when a tool resets offsets. Common causes are a consumer that seeks back and commits, two consumers that "
    "commit the same partition, and a consumer that commits old offsets after a rebalance.",
    "skip ahead": "The offset moved further than by all other increases of its history together. Common causes are a "
    "reset to the end, and a burst of records after a quiet time.",
    "expiry": "Retention deleted the offset: the tombstone was planned by the rules of retention.",
    "delete": "The offset was deleted. The log does not record whether a tool, a client or the broker wrote the "
    "tombstone.",
    "undelete": "A run of offsetlake set an offset that had been deleted.",
    "commit": "An ordinary commit.",
}


_TONES = {
    "good": ("OK", "Stable", "done", "emitted", "met"),
    "busy": ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady", "planned"),
    "warn": ("NO_COMMIT", "WARN", "STOP", "STALL", "REWIND", "Unknown", "nothing to check"),
    "bad": ("DELETED_BEFORE_READ", "BEYOND_END", "refused", "failed", "not met"),
}
"""How states and statuses are shown, by the tone of their colour; others are neutral."""

_KEPT = {
    "quarantined": "kept: a later record could not be decoded, or is missing in the log",
    "no_group": "kept: the group was deleted",
    "share_group": "kept: share group",
    "active_group": "kept: the group is active",
    "subscribed": "kept: a member subscribes to the topic",
    "pending_transaction": "kept: a transaction is open",
}
_CLOCKS = {
    "expire_timestamp": "set by the client",
    "state_timestamp": "since the group is empty",
    "commit_timestamp": "since the commit",
}


def tone(status: str | None) -> str:
    """Return the tone of a state or status: good, busy, warn or bad, otherwise empty."""
    return next((name for name, statuses in _TONES.items() if status in statuses), "")


def effect(row: Row) -> str:
    """Describe what a row of `questions.history` changed, in words."""
    if row["event"] == "tombstone":
        return "The offset was deleted."
    if row["outcome"] in {"aborted", "open", "partial"}:
        return f"No effect: the outcome is {row['outcome']}."
    if row["difference"] is None:
        return "First commit: there was no offset."
    difference = int(row["difference"])  # a decimal, because it can have 65 bits
    if difference < 0:
        return f"Set back: {counted(-difference, 'record is', 'records are')} read again."
    moved = "Reset" if row["event"] == "reset" else "Moved"
    return f"{moved} forward by {difference:,}." if difference else "Unchanged."


def consequence(old: int | None, new: int | None, change: str) -> str:
    """Describe which records are read again or skipped because an offset changed."""
    if new is None:
        return "The group has no offset here: its consumers start where auto.offset.reset says."
    if old is None:
        return f"There was no offset before: consumers continue with the record at offset {new:,}."
    if new < old:
        return f"{counted(old - new, 'record is', 'records are')} read again: offsets {new:,} to {old - 1:,}."
    if new == old:
        return "The offset is the same as before: no record is read again, and none is skipped."
    if change in {"reset", "skip ahead", "undelete"}:
        return (
            f"{counted(new - old, 'record is', 'records are')} skipped, unless the group had read them: "
            f"offsets {old:,} to {new - 1:,}."
        )
    return f"{counted(new - old, 'record was', 'records were')} consumed: offsets {old:,} to {new - 1:,}."


def headline(old: int | None, new: int | None) -> str:
    """Describe a change of an offset in a few words."""
    if new is None:
        return "The offset was deleted" if old is None else f"The offset {old:,} was deleted"
    if old is None:
        return f"The offset was set to {new:,}"
    if new == old:
        return f"The offset {new:,} was committed again"
    return f"The offset moved {'back' if new < old else 'forward'} from {old:,} to {new:,}"


def meaning(step: OffsetStep) -> str:
    """Explain the kind of a change, and what decided it."""
    change = step.change
    if change is None:
        outcome = step.record["outcome"]
        reasons = {
            "aborted": "its transaction was aborted",
            "open": "its transaction has not ended",
            "partial": "parts of the commit that it belongs to are missing",
        }
        return f"The record never took effect, because {reasons.get(outcome, 'a newer commit was in force already')}."
    if change["change"] == "reset" and change["run_id"] is None:
        return _TOOL
    if change["run_id"] is not None and change["change"] in {
        "reset",
        "undelete",
        "expiry",
        "delete",
        "commit",
        "rewind",
    }:
        job = step.run["job"] if step.run else "a job"
        rule = f" by the rule or strategy {change['decision']}" if change["decision"] else ""
        evidence = f"; basis: {change['evidence']}" if change["evidence"] else ""
        return f"Run {change['run_id']} of offsetlake ({job}) decided it{rule}{evidence}."
    if change["change"] == "rewind" and _never_had_members(step.group):
        return _BACK_WITHOUT_MEMBERS
    return _MEANINGS.get(change["change"], "")


def _never_had_members(group: Row | None) -> bool:
    """Check whether the log has no record of a member: a group that only commits has no generation either."""
    return group is None or not (group["member_count"] or group["generation"] or group["epoch"])


def author(step: OffsetStep) -> str:
    """Describe who made a record, as far as it is known."""
    record = step.record
    if record["principal"]:
        client = f", client id {record['client_id']}" if record["client_id"] else ""
        address = f", from {record['address']}" if record["address"] else ""
        return f"{record['principal']}{client}{address}"
    if step.run:
        return f"Run {step.run['run_id']} of offsetlake ({step.run['job']})"
    if record["producer_id"] is not None:
        return f"Not recorded, except that the transactional producer {record['producer_id']} committed it"
    members = len(step.members)
    if members:
        only = "its only member, listed below," if members == 1 else f"one of its {members:,} members below"
        return f"Not recorded. If a member of the group made the commit, {only} did"
    return "Not recorded: only a log that offsetlake serve writes contains who committed"


def group_words(step: OffsetStep) -> str:
    """Describe the group as it was before a record."""
    group = step.group
    if group is None:
        return "The log had no record of its members: the group only committed."
    if group["state"] == UNKNOWN:
        return f"Unknown: a newer record of the {group['group_type']} group, or a batch, could not be decoded."
    members = counted(group["member_count"], "member") if group["member_count"] else "no members"
    number = group["generation"] if group["generation"] is not None else group["epoch"]
    epoch = "" if number is None else f", in {'generation' if group['generation'] is not None else 'epoch'} {number:,}"
    return f"{group['state']} with {members}{epoch} ({group['group_type']} protocol)."


def expires(row: Row | None) -> str:
    """Describe what keeps an offset at any age, or which clock counts; the row is one of `expiry`."""
    if row is None:
        return ""
    if row["kept_by"] is not None:
        return _KEPT[row["kept_by"]]
    return _CLOCKS[row["clock"]]
