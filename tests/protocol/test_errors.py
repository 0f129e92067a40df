"""Error codes and what a client does about them."""

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.primitives import LONGEST_STRING


def test_codes_are_without_gaps_and_unknown_ones_become_minus_one() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 129))
    assert ErrorCode.of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_stale_leader_is_retried_after_new_metadata() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.refreshes_metadata
    assert ErrorCode.REQUEST_TIMED_OUT.retriable
    assert not ErrorCode.REQUEST_TIMED_OUT.refreshes_metadata
    assert not ErrorCode.MESSAGE_TOO_LARGE.retriable


def test_an_error_says_its_code_and_its_reason() -> None:
    assert str(KafkaError(ErrorCode.INVALID_CONFIG, "no such key")) == "INVALID_CONFIG: no such key"
    assert KafkaError(ErrorCode.INVALID_CONFIG).code is ErrorCode.INVALID_CONFIG


def test_a_reason_that_repeats_what_was_sent_fits_into_an_answer() -> None:
    reason = KafkaError(ErrorCode.INVALID_CONFIG, "no such key: " + "😀" * 30_000).message
    assert len(reason.encode()) < LONGEST_STRING
    assert (reason[:13], reason[-1]) == ("no such key: ", "…")
