import pytest

from kbroker.client import admin_requests as requests
from kbroker.client.errors import ConfigurationError
from kbroker.client.types import NewTopic, ResourceType


def test_a_manual_assignment_takes_the_place_of_the_counts() -> None:
    request = requests.create_topics([NewTopic("t", 3, 2, None, {0: [1, 2]})], False, 1000)
    assert (request.topics[0].num_partitions, request.topics[0].replication_factor) == (-1, -1)


def test_brokers_answer_for_themselves_and_anybody_for_topics() -> None:
    assert requests.by_node(ResourceType.BROKER, ["1", "2", ""]) == {1: ["1"], 2: ["2"], None: [""]}
    assert requests.by_node(ResourceType.TOPIC, ["a", "b"]) == {None: ["a", "b"]}
    with pytest.raises(ConfigurationError, match="id is a number"):
        requests.by_node(ResourceType.BROKER, ["one"])
