"""Both forms of the searches: the compiled one and the .py."""

import random
import struct
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from kbroker.segment import names, search
from tests.segment.batches import batch, old_messages


def interpreted() -> ModuleType:
    module = module_from_spec(spec_from_loader("interpreted_search", loader=None))  # type: ignore[arg-type]
    source = (Path(names.__file__).parent / "search.py").read_text()
    exec(compile(source, "search.py", "exec"), module.__dict__)
    return module


BOTH = pytest.mark.parametrize("found", [search, interpreted()], ids=["as built", "interpreted"])


def stamped(batches: list[bytearray], offsets: list[int]) -> bytes:
    for each, offset in zip(batches, offsets, strict=True):
        each[:8] = struct.pack(">q", offset)
    return b"".join(batches)


@BOTH
@pytest.mark.parametrize(("form", "start", "is_long"), [(">ii", 0, False), (">ii", 4, False), (">qi", 0, True)])
def test_entries_up_to_a_limit_are_counted_as_by_looking_at_each(
    found: ModuleType, form: str, start: int, is_long: bool
) -> None:
    rng = random.Random(form)
    numbers = sorted(rng.sample(range(-(1 << 20), 1 << 31), 99))
    pack = struct.Struct(form)
    entries = memoryview(b"".join(pack.pack(n, 7) if not start else pack.pack(7, n) for n in numbers))
    for limit in (-1 << 40, *(n + d for n in numbers for d in (-1, 0, 1)), 1 << 40):
        for count in (0, 1, 50, 99, 1000):
            expected = sum(number <= limit for number in numbers[:count])
            assert found.count_up_to(entries, count, limit, pack.size, start, is_long) == expected


@BOTH
def test_a_walk_ends_at_the_batch_that_holds_the_offset_or_goes_on_behind_the_chunk(found: ModuleType) -> None:
    batches = [batch(count) for count in (1, 3, 2)]
    sizes = [len(each) for each in batches]
    data = stamped(batches, [10, 11, 20])
    room, last = len(data), len(data) - 61
    places = [0, sizes[0], sizes[0] + sizes[1]]
    for offset, expected in ((0, 0), (10, 0), (11, 1), (13, 1), (14, 2), (21, 2)):
        place, size, _ = found.find_batch(memoryview(data), last, room, offset, 10, -1)
        assert (place, size) == (places[expected], sizes[expected])
    assert found.find_batch(memoryview(data), last, room, 22, 10, 10) == (len(data), 0, 22)
    assert found.find_batch(memoryview(data), sizes[0], room, 20, 0, -1) == (places[2], 0, 14)


@BOTH
def test_messages_of_old_hold_one_offset_each(found: ModuleType) -> None:
    data = old_messages(1, first=7) + old_messages(1, first=8)
    half = len(data) // 2
    chunk = memoryview(data + b"\0")
    assert found.find_batch(chunk, len(data) - 26, len(data), 8, 7, 7)[:2] == (half, half)


@BOTH
def test_what_is_no_batch_is_told_with_its_place(found: ModuleType) -> None:
    good = stamped([batch(), batch()], [5, 6])
    half = len(good) // 2

    def walk(data: bytes, floor: int = 5, indexed: int = -1, room: int = len(good)) -> tuple[int, int, int]:
        result: tuple[int, int, int] = found.find_batch(memoryview(data), len(data) - 61, room, 6, floor, indexed)
        return result

    assert walk(good)[:2] == (half, half)
    assert walk(good, floor=6)[:2] == (0, search.NO_BATCH)
    assert walk(good, indexed=4)[:2] == (0, search.BEYOND_INDEX)
    assert walk(good, room=len(good) - 1)[:2] == (half, search.NO_BATCH)
    for place, wrong in ((8, struct.pack(">i", 48)), (8, b"\xff"), (23, b"\xff"), (0, b"\xff")):
        bad = bytearray(good)
        bad[half + place : half + place + len(wrong)] = wrong
        assert walk(bytes(bad))[:2] == (half, search.NO_BATCH)


@BOTH
def test_nothing_is_read_beyond_a_chunk_whatever_is_asked_for(found: ModuleType) -> None:
    data = bytes(batch())
    for end in range(27):
        assert found.find_batch(memoryview(data[:end]), 1 << 40, 1 << 40, 9, 0, -1) == (0, 0, 0)
    assert found.count_up_to(memoryview(data[:23]), 100, 1 << 60, 8, 0, False) <= 2
