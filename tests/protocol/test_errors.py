"""Error codes and what a client does about them."""

from kbroker.protocol.errors import ErrorCode, KafkaError


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
