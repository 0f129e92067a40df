"""Buffers are lent while somebody looks into them, and only then."""

from mmap import mmap
from sys import getrefcount

from kbroker.protocol.records.buffers import BufferPool


def test_a_buffer_nobody_looks_into_is_lent_again() -> None:
    pool = BufferPool()
    first = memoryview(pool.borrow(1000))
    second = memoryview(pool.borrow(1000))
    assert first.obj is not second.obj
    kept = first.obj
    first.release()
    assert pool.borrow(900) is kept


def test_what_is_lent_is_as_large_as_was_asked() -> None:
    pool = BufferPool()
    for size in (0, 1, 64, 65, 1000, 1024, 1025, (1 << 20) + 1, (1 << 21) - 1, 1 << 21):
        assert len(pool.borrow(size)) >= size


def test_a_large_buffer_takes_little_more_than_was_asked() -> None:
    pool = BufferPool()
    for size in range((1 << 20) + 1, 1 << 24, 999_999):
        assert size <= len(pool.borrow(size)) <= size * 9 / 8 + 1


def test_a_large_buffer_is_lent_again_for_somewhat_less() -> None:
    pool = BufferPool()
    first = pool.borrow(17_000_000)
    assert pool.borrow(9_500_000) is first
    assert pool.borrow(8_000_000) is not first


def test_a_large_buffer_is_lent_again_for_an_answer_of_half_as_many_batches() -> None:
    pool = BufferPool()
    assert pool.borrow((8 << 20) + 100) is pool.borrow((4 << 20) + 50)


def test_the_oldest_buffers_are_forgotten_when_there_are_too_many_bytes() -> None:
    pool = BufferPool(max_bytes=4096)
    views = [memoryview(pool.borrow(1024)) for _ in range(9)]
    assert len(pool._buffers) == 4
    del views
    assert pool.borrow(1024) in pool._buffers


def test_a_slice_keeps_its_buffer_lent() -> None:
    pool = BufferPool()
    part = memoryview(pool.borrow(100))[:3]
    assert pool.borrow(100) is not part.obj


def test_a_cleared_pool_holds_nothing_and_leaves_what_is_lent_alone() -> None:
    pool = BufferPool()
    free, lent = pool.borrow(100), memoryview(pool.borrow(1 << 20))
    lent[:3] = b"abc"
    pool.clear()
    assert getrefcount(free) == 2
    others = [memoryview(pool.borrow(1 << 20)) for _ in range(3)]
    assert all(other.obj is not lent.obj for other in others)
    assert bytes(lent[:3]) == b"abc"


def test_memory_in_huge_pages_is_lent_again_like_any_other() -> None:
    pool = BufferPool()
    first = memoryview(pool.borrow(5 << 20))
    assert isinstance(first.obj, mmap)
    first[:4] = b"abcd"
    part = first[:4]
    first.release()
    second = memoryview(pool.borrow(5 << 20))
    assert second.obj is not part.obj
    assert bytes(part) == b"abcd"
    kept = part.obj
    part.release()
    assert pool.borrow(5 << 20) is kept
