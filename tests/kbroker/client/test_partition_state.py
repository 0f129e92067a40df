from kbroker.client.partition_state import Chunk, PartitionState
from kbroker.client.types import TopicPartition
from kbroker.protocol.records.batch import stamp
from kbroker.protocol.records.builder import BatchBuilder

KEY = TopicPartition("t", 0)


def batch(base_offset: int, count: int, epoch: int = 0) -> bytearray:
    builder = BatchBuilder()
    for index in range(count):
        builder.append(None, b"%d" % (base_offset + index))
    made = builder.build(base_offset=base_offset)
    stamp(made, 0, base_offset, epoch)
    return made


def test_an_epoch_is_known_of_every_offset_that_was_fetched() -> None:
    state = PartitionState(KEY)
    state.move(7, epoch=1)
    assert [state.epoch_before(offset) for offset in (6, 7)] == [-1, 1]
    state.add(Chunk(bytes(batch(5, 5, 1) + batch(10, 2, 3))))
    state.add(Chunk(bytes(batch(12, 1, 3) + batch(13, 1, 4))))
    assert [state.epoch_before(offset) for offset in (7, 10, 11, 13, 14)] == [1, 1, 3, 3, 4]
    assert (state.offset, state.fetch_offset) == (7, 14)


def test_epochs_of_what_was_delivered_long_ago_are_forgotten() -> None:
    state = PartitionState(KEY, 0)
    for epoch in range(10):
        state.add(Chunk(bytes(batch(epoch, 1, epoch))))
        state.offset = epoch + 1
    assert state.epochs == [(8, 8), (9, 9)]


def test_moving_forgets_what_was_known() -> None:
    state = PartitionState(KEY, 0)
    state.add(Chunk(bytes(batch(0, 3, 2))))
    state.problem, state.leader_epoch = ValueError(), 2
    state.offset = 2
    state.fetch_again()
    assert (state.offset, state.fetch_offset, state.epoch_before(2)) == (2, 2, 2)
    assert [list(state.chunks), state.problem, state.leader_epoch, state.generation] == [[], None, -1, 1]
    state.move(0)
    assert state.epoch_before(0) == -1


def test_a_preferred_replica_is_read_from_while_it_is_there_and_its_time_lasts() -> None:
    state = PartitionState(KEY, 0)
    assert state.source(1, 7, {1, 2}, 5.0) == 1
    state.prefer(2, 7, 10.0)
    assert state.source(1, 7, {1, 2}, 5.0) == 2
    assert state.source(1, 7, {1}, 5.0) == 1
    assert state.source(1, 7, {1, 2}, 10.0) == 1
    assert state.source(3, 8, {1, 2, 3}, 5.0) == 3, "a new leader may choose otherwise"


def test_what_does_not_follow_is_a_problem_behind_what_does() -> None:
    state = PartitionState(KEY, 5)
    state.add(Chunk(bytes(batch(5, 5) + batch(2, 2) + batch(12, 1))))
    assert (state.fetch_offset, len(state.chunks)) == (10, 1)
    assert "t-0: offset 10 cannot be read: batches overlap" in str(state.problem)
    assert "seek to 12 to skip it" in str(state.problem)


def test_an_answer_of_which_nothing_follows_is_not_kept() -> None:
    state = PartitionState(KEY, 5)
    state.add(Chunk(bytes(batch(1000, 2))), high_watermark=7)
    assert (state.fetch_offset, len(state.chunks), state.owner.buffered_bytes) == (5, 0, 0)
    assert "begins at offset 1000, the partition ends at 7" in str(state.problem)


def test_what_a_follower_gave_out_of_order_is_asked_of_the_leader_for_as_long_as_that_leads() -> None:
    state = PartitionState(KEY, 0)
    state.prefer(2, 7, 1e9)
    state.add(Chunk(bytes(batch(0, 5) + batch(2, 2) + batch(7, 1)), follower_in=7))
    assert (state.problem, state.replica, state.fetch_offset, len(state.chunks)) == (None, -1, 0, 0)
    state.prefer(2, 7, 1e9)
    assert state.replica == -1, "the same leader names it in vain"
    state.add(Chunk(bytes(batch(0, 5) + batch(2, 2) + batch(7, 1))))
    assert (state.fetch_offset, len(state.chunks)) == (5, 1)
    assert "batches overlap" in str(state.problem)
    state.prefer(3, 8, 1e9)
    assert state.replica == 3
