"""The difference between two images of a cluster, as far as it matters to groups."""

from offsetlake.node.metadata.image import ClusterImage
from offsetlake.serve.steps import Steps

_STEP_TOPICS = 10


def changed_topics(before: ClusterImage, after: ClusterImage) -> Steps[frozenset[str]]:
    """Return the topics that are new, are deleted or have changed: their id, number of partitions or racks."""
    changed = []
    for count, name in enumerate({**before.columns.numbers, **after.columns.numbers}):
        partitions = after.partitions(name), after.id_of(name)
        if partitions != (before.partitions(name), before.id_of(name)) or _racks_changed(before, after, name):
            changed.append(name.decode())
        if count % _STEP_TOPICS == 0:
            yield 0
    return frozenset(changed)


def _racks_changed(before: ClusterImage, after: ClusterImage, name: bytes) -> bool:
    """Check whether replicas of a topic, which both images contain, are in other racks."""
    if not before.rack_by_node and not after.rack_by_node:
        return False
    if before.rack_by_node == after.rack_by_node and before.nodes_of(name) == after.nodes_of(name):
        return False
    none = ((),) * after.partitions(name)  # also what an image without any rack returns
    pairs = zip(before.racks(name) or none, after.racks(name) or none, strict=True)
    return any(sorted(old) != sorted(new) for old, new in pairs)
