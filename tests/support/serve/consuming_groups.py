"""Groups of consumers over plain sockets that process and commit without a pause, in each group protocol.

The consumers of one group take turns in one thread. A consumer owns partitions and has a position in each of them: the
committed offset when it got the partition. Each turn increases the positions by one and commits them.
"""

import uuid
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from offsetlake.kafka.error_codes import ILLEGAL_GENERATION, NONE, REBALANCE_IN_PROGRESS, STALE_MEMBER_EPOCH
from offsetlake.kafka.records.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from support.serve.job_socket_requests import fetched
from support.serve.members import OFFSET_COMMIT, Members
from support.serve.wire_client import METADATA, WireClient

TOPIC, PARTITIONS = "t", 6
CONSUMER_GROUP_HEARTBEAT = 68
LATE = {ILLEGAL_GENERATION, STALE_MEMBER_EPOCH, REBALANCE_IN_PROGRESS}


class ConsumingGroup:
    """The consumers of a group; `positions` are those of the partitions that each of them owns."""

    def __init__(self, bootstrap: str, group_id: str, names: Iterable[str] = ("a", "b", "c")) -> None:
        self.members = Members(bootstrap, group_id)
        self.group_id, self.names = group_id, [*names]
        self.positions: dict[str, dict[int, int]] = {name: {} for name in self.names}
        self._reader = WireClient(bootstrap)
        self.refused = 0
        """The number of commits of previous generations or epochs that were refused."""

    def turn(self) -> None:
        """Process, commit, and send a heartbeat, one consumer after the other."""
        raise NotImplementedError

    def gain(self, name: str, partitions: Iterable[int]) -> None:
        """Give a consumer partitions that nobody owns, and fetch their committed offsets."""
        gained = sorted(partitions)
        owned = {number for positions in self.positions.values() for number in positions}
        assert owned.isdisjoint(gained), "a partition has two owners"
        offsets = fetched(self._reader, self.group_id, *gained, topic=TOPIC) if gained else []
        self.positions[name] |= {number: max(offset, 0) for number, offset in zip(gained, offsets, strict=True)}

    def lose(self, name: str, partitions: Iterable[int]) -> None:
        """Take partitions from a consumer."""
        for number in partitions:
            del self.positions[name][number]

    def process(self, name: str) -> None:
        """Increase the positions of a consumer."""
        self.positions[name] = {number: position + 1 for number, position in self.positions[name].items()}

    def send_commit(self, name: str, epoch: int, partitions: Iterable[int] | None = None) -> None:
        """Send a commit on a connection of its own, without waiting for the answer."""
        positions = self.positions[name]
        rows = [
            {"partition_index": number, "committed_offset": positions[number]}
            | {"committed_leader_epoch": -1, "committed_metadata": ""}
            for number in (positions if partitions is None else partitions)
        ]
        values = {"member_id": self.member_id(name), "generation_id_or_member_epoch": epoch}
        topics = [{"name": TOPIC, "partitions": rows}] if rows else []
        self.members.send(f"{name} commits", OFFSET_COMMIT, 9, topics=topics, **values)

    def committed(self, name: str) -> set[int]:
        """Return the error codes of the commit."""
        topics = self.members.receive(f"{name} commits")["topics"]
        self.members.answers.clear()
        errors = {row["error_code"] for topic in topics for row in topic["partitions"]}
        self.refused += bool(errors & LATE)
        assert errors <= {NONE} | LATE
        return errors

    def commit(self, name: str, epoch: int, partitions: Iterable[int] | None = None) -> set[int]:
        """Commit, and return the error codes."""
        self.send_commit(name, epoch, partitions)
        return self.committed(name)

    def member_id(self, name: str) -> str:
        """Return the member id of a consumer."""
        return self.members.ids[name]

    def close(self) -> None:
        """Close all connections."""
        self.members.close()
        self._reader.socket.close()


class ClassicConsumers(ConsumingGroup):
    """Consumers of a classic group, eager or cooperative; the leader assigns partitions in turn."""

    protocol = "range"
    is_cooperative = False

    def start(self) -> None:
        """Join the consumers, one after the other."""
        names, self.names = self.names, []
        for name in names:
            self.members.join(name, **self._joining(name))
            self.members.receive(name)
            self.names.append(name)
            self.rejoin()

    def turn(self) -> None:
        """Process, commit, and send a heartbeat of each consumer; join again if that is requested."""
        generation = self.members.generation
        for name in self.names:
            self.process(name)
            self.commit(name, generation)
        if any(self.members.beat(name)["error_code"] == REBALANCE_IN_PROGRESS for name in self.names):
            self.rejoin()
        self.members.answers.clear()

    def rejoin(self) -> None:
        """Join the next generation, while commits of the previous one are on their way."""
        previous, before = self.members.generation, {name: dict(own) for name, own in self.positions.items()}
        for name in self.names:
            if not self.is_cooperative:
                if previous >= 0:
                    self.commit(name, previous)
                self.lose(name, [*self.positions[name]])
            self.members.join(name, **self._joining(name))
        late = {name: own for name, own in before.items() if own and not self.is_cooperative}
        joined = {name: self.members.receive(name) for name in self.names}
        for name, own in late.items():  # a consumer that continued although it should not
            self.positions[name] = own
            assert self.commit(name, previous) <= LATE
            self.positions[name] = {}
        assert {answer["error_code"] for answer in joined.values()} == {NONE}
        (leader,) = (name for name, answer in joined.items() if answer["leader"] == self.member_id(name))
        for name in self.names:
            if name != leader:
                self.members.sync(name, protocol_name=self.protocol)
        assigned = self._assign(joined[leader]["members"])
        self.members.sync(leader, assigned=assigned, protocol_name=self.protocol)
        self._receive_assignments()

    def _receive_assignments(self) -> None:
        kept = {}
        for name in self.names:
            answer = self.members.receive(name)
            assert answer["error_code"] == NONE
            value, _ = decode_assignment(answer["assignment"])
            assert value is not None
            kept[name] = {number for topic in value["assignedPartitions"] for number in topic["partitions"]}
        for name in self.names:
            revoked = self.positions[name].keys() - kept[name]
            if revoked:
                self.commit(name, self.members.generation, revoked)
                self.lose(name, revoked)
        for name in self.names:
            self.gain(name, kept[name] - self.positions[name].keys())

    def _joining(self, name: str) -> dict[str, Any]:
        subscription: dict[str, Any] = {"topics": [TOPIC], "userData": None}
        if self.is_cooperative:
            subscription["ownedPartitions"] = [{"topic": TOPIC, "partitions": sorted(self.positions[name])}]
        return {"protocols": [{"name": self.protocol, "metadata": encode_subscription(subscription)}]}

    def _assign(self, members: list[Any]) -> dict[str, bytes]:
        """Assign to each member what it owns, and the other partitions to members with the fewest of them."""
        owned: dict[str, set[int]] = {}
        for member in members:
            subscription, _ = decode_subscription(member["metadata"])
            assert subscription is not None
            topics = subscription.get("ownedPartitions", ())
            owned[member["member_id"]] = {number for topic in topics for number in topic["partitions"]}
        for number in {*range(PARTITIONS)} - {number for numbers in owned.values() for number in numbers}:
            min(owned.values(), key=len).add(number)
        names = {member_id: name for name, member_id in self.members.ids.items()}
        return {
            names[member_id]: encode_assignment(
                {"assignedPartitions": [{"topic": TOPIC, "partitions": sorted(numbers)}], "userData": None}, b"\0\1"
            )
            for member_id, numbers in owned.items()
        }


class CooperativeConsumers(ClassicConsumers):
    """Consumers that keep their partitions in a rebalance."""

    protocol = "cooperative-sticky"
    is_cooperative = True


class ConsumerProtocolConsumers(ConsumingGroup):
    """Consumers of the consumer protocol (KIP-848)."""

    def start(self) -> None:
        """Join all consumers, and wait until all partitions are assigned."""
        wanted = {"topics": [{"name": TOPIC, "topic_id": None}], "include_topic_authorized_operations": False}
        topics = self._reader.ask(METADATA, 12, wanted)["topics"]
        self._topic_id = topics[0]["topic_id"]
        self._epochs = dict.fromkeys(self.names, 0)
        self.members.ids = {name: str(uuid.uuid4()) for name in self.names}
        while sum(map(len, self.positions.values())) < PARTITIONS:
            self.turn()

    def turn(self) -> None:
        """Process, commit and send a heartbeat of each consumer, which revokes partitions at once."""
        for name in self.names:
            self.process(name)
            self.commit(name, self._epochs[name])
            self._beat(name)

    def _beat(self, name: str) -> None:
        epoch, owned = self._epochs[name], {**self.positions[name]}
        rows = [{"topic_id": self._topic_id, "partitions": sorted(owned)}] if owned else []
        values: dict[str, Any] = {"member_epoch": epoch, "rack_id": None, "instance_id": None}
        values |= {"rebalance_timeout": timedelta(minutes=5 if epoch == 0 else -1), "server_assignor": None}
        if epoch:
            values["rebalance_timeout"] = timedelta(milliseconds=-1)
        values |= {"subscribed_topic_names": [TOPIC] if epoch == 0 else None, "subscribed_topic_regex": None}
        answer = self.members.ask(name, CONSUMER_GROUP_HEARTBEAT, 1, topic_partitions=rows, **values)
        self.members.answers.clear()
        assert answer["error_code"] == NONE, answer
        self._epochs[name] = answer["member_epoch"]
        if epoch and answer["member_epoch"] != epoch and owned:
            assert self.commit(name, epoch) <= LATE, "the previous epoch cannot commit"
        if answer["assignment"] is not None:
            assigned = {number for row in answer["assignment"]["topic_partitions"] for number in row["partitions"]}
            revoked = self.positions[name].keys() - assigned
            if revoked:
                self.commit(name, self._epochs[name], revoked)
                self.lose(name, revoked)
            self.gain(name, assigned - self.positions[name].keys())


PROTOCOLS: dict[str, Callable[[str, str], ClassicConsumers | ConsumerProtocolConsumers]] = {
    "eager": ClassicConsumers,
    "cooperative": CooperativeConsumers,
    "consumer": ConsumerProtocolConsumers,
}
