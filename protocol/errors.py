"""Kafka's error codes, and the exceptions that carry them.

`KafkaError` is a peer's mistake or a refusal: it becomes an error code in an answer. `MalformedMessage` is a message
whose bytes do not follow the protocol: there is nothing to answer, the connection is closed.
"""

from enum import IntEnum
from typing import Final

_RETRIABLE: Final = 1
_REFRESHES_METADATA: Final = 2
_R: Final = _RETRIABLE
_RM: Final = _RETRIABLE | _REFRESHES_METADATA


class ErrorCode(IntEnum):
    """An error as it stands on the wire (int16). 0 is success."""

    _flags: int

    def __new__(cls, code: int, flags: int = 0) -> "ErrorCode":
        """Make the member for a line of the table below."""
        member = int.__new__(cls, code)
        member._value_ = code
        member._flags = flags
        return member

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2, _R
    UNKNOWN_TOPIC_OR_PARTITION = 3, _RM
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5, _RM
    NOT_LEADER_OR_FOLLOWER = 6, _RM
    REQUEST_TIMED_OUT = 7, _R
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9, _RM
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13, _RM
    COORDINATOR_LOAD_IN_PROGRESS = 14, _R
    COORDINATOR_NOT_AVAILABLE = 15, _R
    NOT_COORDINATOR = 16, _R
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19, _R
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, _R
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41, _R
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51, _R
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56, _RM
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70, _R
    INVALID_FETCH_SESSION_EPOCH = 71, _R
    LISTENER_NOT_FOUND = 72, _RM
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74, _RM
    UNKNOWN_LEADER_EPOCH = 75, _R
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78, _R
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80, _RM
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, _RM
    ELECTION_NOT_NEEDED = 84, _RM
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88, _R
    THROTTLING_QUOTA_EXCEEDED = 89, _R
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100, _RM
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103, _RM
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106, _R
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122, _R
    INVALID_SHARE_SESSION_EPOCH = 123, _R
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed when it is sent again."""
        return self._flags & _RETRIABLE != 0

    @property
    def refreshes_metadata(self) -> bool:
        """Whether the client's metadata is stale and must be fetched before the retry."""
        return self._flags & _REFRESHES_METADATA != 0

    @classmethod
    def of(cls, code: int) -> "ErrorCode":
        """Return the member for a number from the wire; UNKNOWN_SERVER_ERROR for a number that is not known."""
        return _BY_CODE.get(code, cls.UNKNOWN_SERVER_ERROR)


_BY_CODE: Final[dict[int, ErrorCode]] = {int(member): member for member in ErrorCode}


COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""Ask who the coordinator is, then ask again."""


LONGEST_MESSAGE = 4_000
"""In characters: a text that repeats what was sent still fits into an answer."""


class KafkaError(Exception):
    """A refusal with Kafka's code for it, and a text for the person who reads it."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        if len(message) > LONGEST_MESSAGE:
            message = f"{message[: LONGEST_MESSAGE - 1]}…"
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}" if self.message else self.code.name


class AnswerTooLarge(KafkaError):
    """An answer of more bytes than a broker keeps for one; what is refused for it stands in the broker's log, too."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(
            ErrorCode.INVALID_REQUEST, f"the answer would have more than {most_bytes} bytes: ask for less at a time"
        )


class MalformedMessage(ValueError):
    """Bytes that are no message of the expected kind and version."""


class TooManyElements(MalformedMessage):
    """A message whose arrays hold more elements than are allowed, or more than are to be worked off in one go."""
