"""What a failed append to a coordinator's topic means to the client whose request caused it (pure)."""

from __future__ import annotations

from kbroker.protocol.errors import ErrorCode

_COORDINATOR_GONE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)

_COMMIT = {
    **_COORDINATOR_GONE,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    # A transaction's coordinator has yet to hear of a partition that it was to add together with the group's.
    ErrorCode.OPERATION_NOT_ATTEMPTED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
_GROUP = {
    **_COORDINATOR_GONE,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
}
_TRANSACTION = {
    **_COORDINATOR_GONE,
    **dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


def commit_error(error: ErrorCode) -> ErrorCode:
    """Return what OffsetCommit answers."""
    return _COMMIT.get(error, error)


def group_error(error: ErrorCode) -> ErrorCode:
    """Return what JoinGroup and SyncGroup answer when the group's record could not be written."""
    return _GROUP.get(error, error)


def consumer_group_error(error: ErrorCode) -> ErrorCode:
    """Return what ConsumerGroupHeartbeat answers: of what happens on the way to the next epoch members know nothing."""
    return _TRANSACTION.get(error, error)


def transaction_error(error: ErrorCode) -> ErrorCode:
    """Return what a transactional producer's request answers when the transaction's record could not be written."""
    return _TRANSACTION.get(error, error)
