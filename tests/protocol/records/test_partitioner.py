"""Keys go where Java's default partitioner sends them."""

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
