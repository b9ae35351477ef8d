"""Members of classic groups over plain sockets, which write down what they are answered, to compare two servers."""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from support.serve.wire_client import WireClient, frame, plain, read_answer, request

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS, OFFSET_COMMIT = 11, 12, 13, 14, 15, 16, 8
_UUID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?:(?<=-)|(?<![A-Za-z0-9_-]))[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])"
)
_UNANSWERED = 7


def subscription(*topics: str, version: int = 0) -> bytes:
    """Return a ConsumerProtocolSubscription without user data."""
    names = b"".join(len(topic).to_bytes(2) + topic.encode() for topic in topics)
    owned = b"\0\0\0\0" if version >= 1 else b""
    return version.to_bytes(2) + len(topics).to_bytes(4) + names + b"\xff\xff\xff\xff" + owned


def joining(group: str, member: str = "", topic: str = "t") -> dict[str, Any]:
    """Return the fields of JoinGroup of a dynamic member that subscribes to a topic."""
    minutes = {"session_timeout": timedelta(minutes=5), "rebalance_timeout": timedelta(minutes=5)}
    protocols = [{"name": "range", "metadata": subscription(topic)}]
    return minutes | {
        "group_id": group, "member_id": member, "group_instance_id": None, "protocol_type": "consumer",
        "protocols": protocols, "reason": None,
    }  # fmt: skip


@dataclass
class Members:
    """The members of one group of one server, by names that a test chooses; `answers` are all answers so far.

    Random ids in answers are replaced by the order in which they first appear, so that two servers can be compared.
    """

    bootstrap: str
    group_id: str
    answers: list[Any] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    generation: int = -1
    _clients: dict[str, WireClient] = field(default_factory=dict)
    _sent: dict[str, tuple[int, int]] = field(default_factory=dict)
    _known: dict[str, str] = field(default_factory=dict)

    def send(self, name: str, api: int, version: int, **values: Any) -> None:
        """Send a request of a member, without waiting for the answer."""
        if name not in self._clients:
            self._clients[name] = WireClient(self.bootstrap)
        defaults = {"group_id": self.group_id, "member_id": self.ids.get(name, ""), "group_instance_id": None}
        defaults |= {"generation_id": self.generation}
        entity = request(api, version, defaults | values)
        self._clients[name].socket.sendall(frame(api, version, _UNANSWERED, entity))
        self._sent[name] = api, version

    def receive(self, name: str) -> Any:
        """Return the answer to the last request of a member, and remember its member id and generation."""
        api, version = self._sent.pop(name)
        _, entity = read_answer(api, version, self._clients[name].receive())
        answer = plain(entity)
        self.answers.append((name, api, version, self.named(answer)))
        if api == JOIN_GROUP:
            self.ids[name] = answer["member_id"] or self.ids.get(name, "")
            if answer["generation_id"] >= 0:
                self.generation = answer["generation_id"]
        return answer

    def ask(self, name: str, api: int, version: int, **values: Any) -> Any:
        """Send a request of a member and return its answer."""
        self.send(name, api, version, **values)
        return self.receive(name)

    def join(self, name: str, version: int = 9, **values: Any) -> None:
        """Send JoinGroup."""
        defaults: dict[str, Any] = {"session_timeout": timedelta(minutes=5), "rebalance_timeout": timedelta(minutes=5)}
        defaults |= {"protocol_type": "consumer", "reason": None}
        defaults |= {"protocols": [{"name": "range", "metadata": subscription("t")}]}
        self.send(name, JOIN_GROUP, version, **defaults | values)

    def enter(self, name: str, version: int = 9, **values: Any) -> None:
        """Join as a new member, which from version 4 on takes two requests, and leave the second one unanswered."""
        self.join(name, version, **values)
        if version >= 4 and values.get("group_instance_id") is None:
            self.receive(name)
            self.join(name, version, **values)

    def sync(self, name: str, version: int = 5, assigned: Mapping[str, bytes] | None = None, **values: Any) -> None:
        """Send SyncGroup, with the assignments of members by name."""
        entries = [{"member_id": self.ids[to], "assignment": data} for to, data in (assigned or {}).items()]
        defaults: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range", "assignments": entries}
        self.send(name, SYNC_GROUP, version, **defaults | values)

    def beat(self, name: str, version: int = 4, **values: Any) -> Any:
        """Send Heartbeat and return the answer."""
        return self.ask(name, HEARTBEAT, version, **values)

    def leave(self, name: str, version: int = 5, **values: Any) -> Any:
        """Send LeaveGroup and return the answer."""
        member = {"member_id": self.ids.get(name, ""), "group_instance_id": None, "reason": None}
        return self.ask(name, LEAVE_GROUP, version, **{"members": [member]} | values)

    def await_rebalance(self, name: str) -> None:
        """Wait until a member learns of a rebalance, which a request on another connection starts."""
        while True:
            self.send(name, HEARTBEAT, 4)
            self.receive(name)
            if self.answers.pop()[-1]["error_code"]:
                return

    def describe(self, version: int = 6) -> Any:
        """Describe the group, as someone who is no member.

        A broker answers from what is committed. LeaveGroup of nobody is answered when all writes before are.
        """
        self.ask("-", LEAVE_GROUP, 5, members=[{"member_id": "nobody", "group_instance_id": None, "reason": None}])
        self.answers.pop()
        return self.ask("-", DESCRIBE_GROUPS, version, groups=[self.group_id], include_authorized_operations=False)

    def at(self, bootstrap: str) -> "Members":
        """Return the same members as clients of another server."""
        return Members(bootstrap, self.group_id, ids={**self.ids}, generation=self.generation)

    def members(self) -> list[str]:
        """Return the names of the members that have an ID."""
        return [*self.ids]

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.socket.close()

    def named(self, value: Any) -> Any:
        """Return a value with the names of random ids, and sorted lists."""
        if isinstance(value, dict):
            return {name: self.named(each) for name, each in value.items() if name != "throttle_time"}
        if isinstance(value, list):
            return sorted((self.named(each) for each in value), key=str)
        if isinstance(value, str):
            return _UUID.sub(lambda found: self._known.setdefault(found[0], f"id-{len(self._known) + 1}"), value)
        return str(value) if isinstance(value, uuid.UUID | timedelta) else value
