"""The walk over a batch's records: every length that lies is refused."""

from types import ModuleType

import pytest

from kbroker.protocol.records import reader
from kbroker.protocol.records.errors import InvalidRecord
from tests.protocol.records import interpreted

both = pytest.mark.parametrize("module", [reader, interpreted.load()["reader"]], ids=["compiled", "interpreted"])
RECORD = bytes([32, 0, 10, 0, 2, 107, 4, 118, 49, 2, 2, 104, 6, 97, 98, 99]) + b"\0"


def opened(module: ModuleType, payload: bytes, count: int = 1, last_offset_delta: int = 9) -> reader.RecordReader:
    return module.RecordReader(memoryview(payload), 0, len(payload), count, 100, last_offset_delta)  # type: ignore[no-any-return]


@both
def test_a_record_is_taken_apart(module: ModuleType) -> None:
    payload = RECORD[:-1]
    payload = bytes([2 * (len(payload) - 1)]) + payload[1:]
    walk = opened(module, payload)
    assert walk.next_record()
    assert (walk.timestamp, walk.offset_delta, walk.header_count) == (105, 0, 1)
    assert payload[walk.key_start : walk.key_start + walk.key_length] == b"k"
    assert payload[walk.value_start : walk.value_start + walk.value_length] == b"v1"
    walk.start_headers()
    walk.next_header()
    assert payload[walk.key_start : walk.key_start + walk.key_length] == b"h"
    assert payload[walk.value_start : walk.value_start + walk.value_length] == b"abc"
    assert not walk.next_record()


LIES = {
    "length": [14],
    "length cut off": [128],
    "length too long": [128, 128, 128, 128, 16, 0, 0],
    "length 0": [0, 0, 0, 0, 0, 0, 0],
    "length -1": [1, 0, 0, 0, 0, 0, 0],
    "key length": [12, 0, 0, 0, 40, 1, 0],
    "key length -2": [12, 0, 0, 0, 3, 1, 0],
    "value length": [12, 0, 0, 0, 1, 4, 0],
    "headers": [12, 0, 0, 0, 1, 1, 2],
    "headers -1": [12, 0, 0, 0, 1, 1, 1],
    "offset delta": [12, 0, 0, 20, 1, 1, 0],
    "more than its fields": [16, 0, 0, 0, 1, 1, 0, 0, 0],
    "bytes behind the last": [12, 0, 0, 0, 1, 1, 0, 9],
    "timestamp": [30, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2, 0, 1, 1, 0],
    "header without key": [16, 0, 0, 0, 1, 1, 2, 1, 1],
}


@both
@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused(module: ModuleType, lie: str) -> None:
    payload = bytes(LIES[lie])
    with pytest.raises(InvalidRecord):  # noqa: PT012  # which step finds it does not matter
        walk = opened(module, payload)
        while walk.next_record():
            pass


@both
def test_a_range_outside_of_the_payload_is_our_own_mistake(module: ModuleType) -> None:
    with pytest.raises(ValueError, match="payload"):
        module.RecordReader(memoryview(b"abc"), 0, 4, 0, 0, 0)
    with pytest.raises(ValueError, match="contiguous"):
        module.RecordReader(memoryview(bytes(64))[::2], 0, 32, 0, 0, 0)
