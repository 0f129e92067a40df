import random

import pytest

from kbroker.protocol.records.batch import HEADER_SIZE, stamp
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.succession import UNKNOWN, Succession, look_through


def batch(base_offset: int, count: int, epoch: int = 0) -> bytes:
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(None, b"value")
    made = builder.build(base_offset=base_offset)
    stamp(made, 0, base_offset, epoch)
    return bytes(made)


def answer(*batches: tuple[int, int]) -> bytes:
    return b"".join(batch(*each) for each in batches)


def size(*batches: tuple[int, int]) -> int:
    return len(answer(*batches))


def test_reading_goes_on_behind_the_last_whole_batch() -> None:
    records = batch(5, 3) + batch(8, 2, 1) + batch(10, 4)[:-1]
    assert look_through(records, 5) == Succession(0, len(records), 10, [(5, 0), (8, 1)])


def test_nothing_is_known_of_nothing() -> None:
    assert look_through(b"", 7) == Succession(0, 0, 7, [])
    assert look_through(batch(7, 1)[: HEADER_SIZE - 1], 7).next_offset == 7


def test_a_batch_begins_before_what_was_asked_for_and_gaps_are_fine() -> None:
    records = answer((5, 5), (12, 1), (20, 3))
    assert look_through(records, 8, 23) == Succession(0, len(records), 23, [(5, 0)])


def test_others_may_have_come_since_the_high_watermark_was_read() -> None:
    assert not look_through(answer((5, 5), (10, 2)), 5, 5).problem


def test_what_cannot_be_read_is_left_for_the_decoder() -> None:
    bad = bytearray(batch(10, 1))
    bad[16] = 9
    records = batch(5, 5) + bytes(bad)
    assert look_through(records, 5) == Succession(0, len(records), 10, [(5, 0)])


def test_a_base_offset_that_is_too_small_ends_what_can_be_read() -> None:
    seen = look_through(answer((5, 5), (2, 2), (12, 3)), 5)
    assert (seen.end, seen.next_offset, seen.resume_at) == (size((5, 5)), 10, 12)
    assert seen.problem == "batches overlap: one ends at offset 9, the next one begins at 2"


def test_a_base_offset_that_is_too_large_is_not_believed() -> None:
    seen = look_through(answer((5, 5), (1034, 2), (12, 3)), 5)
    assert (seen.end, seen.next_offset, seen.resume_at) == (size((5, 5)), 10, 12)
    assert seen.problem == "batches overlap: one ends at offset 1035, the next one begins at 12"
    assert seen.epochs == [(5, 0)]


def test_of_two_that_are_too_large_neither_is_believed_and_what_is_behind_them_is_not_passed_over() -> None:
    seen = look_through(answer((5, 5), (1034, 2), (2034, 3), (15, 3)), 5, 18)
    assert (seen.end, seen.next_offset, seen.resume_at) == (size((5, 5)), 10, 15)
    seen = look_through(answer((5, 5), (12, 2), (2034, 3), (17, 3)), 5, 20)
    assert (seen.end, seen.next_offset, seen.resume_at) == (size((5, 5), (12, 2)), 14, 17)


def test_one_that_is_too_large_behind_one_that_is_too_small_is_not_where_to_go_on() -> None:
    seen = look_through(answer((5, 5), (2, 2), (1034, 3), (15, 3)), 5, 18)
    assert (seen.next_offset, seen.resume_at) == (10, 15)


def test_a_first_batch_that_is_too_large_is_passed_over_where_what_was_asked_for_stands_behind_it() -> None:
    records = answer((1034, 2), (12, 3), (15, 1))
    assert look_through(records, 12, 16) == Succession(size((1034, 2)), len(records), 16, [(12, 0)])
    assert look_through(records, 10, 16).problem


@pytest.mark.parametrize("records", [answer((1034, 2)), answer((5, 5), (1034, 2))])
def test_a_batch_behind_a_gap_does_not_end_behind_the_partition(records: bytes) -> None:
    seen = look_through(records, 5, 12)
    assert seen.problem == "a batch says that it begins at offset 1034, the partition ends at 12"
    assert (seen.end, seen.resume_at) == (len(records) - size((1034, 2)), UNKNOWN)
    assert not look_through(records, 5).problem


def test_an_answer_that_lies_before_what_was_asked_for_is_no_answer() -> None:
    seen = look_through(answer((1, 2), (3, 2)), 8)
    assert (seen.end, seen.next_offset) == (0, 8)
    assert seen.problem == "only batches before it came, the last of them ends at offset 4"


def test_what_was_asked_for_is_not_passed_over_behind_a_batch_before_it() -> None:
    seen = look_through(answer((1, 2), (12, 3)), 8)
    assert (seen.next_offset, seen.resume_at) == (8, 12)
    assert seen.problem == "behind a batch that ends at offset 2 comes one that begins at 12"
    assert not look_through(answer((1, 2), (5, 6)), 8).problem


def test_several_behind_gaps_that_lie_do_not_end_behind_the_partition() -> None:
    seen = look_through(answer((5, 5), (1034, 2), (2034, 3)), 5, 15)
    assert (seen.end, seen.next_offset, seen.resume_at) == (size((5, 5)), 10, UNKNOWN)
    assert seen.problem == "a batch says that it begins at offset 1034, the partition ends at 15"
    assert look_through(answer((5, 5), (1034, 2), (2034, 3))[:-1], 5, 15) == seen


def test_a_whole_batch_behind_a_gap_is_not_doubted_for_one_behind_it_that_is_too_small() -> None:
    records = answer((5, 5), (20, 3), (2, 2), (30, 3))
    seen = look_through(records, 5, 33)
    assert (seen.end, seen.next_offset, seen.resume_at) == (size((5, 5), (20, 3)), 23, 30)


def test_a_last_batch_cut_short_shows_that_the_one_before_it_lies() -> None:
    records = answer((5, 5), (1034, 2), (12, 3))[:-1]
    seen = look_through(records, 5, 5000)
    assert (seen.end, seen.next_offset, seen.resume_at) == (size((5, 5)), 10, 12)


def test_of_what_was_asked_for_nothing_is_passed_over_behind_several_that_are_too_large() -> None:
    records = answer((1034, 2), (2034, 2), (12, 3), (15, 1))
    seen = look_through(records, 12, 16)
    assert seen == Succession(size((1034, 2), (2034, 2)), len(records), 16, [(12, 0)])


def test_whatever_one_or_two_batches_say_all_before_them_is_read_and_reading_goes_on_right_behind_them() -> None:
    rng = random.Random(7)
    for _ in range(3_000):
        truth, base = [], 5_000
        for _ in range(rng.randint(2, 9)):
            base += rng.choice((0, 0, rng.randint(1, 20)))  # compaction leaves gaps
            truth.append((base, count := rng.randint(1, 6)))
            base += count
        liars = sorted(rng.sample(range(len(truth)), rng.randint(1, min(2, len(truth)))))
        told = list(truth)
        for liar, bit in zip(liars, rng.sample(range(8, 20), len(liars)), strict=True):
            told[liar] = (truth[liar][0] ^ 1 << bit, truth[liar][1])
        check(truth, told, liars, base)


def check(truth: list[tuple[int, int]], told: list[tuple[int, int]], liars: list[int], high_watermark: int) -> None:
    asked = truth[0][0]
    seen = look_through(answer(*told), asked, high_watermark)
    first = liars[0]
    read = sum(truth[first - 1]) if first else asked
    behind = [base for number, (base, _) in enumerate(truth) if number > first and number not in liars]
    assert seen.problem, told
    assert seen.next_offset == read, told
    if first:
        assert (seen.start, seen.end) == (0, size(*truth[:first])), told
    if behind:
        assert seen.resume_at == behind[0], told
