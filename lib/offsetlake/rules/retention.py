"""Which stored offsets retention lets go, and why: KIP-211 as the group coordinator of Kafka 4.x applies it.

Asked of each offset in this order, the first yes decides (`GroupCoordinatorShard.cleanupGroupMetadata`):

| asked                                                          | rule                  | expires |
|----------------------------------------------------------------|-----------------------|---------|
| has its topic been deleted?                                    | `topic_deleted`       | yes     |
| is its group gone? A tombstone of the group hides the offset   | `no_group`            | no      |
| is the group a share group?                                    | `share_group`         | no      |
| classic with members: rebalancing, not "consumer", unreadable? | `active_group`        | no      |
| is the group subscribed to the topic?                          | `subscribed`          | no      |
| is its time not over yet?                                      | `within_retention`    | no      |
| does an open transaction hold an offset of its key? (*)        | `pending_transaction` | no      |
| was it the clock `expire_timestamp` that told?                 | `explicit`            | yes     |
| was it the clock `state_timestamp`?                            | `group_empty`         | yes     |
| has the group members?                                         | `unsubscribed`        | yes     |
| else                                                           | `commit_age`          | yes     |

| clock              | counts for                                                    | time is over when     |
|--------------------|---------------------------------------------------------------|-----------------------|
| `expire_timestamp` | an offset that an old client committed with a time of its own | now >= it             |
| `state_timestamp`  | a classic group without members that knows since when         | now - it >= retention |
| `commit_timestamp` | every other offset                                            | now - it >= retention |

(*) Or a part of a commit in parts that is not complete: whatever is in `pending_offsets`.

A group goes (`nothing_left`) when it is Empty, no share group, all its offsets expire or it has none, and no
transaction holds any. No age is asked of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.rules.reduction import KEY
from offsetlake.util.row_codes import among

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

RULES = (
    "topic_deleted", "no_group", "share_group", "active_group", "subscribed", "within_retention", "pending_transaction",
    "explicit", "group_empty", "unsubscribed", "commit_age",
)  # fmt: skip
EXPIRING = np.isin(RULES, ("topic_deleted", "explicit", "group_empty", "unsubscribed", "commit_age"))
CLOCKS = ("expire_timestamp", "state_timestamp", "commit_timestamp")
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Verdicts:
    """One verdict an offset, in the order the offsets were given.

    | field      | is |
    |------------|----|
    | rule       | its number in RULES |
    | expires    | whether the offset goes now |
    | clock      | the number in CLOCKS of the clock that counts for it |
    | clock_ms   | what that clock says, ms since the epoch |
    | expires_at | when its time is over, ms; NEVER while its group or a transaction keeps it whatever its age |
    | group      | the row of its group in `groups`; their number where it has none |
    """

    rule: Ints
    expires: Bools
    clock: Ints
    clock_ms: Ints
    expires_at: Ints
    group: Ints


@dataclass(slots=True)
class GroupFacts:
    """The groups of some log partitions as the rule sees them; one flag a group, the last one for offsets of none.

    `rows` has the columns group_id, group_type, state, protocol_type, state_timestamp, subscription, subscribed_topics.
    """

    rows: pa.Table
    share: Bools = field(init=False)
    empty: Bools = field(init=False)
    active: Bools = field(init=False)
    everything: Bools = field(init=False)
    empty_since: Ints = field(init=False)  # NEVER where no such clock counts

    def __post_init__(self) -> None:
        def says(column: str, value: str) -> Bools:
            found = pc.fill_null(pc.equal(self.rows[column], value), fill_value=False)
            return np.append(found.to_numpy(), False)

        classic = says("group_type", "classic")
        simple = np.append(self.rows["protocol_type"].is_null().to_numpy(), False)
        self.share, self.empty = says("group_type", "share"), says("state", "Empty")
        self.everything = says("subscription", "everything")
        readable = says("protocol_type", "consumer") & says("state", "Stable") & says("subscription", "known")
        self.active = classic & ~simple & ~self.empty & ~readable
        since = pc.fill_null(self.rows["state_timestamp"], NEVER).to_numpy()
        self.empty_since = np.where(classic & ~simple & self.empty, np.append(since, NEVER), NEVER)

    def of(self, offsets: pa.Table) -> Ints:
        """Give the row of each offset's group, their number where it has none."""
        found = pc.index_in(offsets["group_id"], self.rows["group_id"].combine_chunks())
        rows: Ints = pc.fill_null(found, self.rows.num_rows).to_numpy().astype(np.int64)
        return rows

    def subscribed(self, offsets: pa.Table, group: Ints) -> Bools:
        """Tell of each offset whether its group is subscribed to its topic; `group` is what `of` gives."""
        topics = self.rows["subscribed_topics"].combine_chunks()
        lists = pa.table({"group": pc.list_parent_indices(topics).cast(pa.int64()), "topic": topics.flatten()})
        asked = pa.table({"group": group, "topic": offsets["topic"].cast(pa.string())})
        return self.everything[group] | among(asked, lists, ("group", "topic"))


def verdicts(
    offsets: pa.Table,
    groups: GroupFacts,
    pending: pa.Table,
    now: int,
    retention: Ints,
    deleted_topics: Sequence[str] = (),
) -> Verdicts:
    """Judge stored offsets at the instant `now`, ms since the epoch.

    | given     | is |
    |-----------|----|
    | offsets   | columns KEY, commit_timestamp, expire_timestamp (null = none) |
    | pending   | columns KEY: what open transactions hold, at least of these groups |
    | retention | ms, one an offset |
    | deleted_topics | topics that there are no more, as far as that is known |
    """
    group = groups.of(offsets)
    explicit = offsets["expire_timestamp"].is_valid().to_numpy()
    since = groups.empty_since[group]
    clock = np.select([explicit, since != NEVER], [0, 1], 2)
    committed = offsets["commit_timestamp"].to_numpy()
    expire_timestamp = pc.fill_null(offsets["expire_timestamp"], 0).to_numpy()
    clock_ms = np.choose(clock, [expire_timestamp, since, committed])
    time_over = np.where(explicit, clock_ms, np.minimum(clock_ms, NEVER - retention) + retention)
    keeps = [
        group == groups.rows.num_rows,
        groups.share[group],
        groups.active[group],
        groups.subscribed(offsets, group),
    ]
    deleted = pc.is_in(offsets["topic"].cast(pa.string()), pa.array(deleted_topics, pa.string())).to_numpy()
    pending_too = among(offsets, pending, KEY)
    asked = [deleted, *keeps, time_over > now, pending_too, explicit, clock == 1, ~groups.empty[group]]
    rule = np.select(asked, np.arange(len(asked)), len(asked))
    expires_at = np.where(deleted, now, np.where(np.logical_or.reduce([*keeps, pending_too]), NEVER, time_over))
    return Verdicts(rule, EXPIRING[rule], clock, clock_ms, expires_at, group)


def groups_left_with_nothing(groups: GroupFacts, stored: Ints, expired: Ints, pending: pa.Table) -> Bools:
    """Tell of each group whether it goes; `stored` and `expired` count its offsets, `pending` has a column group_id."""
    held: Bools = pc.is_in(groups.rows["group_id"], pc.unique(pending["group_id"]).cast(pa.string())).to_numpy()
    goes: Bools = (stored == expired) & groups.empty[:-1] & ~groups.share[:-1] & ~held
    return goes
