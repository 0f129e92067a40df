# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""For compaction: the latest offset of each key, in a memory of fixed size.

    slot = low half of the key's hash uint64 | high half uint64 | offset + 1, 0 for an empty slot       24 bytes

Open addressing, linear probing. The keys themselves are not kept, so of two with the same 128 bits one would lose its
records. Kafka hashes with MD5; this is SipHash-1-3 with a key of its own for each map, so that nobody can prepare such
keys. Compiled, nothing here needs Python's lock.
"""

import os

from kbroker.protocol.records import raw
from kbroker.protocol.records.raw import Readable

BYTES_PER_ENTRY = 24

_MASK = 0xFFFFFFFFFFFFFFFF
_START_0 = 0x736F6D6570736575
_START_1 = 0x646F72616E646F6D
_START_2 = 0x6C7967656E657261
_START_3 = 0x7465646279746573
_MOST_SLOTS = 0xFFFFFFFF
_FINAL_ROUNDS = 3


class OffsetMap:
    """Key -> latest offset.

    `latest_offset` is how far the log has been mapped: every record up to it is in the map. -1: nothing was.
    """

    __slots__ = (
        "capacity",
        "cells",
        "count",
        "hash_high",
        "hash_low",
        "latest_offset",
        "seed_high",
        "seed_low",
        "slots",
        "table",
    )

    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None:
        """A map that fills at most `load_factor` of so many bytes. Raises ValueError when not even one key fits."""
        slots = min(memory_bytes // BYTES_PER_ENTRY, _MOST_SLOTS)
        capacity = min(int(slots * load_factor), slots - 1)  # searches end at an empty slot
        if capacity < 1:
            raise ValueError(f"{memory_bytes} bytes filled to {load_factor:.0%} hold no key")
        self.slots = slots
        self.capacity = capacity
        self.table = memoryview(bytearray(slots * BYTES_PER_ENTRY))
        self.cells = raw.uint64_address(self.table)
        self.seed_low = int.from_bytes(os.urandom(8), "little")
        self.seed_high = int.from_bytes(os.urandom(8), "little")
        self.count = 0
        self.latest_offset = -1
        self.hash_low = self.hash_high = 0

    def __len__(self) -> int:
        """How many keys there are."""
        return self.count

    @property
    def utilization(self) -> float:
        """How full the memory is, 0 to 1."""
        return float(self.count) / self.slots

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another key."""
        return self.count >= self.capacity

    def add(self, key: bytes, offset: int) -> None:
        """Note the offset of a key, which is larger than all before. Raises ValueError when the map is full."""
        if self.count >= self.capacity:
            raise ValueError("the map is full")
        self.put(raw.bytes_address(key), 0, len(key), offset)

    def latest(self, key: bytes) -> int:
        """The latest offset of a key, -1 when it is not there."""
        return self.find(raw.bytes_address(key), 0, len(key))

    def put(self, data: Readable, start: int, length: int, offset: int) -> None:
        """The same for the key in data[start : start + length]; the caller has seen to it that there is room."""
        at = self.place(data, start, length)
        cells = self.cells
        if cells[at + 2] == 0:
            cells[at] = self.hash_low
            cells[at + 1] = self.hash_high
            self.count += 1
        cells[at + 2] = offset + 1

    def find(self, data: Readable, start: int, length: int) -> int:
        """The latest offset of the key in data[start : start + length], -1 when it is not there."""
        at = self.place(data, start, length)
        return self.cells[at + 2] - 1

    def place(self, data: Readable, start: int, length: int) -> int:
        """Where a key's slot is, or the empty one that it would get."""
        self.digest(data, start, length)
        low = self.hash_low
        high = self.hash_high
        cells = self.cells
        slots = self.slots
        slot = ((high >> 32) * slots) >> 32
        while True:
            at = 3 * slot
            if cells[at + 2] == 0 or (cells[at] == low and cells[at + 1] == high):
                return at
            slot += 1
            if slot == slots:
                slot = 0

    def digest(self, data: Readable, start: int, length: int) -> None:
        """Put the key's SipHash-1-3 of 128 bits into hash_low and hash_high."""
        mask = _MASK
        v0 = self.seed_low ^ _START_0
        v1 = self.seed_high ^ _START_1 ^ 0xEE
        v2 = self.seed_low ^ _START_2
        v3 = self.seed_high ^ _START_3
        words = length // 8
        last = (length & 255) << 56
        shift = 0
        for position in range(start + 8 * words, start + length):
            word = data[position]
            last |= word << shift
            shift += 8
        step = 0
        while step <= words + 2 * _FINAL_ROUNDS:
            word = 0
            if step < words:
                word = raw.load_word(data, start + 8 * step)
            elif step == words:
                word = last
            elif step == words + 1:
                v2 ^= 0xEE
            elif step == words + 1 + _FINAL_ROUNDS:
                self.hash_low = v0 ^ v1 ^ v2 ^ v3
                v1 ^= 0xDD
            v3 ^= word
            v0 = (v0 + v1) & mask
            v1 = (((v1 << 13) & mask) | (v1 >> 51)) ^ v0
            v0 = ((v0 << 32) & mask) | (v0 >> 32)
            v2 = (v2 + v3) & mask
            v3 = (((v3 << 16) & mask) | (v3 >> 48)) ^ v2
            v0 = (v0 + v3) & mask
            v3 = (((v3 << 21) & mask) | (v3 >> 43)) ^ v0
            v2 = (v2 + v1) & mask
            v1 = (((v1 << 17) & mask) | (v1 >> 47)) ^ v2
            v2 = ((v2 << 32) & mask) | (v2 >> 32)
            v0 ^= word
            step += 1
        self.hash_high = v0 ^ v1 ^ v2 ^ v3
