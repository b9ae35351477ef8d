"""Setting the offsets of a classic group while its members run (`offsetlake.coordinator.rewind`).

Members of eager groups give up all partitions before they join. Members of cooperative groups keep theirs, say in their
subscriptions which ones, and fetch no offsets of those that they keep. Therefore, a generation in which a member that
has joined still owns one of the partitions begins without all of them, and another one follows. If the coordinator
restarts in between, the members that have revoked partitions join again by themselves, as KIP-429 requires.
"""

from offsetlake.coordinator import rewind as rewinds
from offsetlake.coordinator.classic.group import ClassicGroup, ClassicState
from offsetlake.coordinator.classic.rebalance.join_phase import prepare_rebalance
from offsetlake.coordinator.rewind import Rewind
from offsetlake.coordinator.steps import Step

_COOPERATIVE = "cooperative"  # in the names of the assignors of Kafka's clients
_COOPERATIVE_PHASES = 3  # join, sync and join again, each limited by the rebalance timeout


def start(step: Step, group: ClassicGroup, rewind: Rewind) -> None:
    """Set offsets: at once if the group is Empty, otherwise in the next rebalance, or in the one in progress."""
    if group.is_empty():
        rewinds.complete(step, rewind)
        return
    group.rewind = rewind
    if group.state is not ClassicState.PREPARING_REBALANCE:
        prepare_rebalance(step, group, "offsets of the group are set")


def cancelled(step: Step, group: ClassicGroup) -> None:
    """Assign the partitions again in a Stable group whose generation began without them."""
    if group.state is ClassicState.STABLE:
        prepare_rebalance(step, group, "the offsets of the group are not set")


def limit_ms(group: ClassicGroup) -> int:
    """Return after how long members that do not respond are removed."""
    sessions_ms = max((0, *(member.session_timeout_ms for member in group.members.values())))
    phases = _COOPERATIVE_PHASES if _COOPERATIVE in (group.protocol or "") else 1
    return phases * max(group.rebalance_timeout_ms(), sessions_ms)


def after_sync(step: Step, group: ClassicGroup) -> None:
    """Start the generation with the partitions when all members have the assignments without them."""
    if group.rewind is not None and group.state is ClassicState.STABLE and not group.pending_syncs:
        prepare_rebalance(step, group, "members have revoked the partitions whose offsets are set")
