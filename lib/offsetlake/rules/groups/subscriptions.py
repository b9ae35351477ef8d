"""Determines the topics that a group is subscribed to, whose committed offsets do not expire.

| group                                                     | subscription | subscribed_topics               |
|-----------------------------------------------------------|--------------|---------------------------------|
| simple: classic, no protocol type and no members          | `none`       | empty                           |
| classic, protocol type other than "consumer"              | `unknown`    | empty                           |
| classic "consumer", no members                            | `known`      | empty                           |
| classic "consumer", all subscriptions parsed              | `known`      | of all members                  |
| classic "consumer", one not parsed, or no protocol chosen | `everything` | of the parsed subscriptions     |
| consumer                                                  | `known`      | of members and expressions      |
| share                                                     | `known`      | of all members                  |
| streams, no members or no topology                        | `none`       | empty                           |
| streams                                                   | `known`      | sources and repartition sources |
| streams, with a pattern among its sources                 | `everything` | sources and repartition sources |

| subscription | topics that a broker considers the group to be subscribed to                         |
|--------------|--------------------------------------------------------------------------------------|
| `known`      | subscribed_topics                                                                    |
| `none`       | none                                                                                 |
| `unknown`    | none: the broker does not know the protocol of the members                           |
| `everything` | all topics, because the subscribed ones cannot be determined                         |

The rules are those of a broker of version 4.1 (`ClassicGroup.computeSubscribedTopics`, and `isSubscribedToTopic` of the
other group classes), except for the last row of the first table: version 4.1 refuses patterns in a topology, and the
log does not contain the topics that a pattern matches. Such a group therefore keeps all of its offsets.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

CONSUMER_PROTOCOL_TYPE = "consumer"


class Subscription(NamedTuple):
    """The subscription of a group: a value of the second table above, and the sorted topics."""

    subscription: Literal["known", "none", "unknown", "everything"]
    topics: list[str]


NOTHING = Subscription("none", [])


def of_classic_group(metadata: Mapping[str, Any] | None) -> Subscription:
    """Return the subscription of a classic group from its newest GroupMetadataValue; None is a simple group."""
    if metadata is None:
        return NOTHING
    protocol_type, members = metadata["protocolType"], metadata["members"]
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return Subscription("unknown", []) if protocol_type or members else NOTHING
    parsed = [member["subscription"] for member in members if member["subscription"] is not None]
    topics = sorted({topic for subscription in parsed for topic in subscription["topics"]})
    known = len(parsed) == len(members) and (not members or metadata["protocol"] is not None)
    return Subscription("known" if known else "everything", topics)


def of_members(metadata: Iterable[Mapping[str, Any]], regexes: Mapping[str, Iterable[str]]) -> Subscription:
    """Return the topics of the member metadata values and those that each current regular expression matches."""
    names = {topic for value in metadata for topic in value["subscribedTopicNames"]}
    return Subscription("known", sorted(names.union(*regexes.values())))


def of_topology(topology: Mapping[str, Any]) -> Subscription:
    """Return the source topics and repartition source topics of a StreamsGroupTopologyValue."""
    subtopologies = topology["subtopologies"]
    topics = {topic for subtopology in subtopologies for topic in subtopology["sourceTopics"]}
    topics |= {topic["name"] for subtopology in subtopologies for topic in subtopology["repartitionSourceTopics"]}
    has_patterns = any(subtopology["sourceTopicRegex"] for subtopology in subtopologies)
    return Subscription("everything" if has_patterns else "known", sorted(topics))
