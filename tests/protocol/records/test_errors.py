"""The codes of what can be wrong with a batch."""

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.records.errors import CorruptBatch, InvalidRecord


def test_both_errors_carry_the_code_a_broker_answers() -> None:
    assert CorruptBatch("x").code is ErrorCode.CORRUPT_MESSAGE
    assert InvalidRecord("x").code is ErrorCode.INVALID_RECORD
