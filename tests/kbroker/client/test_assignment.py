"""The one owner of what is fetched, decoded and given: no loop, no broker."""

import pytest

from kbroker.client.assignment import Assignment
from kbroker.client.chunk_decoder import decode_records
from kbroker.client.partition_state import COMMITTED, Answer, Chunk, PartitionState
from kbroker.client.types import EARLIEST, TopicPartition
from kbroker.protocol.records.builder import BatchBuilder

A, B, C = (TopicPartition("t", number) for number in range(3))


def batch(base_offset: int, count: int) -> bytes:
    builder = BatchBuilder(1 << 16)
    for number in range(count):
        assert builder.append(None, b"%d" % (base_offset + number), [], 1)
    return bytes(builder.build(base_offset=base_offset))


def filled(assignment: Assignment, key: TopicPartition, *batches: bytes) -> PartitionState:
    state = assignment.begin(key, offset=0)
    for data in batches:
        state.add(Chunk(data))
    return state


def decode(assignment: Assignment, state: PartitionState, limit: int = 1000) -> None:
    assignment.put_ahead(state, decode_records(state, limit, True))


def given(assignment: Assignment, limit: int) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in assignment.take(limit)]


def test_a_partition_that_goes_and_comes_back_is_another_one() -> None:
    assignment = Assignment()
    first = assignment.begin(A, COMMITTED)
    first.move(50)
    generation = first.generation
    assignment.drop([A])
    again = assignment.begin(A, COMMITTED)
    again.move(0)
    assert first.generation != generation, "no answer to what was asked before counts"
    assert assignment.states[A] is again
    assert list(assignment.hungry) == [again]


def test_what_is_to_be_done_with_a_partition_follows_from_how_it_stands() -> None:
    assignment = Assignment()
    state = assignment.begin(A, EARLIEST)
    assert (list(assignment.unplaced), list(assignment.hungry)) == ([state], [])
    state.move(0)
    assert (list(assignment.unplaced), list(assignment.hungry)) == ([], [state])
    state.fetching(True)
    assert not assignment.hungry
    state.fetching(False)
    state.add(Chunk(batch(0, 2)))
    assert (assignment.next_ready(with_problems=False), list(assignment.hungry)) == (state, [state])
    state.add(Chunk(batch(2, 2)))
    assert (list(assignment.hungry), list(assignment.full)) == ([], [state])
    state.pause(True)
    assert assignment.next_ready(with_problems=True) is None
    assert (list(assignment.full), list(assignment.paused)) == ([], [state])
    state.pause(False)
    state.chunk_done()
    assert (list(assignment.hungry), list(assignment.full)) == ([state], [])
    state.stop(ValueError())
    assert not assignment.hungry
    assignment.drop([A])
    assert (assignment.next_ready(with_problems=True), assignment.states) == (None, {})


def test_partitions_are_delivered_in_turn_and_problems_only_when_they_are_asked_for() -> None:
    assignment = Assignment()
    first, second = filled(assignment, A, batch(0, 1)), filled(assignment, B, batch(0, 1))
    third = assignment.begin(C, offset=0)
    third.stop(ValueError())
    turns = [assignment.next_ready(with_problems=False) for _ in range(3)]
    assert turns == [first, second, first]
    assert assignment.next_ready(with_problems=True) is third
    third.take_problem()
    assert third in assignment.hungry, "tried again"


def test_an_answer_is_in_memory_until_its_last_chunk_is_decoded_or_forgotten() -> None:
    assignment = Assignment()
    answer = Answer(1000)
    first, second = assignment.begin(A, offset=0), assignment.begin(B, offset=0)
    first.add(Chunk(batch(0, 1), None, answer))
    second.add(Chunk(batch(0, 1), None, answer))
    assert assignment.buffered_bytes == 1000
    decode(assignment, first)
    assert assignment.buffered_bytes == 1000
    assignment.drop([B])
    assert assignment.buffered_bytes == 0


def test_what_does_not_fit_is_given_next_and_is_decoded_only_once() -> None:
    assignment = Assignment()
    state = filled(assignment, A, batch(0, 5))
    decode(assignment, state, 2)
    assert not state.chunks
    assert given(assignment, 2) == [(0, 0), (0, 1)]
    assert (assignment.positions(), assignment.position(state), state.offset) == ({A: 2}, 2, 5)
    assert given(assignment, 10) == [(0, 2), (0, 3), (0, 4)]
    assert assignment.positions() == {A: 5}


def test_what_was_given_last_can_be_taken_back_and_what_was_before_cannot() -> None:
    assignment = Assignment()
    for key in (A, B):
        decode(assignment, filled(assignment, key, batch(0, 4)))
    assert given(assignment, 3) == [(0, 0), (0, 1), (0, 2)]
    assignment.begin_call()
    assert given(assignment, 3) == [(0, 3), (1, 0), (1, 1)]
    assignment.take_back()
    assert assignment.positions() == {A: 3, B: 0}
    assert given(assignment, 10) == [], "it is fetched again"
    assignment.take_back()
    assert assignment.positions() == {A: 3, B: 0}


@pytest.mark.parametrize(("committed", "position"), [(None, 4), (2, 2), (4, 4), (0, 0)])
def test_what_is_committed_is_not_taken_back(committed: int | None, position: int) -> None:
    assignment = Assignment()
    decode(assignment, filled(assignment, A, batch(0, 4)))
    assignment.begin_call()
    assignment.take(10)
    if committed is None:
        assignment.done()
    else:
        assignment.done_before(A, committed)
    assignment.take_back()
    assert assignment.positions() == {A: position}


def test_the_record_that_an_iterator_gave_last_is_taken_back() -> None:
    assignment = Assignment()
    decode(assignment, filled(assignment, A, batch(0, 4)))
    run = assignment.first_run()
    run.popleft()
    assignment.taken = run.popleft()
    assert assignment.positions() == {A: 2}
    assignment.take_back()
    assert assignment.positions() == {A: 1}
    assert not run, "the iterator has nothing to go on with"


def test_a_seek_forgets_what_was_fetched_decoded_and_given() -> None:
    assignment = Assignment()
    state = filled(assignment, A, batch(0, 4), batch(4, 4))
    decode(assignment, state)
    assignment.take(2)
    assignment.move(state, 7)
    assert (assignment.positions(), assignment.records_ahead, assignment.buffered_bytes) == ({A: 7}, 0, 0)
    assignment.take_back()
    assert assignment.positions() == {A: 7}, "the application wanted to be there"


def test_what_is_decoded_and_not_given_may_be_fetched_again_with_its_epoch() -> None:
    assignment = Assignment()
    state, other = filled(assignment, A, batch(0, 4)), assignment.begin(B, EARLIEST)
    decode(assignment, state)
    assignment.take(1)
    assignment.give_back()
    assert (state.offset, state.fetch_offset, assignment.records_ahead) == (1, 1, 0)
    assignment.put_ahead(other, [])
    assignment.give_back()
    assert other.reset_to == EARLIEST, "of this one nothing was decoded"


def test_keeping_some_partitions_leaves_them_where_they_are() -> None:
    assignment = Assignment()
    state = filled(assignment, A, batch(0, 4))
    assignment.begin(B, EARLIEST)
    assignment.keep_only([C, A], COMMITTED)
    assert set(assignment.states) == {A, C}
    assert assignment.states[A] is state
    assert assignment.states[C].reset_to == COMMITTED
