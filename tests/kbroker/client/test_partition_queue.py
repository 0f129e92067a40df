from kbroker.client.delivery import Batch
from kbroker.client.partition_queue import PartitionQueue, TopicQueues


def batch(name: int) -> Batch:
    made = Batch("t", 0, None, float(name), 1.0)
    made.count = 1
    return made


def test_batches_finish_in_the_order_of_their_first_sending() -> None:
    queue = PartitionQueue("t", 0)
    first, second = batch(1), batch(2)
    for each in (first, second):
        each.attempts = 1
        queue.sent.append(each)
    assert queue.settle(second, 7, -1, None) == []
    assert (second.has_ended, second.done) == (True, False)
    assert queue.settle(first, 6, -1, None) == [first, second]
    assert (first.base_offset, second.base_offset, queue.is_idle) == (6, 7, True)


def test_what_is_withdrawn_is_not_sent_again() -> None:
    queue = PartitionQueue("t", 0)
    ready, retried, flying = batch(1), batch(2), batch(3)
    queue.ready.append(ready)
    queue.retry.append(retried)
    queue.in_flight.append(flying)
    for each in (ready, retried, flying):
        queue.withdraw(each)
    assert (list(queue.ready), queue.retry, queue.in_flight) == ([], [], [flying])


def test_records_that_may_go_anywhere_go_where_there_is_a_leader() -> None:
    topic = TopicQueues("t", 4, [1, 3], 0.0)
    chosen = set()
    for _ in range(100):
        topic.change_sticky()
        chosen.add(topic.sticky.partition)
    assert chosen == {1, 3}
    assert {topic.turn_sticky() for _ in range(2)} == {1, 3}
    topic.learn("t", 4, [0])
    assert topic.sticky.partition == 0, "at once, not when its batch is full"


def test_without_any_leader_all_partitions_have_their_turn() -> None:
    topic = TopicQueues("t", 3, [], 0.0)
    assert {topic.turn_sticky() for _ in range(3)} == {0, 1, 2}
    topic.learn("t", 2, [])
    assert topic.sticky.partition < 2
