"""The hash of the topics of a group; the expected values were computed by `Utils` of Kafka 4.2.0."""

from offsetlake.coordinator.epoch_groups.metadata_hash import MetadataHashes, topic_digest
from support.coordinator.consumer_groups import Topics, topic_id

WITH_RACKS, PLAIN = "with-racks", "a"


def _topics() -> Topics:
    topics = Topics()
    topics.create(PLAIN, 3)
    topics.create(WITH_RACKS, 2)
    topics.ids[WITH_RACKS] = "9Ol2zptS5qf5rWsl7xGQnA"
    topics.rack_lists = {(WITH_RACKS, 0): ["rack-b", "é😀", "rack-a"], (WITH_RACKS, 1): ["rack-a", "rack-a"]}
    return topics


def test_hashes_of_topics() -> None:
    topics = _topics()
    hashes = {
        name: int.from_bytes(topic_digest(name, topics.ids[name], topics), signed=True) for name in (PLAIN, WITH_RACKS)
    }
    assert hashes == {WITH_RACKS: -6509713270445173662, PLAIN: -2547312852462251731}


def test_hashes_of_groups() -> None:
    hashes, topics = MetadataHashes(), _topics()
    assert hashes.of([WITH_RACKS], topics) == 7723273550687727149
    assert hashes.of([PLAIN, "missing"], topics) == 4923019393259980214
    assert hashes.of({WITH_RACKS, PLAIN}, topics) == 7312114298682014985
    assert hashes.of([], topics) == hashes.of(["missing"], topics) == 0


def test_hashes_are_kept_until_the_topics_change() -> None:
    hashes, topics = MetadataHashes(), _topics()
    first = hashes.of([PLAIN], topics)
    topics.sizes[PLAIN] = 4
    assert hashes.of([PLAIN], topics) == first
    topics.latest += 1
    assert hashes.of([PLAIN], topics) != first
    topics.extend(PLAIN, 3)
    topics.ids[PLAIN] = topic_id(9)
    assert hashes.of([PLAIN], topics) != first


def test_nothing_is_kept_of_topics_that_do_not_exist() -> None:
    hashes, topics = MetadataHashes(), _topics()
    hashes.of([PLAIN, "missing", "gone"], topics)
    assert hashes._by_name.keys() == {PLAIN}
