"""Buffers are lent while somebody looks into them, and only then."""

from protocol.records.buffers import BufferPool


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
    for size in (0, 1, 64, 65, 1000, 1024, 1025):
        assert len(pool.borrow(size)) >= size


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
