"""Buffers are used again, but never while somebody looks at them."""

import pytest

from kbroker.network.buffers import SMALLEST, BufferPool, Scratch


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


def test_sizes_come_in_classes_the_smallest_for_small_requests() -> None:
    pool = BufferPool()
    assert len(pool.take(1)) == SMALLEST
    assert len(pool.take(SMALLEST + 1)) == 2 * SMALLEST


@pytest.mark.parametrize("size", [SMALLEST, 1 << 20, 1 << 22])
def test_memory_is_taken_as_bytes_arrive_not_as_they_are_announced(size: int) -> None:
    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    pool = BufferPool()
    before = resident()
    buffers = [pool.take(size) for _ in range((1 << 28) // size)]
    for buffer in buffers:
        buffer[:5] = b"start"
    assert resident() - before < len(buffers) * 8192 + (4 << 20)


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
