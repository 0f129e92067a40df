from collections.abc import Callable
from typing import Any

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


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: created(5), "a name is a text, not 5"),
        (lambda: created("t", "3"), "partitions is a whole number, not '3'"),
        (lambda: created("t", 1.5), "partitions is a whole number, not 1.5"),
        (lambda: created("t", True), "partitions is a whole number, not True"),
        (lambda: created("t", 1 << 31), "partitions is a number of 32 bits, not 2147483648"),
        (lambda: created("t", 1, 1 << 15), "replication_factor is a number of 16 bits, not 32768"),
        (lambda: created("t", 1, 1, "abc"), "a dict of t's configuration, key to value, is wanted, not 'abc'"),
        (lambda: requests.create_partitions({"t": None}, {}, False, 1), "t: a total of partitions is a whole number"),  # type: ignore[dict-item]
        (lambda: requests.create_partitions({"t": 3}, {"u": [[1]]}, False, 1), "assignments name the topic 'u'"),
    ],
)
def test_wrong_values_are_named_with_what_is_wanted(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        call()
    assert said in str(refused.value)


def created(*values: Any) -> object:
    return requests.create_topics([NewTopic(*values)], False, 1000)
