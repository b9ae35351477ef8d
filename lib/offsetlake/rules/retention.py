"""Evaluates which stored offsets retention expires, and why: KIP-211 as the group coordinator of Kafka 4.x applies it.

The conditions are evaluated for each offset in this order, and the first that is true determines the rule. The order is
that of `GroupCoordinatorShard.cleanupGroupMetadata`, `OffsetMetadataManager.cleanupExpiredOffsets` and
`OffsetExpirationConditionImpl`, except that the first condition is ours (`offsetlake.rules.unresolved`), and the second
one is checked there when a topic is deleted:

| condition                                                                | rule                  | expires |
|--------------------------------------------------------------------------|-----------------------|---------|
| The offset, or the state of its group, is unknown, because a later       | `quarantined`         | no      |
| record could not be decoded, or is missing in the log.                   |                       |         |
| The topic has been deleted.                                              | `topic_deleted`       | yes     |
| The group does not exist: a tombstone of the group hides its offsets.    | `no_group`            | no      |
| The group is a share group.                                              | `share_group`         | no      |
| The group is classic, has members and either is rebalancing, is not of   | `active_group`        | no      |
| protocol type "consumer", or has a subscription that cannot be parsed.   |                       |         |
| The group is subscribed to the topic.                                    | `subscribed`          | no      |
| The retention time is not over.                                          | `within_retention`    | no      |
| `pending_offsets` has a row of the key: an open transaction or an        | `pending_transaction` | no      |
| incomplete commit.                                                       |                       |         |
| The clock is `expire_timestamp`.                                         | `explicit`            | yes     |
| The clock is `state_timestamp`.                                          | `group_empty`         | yes     |
| The group has members.                                                   | `unsubscribed`        | yes     |
| Otherwise                                                                | `commit_age`          | yes     |

| clock              | used for                                                         | expires when                |
|--------------------|------------------------------------------------------------------|-----------------------------|
| `expire_timestamp` | offsets that an old client committed with a retention time       | now >= clock                |
| `state_timestamp`  | classic groups without members whose record has a state time     | now - clock >= retention    |
| `commit_timestamp` | all other offsets                                                | now - clock >= retention    |

A group is deleted (rule `nothing_left`) if it is Empty, is not a share group, has no offsets or only offsets that
expire, and has neither pending nor unknown offsets. The age of the group does not matter.

Brokers never delete share groups. By a policy of ours, off by default, an Empty share group is deleted with its share
partitions (rule `share_idle`) if it has been idle for the time of the policy: since the later of its newest record in
`__consumer_offsets`, which also its members write, and the newest update of one of its share partitions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.rules.groups.state import UNKNOWN
from offsetlake.rules.reduction import KEY
from offsetlake.rules.unresolved import NOTHING_UNRESOLVED, Unresolved
from offsetlake.util.row_codes import among

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


class Rule(IntEnum):
    """The rules of the table above, in the order in which they are evaluated."""

    QUARANTINED = 0
    TOPIC_DELETED = 1
    NO_GROUP = 2
    SHARE_GROUP = 3
    ACTIVE_GROUP = 4
    SUBSCRIBED = 5
    WITHIN_RETENTION = 6
    PENDING_TRANSACTION = 7
    EXPLICIT = 8
    GROUP_EMPTY = 9
    UNSUBSCRIBED = 10
    COMMIT_AGE = 11


class Clock(IntEnum):
    """The timestamps that retention is measured from."""

    EXPIRE_TIMESTAMP = 0
    STATE_TIMESTAMP = 1
    COMMIT_TIMESTAMP = 2


RULES = tuple(rule.name.lower() for rule in Rule)
"""The names of the rules as tables store them, by the number of the rule."""

CLOCKS = tuple(clock.name.lower() for clock in Clock)
"""The names of the clocks as tables store them, by the number of the clock."""

EXPIRING = np.isin(
    np.array(Rule), [Rule.TOPIC_DELETED, Rule.EXPLICIT, Rule.GROUP_EMPTY, Rule.UNSUBSCRIBED, Rule.COMMIT_AGE]
)
"""Whether a rule expires the offset, by the number of the rule."""

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Evaluations:
    """The result of `evaluate`: arrays with one element per offset, in the order of the offsets.

    | Field      | Type  | Description |
    |------------|-------|-------------|
    | rule       | int64 | the `Rule` that determined the result |
    | expires    | bool  | whether the offset expires now |
    | clock      | int64 | the `Clock` that applies |
    | clock_ms   | int64 | the value of that clock, in ms since the epoch |
    | expires_at | int64 | when the offset expires, in ms since the epoch; NEVER while a rule keeps it at any age |
    | group      | int64 | the row of its group in `GroupFacts.rows`; the number of rows if the group does not exist |

    `next_change` is the first instant at which the rule of one of them changes if only time passes, else NEVER.
    """

    rule: Ints
    expires: Bools
    clock: Ints
    clock_ms: Ints
    expires_at: Ints
    group: Ints
    next_change: int


@dataclass(slots=True)
class GroupFacts:
    """What the rules need to know of the groups of some log partitions.

    The arrays have one element per row of `rows`, and a last one for groups that do not exist.

    Attributes:
        rows: Columns group_id, group_type, state, protocol_type, state_timestamp, subscription, subscribed_topics.
        share: Whether the group is a share group.
        empty: Whether the group is Empty.
        unknown: Whether the state of the group is unknown.
        active: Whether the rule `active_group` applies.
        everything: Whether the group counts as subscribed to every topic.
        empty_since: The clock `state_timestamp`, in ms since the epoch; NEVER where it does not apply.
    """

    rows: pa.Table
    share: Bools = field(init=False)
    empty: Bools = field(init=False)
    unknown: Bools = field(init=False)
    active: Bools = field(init=False)
    everything: Bools = field(init=False)
    empty_since: Ints = field(init=False)

    def __post_init__(self) -> None:
        def has_value(column: str, value: str) -> Bools:
            equal = pc.fill_null(pc.equal(self.rows[column], value), fill_value=False)
            return np.append(equal.to_numpy(), False)

        classic = has_value("group_type", "classic")
        simple = np.append(self.rows["protocol_type"].is_null().to_numpy(), False)
        self.share, self.empty = has_value("group_type", "share"), has_value("state", "Empty")
        self.unknown = has_value("state", UNKNOWN)
        self.everything = has_value("subscription", "everything")
        readable = (
            has_value("protocol_type", "consumer") & has_value("state", "Stable") & has_value("subscription", "known")
        )
        self.active = classic & ~simple & ~self.empty & ~readable
        since = pc.fill_null(self.rows["state_timestamp"], NEVER).to_numpy()
        self.empty_since = np.where(classic & ~simple & self.empty, np.append(since, NEVER), NEVER)

    def rows_of(self, offsets: pa.Table) -> Ints:
        """Return the row of each offset's group, or the number of rows if the group does not exist."""
        index = pc.index_in(offsets["group_id"], self.rows["group_id"].combine_chunks())
        rows: Ints = pc.fill_null(index, self.rows.num_rows).to_numpy().astype(np.int64)
        return rows

    def subscribed(self, offsets: pa.Table, group: Ints) -> Bools:
        """Return for each offset whether its group is subscribed to its topic; `group` is the result of `rows_of`."""
        topics = self.rows["subscribed_topics"].combine_chunks()
        subscriptions = pa.table({"group": pc.list_parent_indices(topics).cast(pa.int64()), "topic": topics.flatten()})
        pairs = pa.table({"group": group, "topic": offsets["topic"].cast(pa.string())})
        return self.everything[group] | among(pairs, subscriptions, ("group", "topic"))


def evaluate(
    offsets: pa.Table,
    groups: GroupFacts,
    pending: pa.Table,
    now: int,
    retention: Ints,
    deleted_topics: Sequence[str] = (),
    unresolved: Unresolved = NOTHING_UNRESOLVED,
) -> Evaluations:
    """Evaluate the rules for stored offsets at the instant `now`.

    Args:
        offsets: Columns KEY, commit_timestamp, expire_timestamp (null: none).
        groups: The groups of the offsets.
        pending: Columns KEY: the rows of `pending_offsets`, at least those of these groups.
        now: In ms since the epoch.
        retention: The retention time of each offset, in ms.
        deleted_topics: The topics that are known to be deleted.
        unresolved: What is unknown; then `offsets` also has the columns log_partition and log_offset.
    """
    group = groups.rows_of(offsets)
    explicit = offsets["expire_timestamp"].is_valid().to_numpy()
    empty_since = groups.empty_since[group]
    clock = np.select(
        [explicit, empty_since != NEVER], [Clock.EXPIRE_TIMESTAMP, Clock.STATE_TIMESTAMP], Clock.COMMIT_TIMESTAMP
    )
    committed = offsets["commit_timestamp"].to_numpy()
    expire_timestamp = pc.fill_null(offsets["expire_timestamp"], 0).to_numpy()
    clock_ms = np.choose(clock, [expire_timestamp, empty_since, committed])
    time_over = np.where(explicit, clock_ms, np.minimum(clock_ms, NEVER - retention) + retention)
    deleted = pc.is_in(offsets["topic"].cast(pa.string()), pa.array(deleted_topics, pa.string())).to_numpy()
    quarantined = groups.unknown[group] | unresolved.offsets(offsets)
    keeping = {
        Rule.QUARANTINED: quarantined,
        Rule.NO_GROUP: group == groups.rows.num_rows,
        Rule.SHARE_GROUP: groups.share[group],
        Rule.ACTIVE_GROUP: groups.active[group],
        Rule.SUBSCRIBED: groups.subscribed(offsets, group),
        Rule.PENDING_TRANSACTION: among(offsets, pending, KEY),
    }
    conditions = keeping | {
        Rule.TOPIC_DELETED: deleted,
        Rule.WITHIN_RETENTION: time_over > now,
        Rule.EXPLICIT: explicit,
        Rule.GROUP_EMPTY: clock == Clock.STATE_TIMESTAMP,
        Rule.UNSUBSCRIBED: ~groups.empty[group],
    }
    order = sorted(conditions)
    rule = np.select([conditions[key] for key in order], order, Rule.COMMIT_AGE)
    kept_at_any_age = np.logical_or.reduce([*keeping.values()])
    expires_at = np.where(deleted & ~quarantined, now, np.where(kept_at_any_age, NEVER, time_over))
    next_change = int(np.min(time_over, where=rule == Rule.WITHIN_RETENTION, initial=NEVER))
    return Evaluations(rule, EXPIRING[rule], clock, clock_ms, expires_at, group, next_change)


def groups_left_with_nothing(
    groups: GroupFacts,
    stored: Ints,
    expired: Ints,
    pending: pa.Table,
    unresolved: Unresolved = NOTHING_UNRESOLVED,
) -> Bools:
    """Return for each group whether it is deleted.

    Args:
        groups: The groups.
        stored: The number of offsets of each group.
        expired: The number of these that expire.
        pending: A column group_id: the groups of the rows of `pending_offsets`.
        unresolved: What is unknown; then the rows of groups have a column log_partition.
    """
    empty = groups.empty[:-1] & ~groups.share[:-1]
    has_others = _has_pending(groups, pending) | unresolved.with_unknown_offsets(groups.rows)
    deleted: Bools = (stored == expired) & empty & ~has_others
    return deleted


def share_groups_idle_since(
    groups: GroupFacts,
    updates: pa.Table,
    stored: Ints,
    pending: pa.Table,
    unresolved: Unresolved = NOTHING_UNRESOLVED,
) -> Ints:
    """Return for each group since when it is idle, in ms since the epoch; NEVER if `share_idle` does not apply to it.

    The rule does not apply if the timestamp of a record or the state of a share partition is unknown, or if a malformed
    log has offsets of the group.

    Args:
        groups: The groups; `rows` also has the column log_timestamp.
        updates: One row for each group with share partitions: group_id, and updated_timestamp, the time of the newest
            update of one of them; null if unknown.
        stored: The number of offsets of each group.
        pending: A column group_id: the groups of the rows of `pending_offsets`.
        unresolved: What is unknown.
    """
    index = pc.index_in(groups.rows["group_id"], updates["group_id"].combine_chunks())
    changed = groups.rows["log_timestamp"]
    updated = pc.if_else(pc.is_null(index), changed, updates["updated_timestamp"].take(index))
    since = pc.fill_null(pc.max_element_wise(changed, updated, skip_nulls=False), NEVER).to_numpy()
    applies = groups.share[:-1] & groups.empty[:-1] & (stored == 0) & ~_has_pending(groups, pending)
    applies &= ~(unresolved.share_groups(groups.rows) | unresolved.with_unknown_offsets(groups.rows))
    return np.where(applies, since, NEVER)


def _has_pending(groups: GroupFacts, pending: pa.Table) -> Bools:
    has_pending: Bools = pc.is_in(groups.rows["group_id"], pc.unique(pending["group_id"]).cast(pa.string())).to_numpy()
    return has_pending
