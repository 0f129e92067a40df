"""The keys' latest offsets: like a dict, in a fixed memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.protocol.records.offset_map import BYTES_PER_ENTRY, OffsetMap


def test_a_key_that_was_not_added_has_no_offset() -> None:
    found = OffsetMap(1000)
    assert (len(found), found.latest(b"a"), found.latest_offset) == (0, -1, -1)


@pytest.mark.slow
@given(st.lists(st.binary(max_size=40), max_size=200))
def test_it_knows_the_latest_offset_of_each_key(keys: list[bytes]) -> None:
    found = OffsetMap(400 * BYTES_PER_ENTRY)
    for offset, key in enumerate(keys):
        found.add(key, offset)
    expected = {key: offset for offset, key in enumerate(keys)}
    assert len(found) == len(expected)
    assert {key: found.latest(key) for key in expected} == expected
    assert found.latest(b"not there" * 10) == -1


def test_it_is_full_at_its_load_factor_and_still_finds_everything() -> None:
    found = OffsetMap(1000 * BYTES_PER_ENTRY, 0.9)
    number = 0
    while not found.is_full:
        found.add(b"%d" % number, number)
        number += 1
    assert (number, found.utilization) == (900, 0.9)
    with pytest.raises(ValueError, match="full"):
        found.add(b"one more", 1)
    assert [found.latest(b"%d" % each) for each in range(number)] == list(range(number))
    assert found.latest(b"900") == -1


def test_one_slot_stays_empty_however_full_it_may_get() -> None:
    found = OffsetMap(10 * BYTES_PER_ENTRY, 1.0)
    for number in range(9):
        found.add(b"%d" % number, number)
    assert found.is_full
    assert found.latest(b"not there") == -1


def test_a_memory_too_small_for_a_key_is_refused() -> None:
    for size, load_factor in ((0, 0.9), (BYTES_PER_ENTRY, 0.9), (1000, 0.01)):
        with pytest.raises(ValueError, match="hold no key"):
            OffsetMap(size, load_factor)


def test_its_hash_is_siphash_1_3_of_128_bits() -> None:
    """Vectors of the reference implementation's construction, key 00..0f, message 00 01 02 ... of each length."""
    found = OffsetMap(1000)
    found.seed_low = int.from_bytes(bytes(range(8)), "little")
    found.seed_high = int.from_bytes(bytes(range(8, 16)), "little")
    for length in (0, 1, 7, 8, 9, 63):
        found.add(bytes(range(length)), length)
        assert (found.hash_low, found.hash_high) == reference(bytes(range(16)), bytes(range(length)))


def reference(seed: bytes, data: bytes) -> tuple[int, int]:
    """SipHash-1-3-128 as its authors' paper describes it, word by word."""
    mask = (1 << 64) - 1
    k0, k1 = int.from_bytes(seed[:8], "little"), int.from_bytes(seed[8:], "little")
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    v[1] ^= 0xEE

    def rotate(value: int, bits: int) -> int:
        return (value << bits | value >> (64 - bits)) & mask

    def sip_round() -> None:
        v[0] = (v[0] + v[1]) & mask
        v[1] = rotate(v[1], 13) ^ v[0]
        v[0] = rotate(v[0], 32)
        v[2] = (v[2] + v[3]) & mask
        v[3] = rotate(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & mask
        v[3] = rotate(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & mask
        v[1] = rotate(v[1], 17) ^ v[2]
        v[2] = rotate(v[2], 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v[3] ^= word
        sip_round()
        v[0] ^= word
    halves = []
    for place, constant in ((2, 0xEE), (1, 0xDD)):
        v[place] ^= constant
        for _ in range(3):
            sip_round()
        halves.append(v[0] ^ v[1] ^ v[2] ^ v[3])
    return halves[0], halves[1]
