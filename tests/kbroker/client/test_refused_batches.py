import pytest

from kbroker.client.refused_batches import Remedy, ends_identity, remedy_for
from kbroker.protocol.errors import ErrorCode


@pytest.mark.parametrize(
    ("code", "is_first", "is_current", "remedy"),
    [
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, True, True, Remedy.RAISE_EPOCH),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False, True, Remedy.AGAIN),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, True, False, Remedy.AGAIN_IN_NEW_EPOCH),
        (ErrorCode.UNKNOWN_PRODUCER_ID, True, True, Remedy.RAISE_EPOCH),
        (ErrorCode.UNKNOWN_PRODUCER_ID, False, False, Remedy.AGAIN_IN_NEW_EPOCH),
        (ErrorCode.MESSAGE_TOO_LARGE, True, True, Remedy.SPLIT),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True, True, Remedy.AGAIN),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, True, True, Remedy.NONE),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, True, True, Remedy.NONE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, True, True, Remedy.NONE),
    ],
)
def test_what_helps_a_refused_batch_is_what_helps_javas(
    code: ErrorCode, is_first: bool, is_current: bool, remedy: Remedy
) -> None:
    assert remedy_for(code, records=2, is_first=is_first, is_of_current_epoch=is_current) is remedy


def test_one_record_that_is_too_large_cannot_be_split() -> None:
    code = ErrorCode.MESSAGE_TOO_LARGE
    assert remedy_for(code, records=1, is_first=True, is_of_current_epoch=True) is Remedy.NONE


def test_only_a_fenced_producer_needs_a_new_id() -> None:
    assert [code.name for code in ErrorCode if ends_identity(code)] == [
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "PRODUCER_FENCED",
    ]
