"""Buffers are used again, but never while somebody looks at them."""

import mmap

from kbroker.network.buffers import LARGEST_ON_HEAP, SMALLEST, BufferPool, Scratch


def test_a_buffer_given_back_is_handed_out_again() -> None:
    pool = BufferPool()
    buffer = pool.take(50_000)
    identity = id(buffer)
    pool.give_back(buffer)
    del buffer
    assert id(pool.take(60_000)) == identity


def test_a_buffer_that_somebody_still_looks_at_is_not_handed_out() -> None:
    pool = BufferPool()
    buffer = pool.take(50_000)
    view = memoryview(buffer)[10:20]
    identity = id(buffer)
    pool.give_back(buffer)
    del buffer
    assert id(pool.take(50_000)) != identity
    assert view.nbytes == 10


def test_small_requests_share_the_smallest_class_and_huge_ones_are_maps() -> None:
    pool = BufferPool()
    assert len(pool.take(1)) == SMALLEST
    assert len(pool.take(SMALLEST + 1)) == 2 * SMALLEST
    huge = pool.take(LARGEST_ON_HEAP + 1)
    assert isinstance(huge, mmap.mmap)
    assert len(huge) == 2 * LARGEST_ON_HEAP


def test_the_pool_keeps_no_more_than_it_may() -> None:
    pool = BufferPool(keep_bytes=100_000)
    buffers = [pool.take(40_000) for _ in range(5)]
    for buffer in buffers:
        pool.give_back(buffer)
    assert pool.kept_bytes <= 100_000
    pool.trim()
    assert pool.kept_bytes == 0


def test_scratch_is_shared_until_somebody_keeps_a_view() -> None:
    scratch = Scratch(100)
    first = id(scratch.take())
    assert id(scratch.take()) == first
    view = memoryview(scratch.take())
    assert id(scratch.take()) != first
    assert view.nbytes == 100
