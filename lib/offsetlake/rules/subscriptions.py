"""Which topics a group is subscribed to: what a broker asks before it lets a committed offset expire.

| group                                                     | subscription | subscribed_topics               |
|-----------------------------------------------------------|--------------|---------------------------------|
| simple: classic, no protocol type and no members          | `none`       | empty                           |
| classic, protocol type other than "consumer"              | `unknown`    | empty                           |
| classic "consumer", no members                            | `known`      | empty                           |
| classic "consumer", all subscriptions readable            | `known`      | of all members                  |
| classic "consumer", one unreadable, or no protocol chosen | `everything` | of the readable members         |
| consumer                                                  | `known`      | of members and expressions      |
| share                                                     | `known`      | of all members                  |
| streams, no members or no topology                        | `none`       | empty                           |
| streams                                                   | `known`      | sources and repartition sources |
| streams, with a pattern among its sources                 | `everything` | sources and repartition sources |

| subscription | a broker treats the group as subscribed to                              |
|--------------|-------------------------------------------------------------------------|
| `known`      | exactly subscribed_topics                                               |
| `none`       | nothing                                                                 |
| `unknown`    | nothing, whatever its members read: their protocol is not the broker's  |
| `everything` | every topic: its topics cannot be told                                  |

The rules are those of a 4.1 broker (`ClassicGroup.computeSubscribedTopics`, and `isSubscribedToTopic` of the other
kinds) but for the last row: 4.1 refuses patterns in a topology, and what one matches is not in the log, so the group
keeps all its offsets.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

CONSUMER_PROTOCOL_TYPE = "consumer"


class Subscription(NamedTuple):
    """What a group is subscribed to: a value of the table above and the topics, sorted."""

    subscription: Literal["known", "none", "unknown", "everything"]
    topics: list[str]


NOTHING = Subscription("none", [])


def of_classic_group(metadata: Mapping[str, Any] | None) -> Subscription:
    """Read the subscription of a classic group off its newest GroupMetadataValue; None is a simple group."""
    if metadata is None:
        return NOTHING
    protocol_type, members = metadata["protocolType"], metadata["members"]
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return Subscription("unknown", []) if protocol_type or members else NOTHING
    readable = [member["subscription"] for member in members if member["subscription"] is not None]
    topics = sorted({topic for subscription in readable for topic in subscription["topics"]})
    told = len(readable) == len(members) and (not members or metadata["protocol"] is not None)
    return Subscription("known" if told else "everything", topics)


def of_members(metadata: Iterable[Mapping[str, Any]], regexes: Mapping[str, Iterable[str]]) -> Subscription:
    """Join the names in the members' metadata values with the topics each live regular expression stands for."""
    names = {topic for value in metadata for topic in value["subscribedTopicNames"]}
    return Subscription("known", sorted(names.union(*regexes.values())))


def of_topology(topology: Mapping[str, Any]) -> Subscription:
    """Read the source and repartition source topics off a StreamsGroupTopologyValue."""
    subtopologies = topology["subtopologies"]
    topics = {topic for subtopology in subtopologies for topic in subtopology["sourceTopics"]}
    topics |= {topic["name"] for subtopology in subtopologies for topic in subtopology["repartitionSourceTopics"]}
    patterns = any(subtopology["sourceTopicRegex"] for subtopology in subtopologies)
    return Subscription("everything" if patterns else "known", sorted(topics))
