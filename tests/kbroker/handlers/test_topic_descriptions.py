"""What is kept of topics for Metadata is what a fresh look would find, and is not made again without need."""

import pytest

from kbroker.cluster.metadata_cache import MetadataCache
from kbroker.handlers.topic_descriptions import MOST_FORMS, TopicDescriptions, descriptions_in
from kbroker.protocol.codec import EncodedArray, decode, encode
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.metadata import MetadataResponse
from kbroker.protocol.messages.replication import LEADER_BEING_DELETED
from tests.kbroker.cluster.test_metadata_cache import update
from tests.protocol.frames import joined


def all_of(descriptions: TopicDescriptions) -> EncodedArray:
    work = descriptions.of_all()
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: EncodedArray = done.value
            return found


def told(cache: MetadataCache, version: int = 9) -> dict[str, MetadataResponse.MetadataResponseTopic]:
    """What a client is told; compared with what somebody would be told who kept nothing."""
    found = all_of(descriptions_in(cache, version, "PLAINTEXT", False))
    fresh = all_of(TopicDescriptions(cache, version, "PLAINTEXT", False))
    assert (len(found), joined(found.parts)) == (len(fresh), joined(fresh.parts))
    answer = MetadataResponse(brokers=[], topics=found)  # type: ignore[arg-type]
    return {topic.name or "": topic for topic in decode(MetadataResponse, encode(answer, version), version).topics}


@pytest.mark.parametrize("version", [0, 8, 9, 12])
def test_topics_come_change_and_go(version: int) -> None:
    cache = MetadataCache()
    cache.update(update(0, 1))
    cache.update(update(0, topic="bills", topic_id=b"b" * 16))
    assert {name: len(topic.partitions) for name, topic in told(cache, version).items()} == {"orders": 2, "bills": 1}
    cache.update(update(1, leader=7))
    first, second = told(cache, version)["orders"].partitions
    assert (first.leader_id, second.leader_id) == (1, -1)
    assert second.error_code is ErrorCode.LEADER_NOT_AVAILABLE
    cache.update(update(0, leader=LEADER_BEING_DELETED, topic="bills", topic_id=b"b" * 16))
    assert told(cache, version).keys() == {"orders"}
    cache.update(update(0, topic="bills", topic_id=b"c" * 16))
    assert told(cache, version).keys() == {"orders", "bills"}
    cache.forget(["orders"])
    assert told(cache, version).keys() == {"bills"}


def test_a_broker_that_goes_takes_its_leaderships_along() -> None:
    cache = MetadataCache()
    cache.update(update(0))
    assert told(cache)["orders"].partitions[0].leader_id == 1
    gone = update(0, topic="bills", topic_id=b"b" * 16)
    gone.live_brokers = []
    cache.update(gone)
    assert told(cache)["orders"].partitions[0].leader_id == -1


def test_nothing_is_described_again_before_it_changes() -> None:
    cache = MetadataCache()
    cache.update(update(0))
    cache.update(update(0, topic="bills", topic_id=b"b" * 16))
    descriptions = descriptions_in(cache, 9, "PLAINTEXT", False)
    orders = descriptions.of(cache.topics["orders"])
    everything = all_of(descriptions)
    assert all_of(descriptions_in(cache, 9, "PLAINTEXT", False)) is everything
    cache.update(update(1, topic="bills", topic_id=b"b" * 16))
    assert all_of(descriptions) is not everything
    assert descriptions.of(cache.topics["orders"]) is orders


def test_only_the_forms_asked_for_last_are_kept() -> None:
    cache = MetadataCache()
    first = descriptions_in(cache, 0, "PLAINTEXT", False)
    for version in range(1, MOST_FORMS):
        descriptions_in(cache, version, "PLAINTEXT", False)
    assert descriptions_in(cache, 0, "PLAINTEXT", False) is first
    descriptions_in(cache, MOST_FORMS, "PLAINTEXT", False)
    assert len(cache.descriptions) == MOST_FORMS
    assert descriptions_in(cache, 0, "PLAINTEXT", False) is first
