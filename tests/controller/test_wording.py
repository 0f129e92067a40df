"""The log's words for many things."""

from __future__ import annotations

from kbroker.controller.wording import Tally, count, few
from kbroker.controller.znodes import TopicPartition


def test_a_few_are_named_and_the_rest_is_counted() -> None:
    assert few([]) == ""
    assert few([1, 2, 3]) == "1, 2, 3"
    assert few(range(10)) == "0, 1, 2 and 7 more"


def test_one_is_not_many() -> None:
    assert (count(1, "partition"), count(0, "partition")) == ("1 partition", "0 partitions")


def test_leaders_are_named_with_what_they_lead() -> None:
    led = [(TopicPartition("t", number), 3 if number else 1) for number in range(5)]
    tally = Tally()
    assert not tally
    for partition, leader in led:
        tally.add(partition, leader)
    assert str(tally) == "broker 1 leads 1 (t-0), broker 3 leads 4 (t-1, t-2, t-3 and 1 more)"
