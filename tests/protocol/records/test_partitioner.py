"""Keys go where Java's default partitioner sends them."""

import zlib

import pytest

from kbroker.protocol.records import partitioner
from tests.protocol.records import interpreted

MODULES = (partitioner, interpreted.load()["partitioner"])


def test_murmur2_is_what_java_computes() -> None:
    expected = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    for module in MODULES:
        assert {key: module.murmur2(key) for key in expected} == expected


def test_a_key_has_one_partition_in_every_form() -> None:
    for module in MODULES:
        assert module.partition_for_key(b"foobar", 10) == (-790332482 & 0x7FFFFFFF) % 10
        assert module.partition_for_key(bytearray(b"foobar"), 10) == module.partition_for_key(memoryview(b"foobar"), 10)


def test_no_partitions_at_all_are_refused() -> None:
    for module in MODULES:
        with pytest.raises(ValueError, match="at least one"):
            module.partition_for_key(b"k", 0)
        with pytest.raises(ValueError, match="at least one"):
            module.KeyPartitioner(0)


def test_crc32_is_zlibs() -> None:
    for module in MODULES:
        for key in (b"", b"a", b"hello world", bytes(range(256))):
            assert module.partition_for_key(key, 1 << 32, module.CRC32) == zlib.crc32(key)
            assert module.partition_for_key(key, 7, module.CRC32) == zlib.crc32(key) % 7


def test_fnv1a_is_the_absolute_value_of_the_published_hash_as_a_signed_number() -> None:
    published = {b"": 0x811C9DC5, b"a": 0xE40C292C, b"foobar": 0xBF9CF968, b"e": 0xE00C22E0}
    for module in MODULES:
        for key, unsigned in published.items():
            found = module.partition_for_key(key, 1 << 32, module.FNV1A)
            assert found == abs(unsigned - (1 << 32) if unsigned >> 31 else unsigned)
