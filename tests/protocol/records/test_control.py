"""Markers, and what a read_committed reader does not see."""

import pytest

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records import control
from kbroker.protocol.records.batch import read_header
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.control import AbortedTransactions, ControlType
from kbroker.protocol.records.errors import InvalidRecord
from tests.protocol.records.batches import batch_of


def test_a_marker_tells_its_type_and_epoch() -> None:
    for kind in (ControlType.ABORT, ControlType.COMMIT):
        marker = control.control_batch(kind, 1, 0, 4, 5, base_offset=2)
        assert control.read_marker(marker) == (kind, 4)
        assert read_header(marker).is_control


def said(marker: bytes | bytearray | memoryview, *place: int) -> object:
    """What a marker says, or why it says nothing."""
    try:
        return control.read_marker(marker, *place)
    except KafkaError as error:
        return type(error), str(error)


def test_a_marker_of_the_usual_form_says_what_it_would_say_record_by_record() -> None:
    marker = control.control_batch(ControlType.COMMIT, 1, 0, 4, 5)
    assert said(marker, 0, len(marker)) == (ControlType.COMMIT, 4)
    for position in (21, 22, *range(57, len(marker))):
        for bits in (1, 2, 3, 0x10, 0x80, 0xFF):
            damaged = bytearray(marker)
            damaged[position] ^= bits
            assert said(damaged, 0, len(damaged)) == said(damaged), (position, bits)
    behind = bytes(7) + marker
    assert said(memoryview(behind), 7, len(marker)) == (ControlType.COMMIT, 4)
    with pytest.raises(KafkaError):
        control.read_marker(behind[:-1], 7, len(marker))


def test_a_marker_of_an_unknown_type_has_no_epoch() -> None:
    assert control.read_marker(batch_of([(b"\0\0\0\7", b"", [], 1)])) == (ControlType.UNKNOWN, -1)


@pytest.mark.parametrize(
    ("key", "value"), [(b"", b""), (None, b""), (b"\0\0\0\1", b"\0"), (b"\xff\xff\0\0", b"\0" * 6)]
)
def test_a_marker_that_is_cut_is_refused(key: bytes | None, value: bytes) -> None:
    with pytest.raises(InvalidRecord):
        control.read_marker(batch_of([(key, value, [], 1)]))


def test_only_aborted_producers_are_hidden() -> None:
    def batch(producer_id: int, offset: int) -> bytes:
        filling = BatchBuilder()
        filling.append(b"k", b"v", (), 1)
        return bytes(filling.build(producer_id, 0, 0, transactional=True, base_offset=offset))

    aborted = AbortedTransactions([(1, 1)])
    hidden = [aborted.hides(read_header(data), data, 0) for data in (batch(1, 0), batch(2, 1), batch(1, 2))]
    assert hidden == [False, False, True]
