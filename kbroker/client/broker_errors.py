"""Kafka's error codes as exception classes, one each: UNKNOWN_TOPIC_OR_PARTITION -> UnknownTopicOrPartitionError.

Where the text says that clients look or ask again, these clients do: they raise the error only when its time is over.
"""

from kbroker.client.error_base import AbortableError, BrokerError, FencedError, LoginFailed
from kbroker.protocol.errors import ErrorCode


class UnknownServerError(BrokerError, code=ErrorCode.UNKNOWN_SERVER_ERROR):
    """The broker met something unforeseen; its log says what."""


class OffsetOutOfRangeError(BrokerError, code=ErrorCode.OFFSET_OUT_OF_RANGE):
    """The partition does not hold this offset (any more): seek, or set auto_offset_reset."""


class CorruptMessageError(BrokerError, code=ErrorCode.CORRUPT_MESSAGE):
    """A batch or message whose checksum or form is wrong; of a produced one sending again may help."""


class UnknownTopicOrPartitionError(BrokerError, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
    """The broker knows no such topic or partition (yet): create it, or look at its name."""


class InvalidFetchSizeError(BrokerError, code=ErrorCode.INVALID_FETCH_SIZE):
    """A fetch asked for a size that cannot be."""


class LeaderNotAvailableError(BrokerError, code=ErrorCode.LEADER_NOT_AVAILABLE):
    """The partition has no leader now: an election is under way, or its replicas are all away."""


class NotLeaderOrFollowerError(BrokerError, code=ErrorCode.NOT_LEADER_OR_FOLLOWER):
    """The broker that was asked does not lead the partition (any more); clients look for the one that does."""


class RequestTimedOutError(BrokerError, code=ErrorCode.REQUEST_TIMED_OUT):
    """The broker did not get it done in time; it may have been done or not."""


class BrokerNotAvailableError(BrokerError, code=ErrorCode.BROKER_NOT_AVAILABLE):
    """The broker (or the cluster's controller) is not there now."""


class ReplicaNotAvailableError(BrokerError, code=ErrorCode.REPLICA_NOT_AVAILABLE):
    """The broker holds no replica that can be read now."""


class MessageTooLargeError(BrokerError, code=ErrorCode.MESSAGE_TOO_LARGE):
    """Larger than the topic's max.message.bytes, or than the producer's max_request_size."""


class StaleControllerEpochError(BrokerError, code=ErrorCode.STALE_CONTROLLER_EPOCH):
    """The request comes from a controller that has been succeeded."""


class OffsetMetadataTooLargeError(BrokerError, code=ErrorCode.OFFSET_METADATA_TOO_LARGE):
    """The text that comes with a committed offset is longer than offset.metadata.max.bytes."""


class NetworkError(BrokerError, code=ErrorCode.NETWORK_EXCEPTION):
    """The broker could not reach another one."""


class CoordinatorLoadInProgressError(BrokerError, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
    """The coordinator is still reading its log; clients ask again."""


class CoordinatorNotAvailableError(BrokerError, code=ErrorCode.COORDINATOR_NOT_AVAILABLE):
    """The group's or transaction's coordinator is not known now; clients ask again."""


class NotCoordinatorError(BrokerError, code=ErrorCode.NOT_COORDINATOR):
    """Another broker coordinates this group or transaction; clients look for it."""


class InvalidTopicError(BrokerError, code=ErrorCode.INVALID_TOPIC_EXCEPTION):
    """The topic's name is none, or it is an internal topic."""


class RecordListTooLargeError(BrokerError, code=ErrorCode.RECORD_LIST_TOO_LARGE):
    """The batches of one request are larger than a segment."""


class NotEnoughReplicasError(BrokerError, code=ErrorCode.NOT_ENOUGH_REPLICAS):
    """Fewer replicas are in sync than min.insync.replicas; nothing was written."""


class NotEnoughReplicasAfterAppendError(BrokerError, code=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
    """Written, but by fewer replicas than min.insync.replicas."""


class InvalidRequiredAcksError(BrokerError, code=ErrorCode.INVALID_REQUIRED_ACKS):
    """acks is all, 1 or 0."""


class IllegalGenerationError(BrokerError, code=ErrorCode.ILLEGAL_GENERATION):
    """The group has had a rebalance since: what is committed now belongs to another member."""


class InconsistentGroupProtocolError(BrokerError, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
    """The member has no assignor, or no protocol type, in common with the group's others."""


class InvalidGroupIdError(BrokerError, code=ErrorCode.INVALID_GROUP_ID):
    """The group's name cannot be; it must not be empty."""


class UnknownMemberIdError(BrokerError, code=ErrorCode.UNKNOWN_MEMBER_ID):
    """The group has expelled this member: it came back too late."""


class InvalidSessionTimeoutError(BrokerError, code=ErrorCode.INVALID_SESSION_TIMEOUT):
    """session_timeout_ms lies outside the broker's group.min/max.session.timeout.ms."""


class RebalanceInProgressError(BrokerError, code=ErrorCode.REBALANCE_IN_PROGRESS):
    """The group is in a rebalance: poll joins it again."""


class InvalidCommitOffsetSizeError(BrokerError, code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE):
    """The commit is larger than the offsets topic takes."""


class TopicAuthorizationFailedError(BrokerError, code=ErrorCode.TOPIC_AUTHORIZATION_FAILED):
    """An access rule on the topic is missing or denies it."""


class GroupAuthorizationFailedError(BrokerError, code=ErrorCode.GROUP_AUTHORIZATION_FAILED):
    """An access rule on the group is missing or denies it."""


class ClusterAuthorizationFailedError(BrokerError, code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
    """An access rule on the cluster is missing or denies it."""


class InvalidTimestampError(BrokerError, code=ErrorCode.INVALID_TIMESTAMP):
    """A record's timestamp is further away than message.timestamp.before/after.max.ms allow."""


class UnsupportedSaslMechanismError(LoginFailed, BrokerError, code=ErrorCode.UNSUPPORTED_SASL_MECHANISM):
    """The listener does not offer this SASL mechanism."""


class IllegalSaslStateError(LoginFailed, BrokerError, code=ErrorCode.ILLEGAL_SASL_STATE):
    """A request that has no place at this step of authentication."""


class UnsupportedVersionError(BrokerError, code=ErrorCode.UNSUPPORTED_VERSION):
    """The broker is too old, or too new, for this call."""


class TopicAlreadyExistsError(BrokerError, code=ErrorCode.TOPIC_ALREADY_EXISTS):
    """There is a topic of this name already."""


class InvalidPartitionsError(BrokerError, code=ErrorCode.INVALID_PARTITIONS):
    """The number of partitions cannot be; it can only grow."""


class InvalidReplicationFactorError(BrokerError, code=ErrorCode.INVALID_REPLICATION_FACTOR):
    """The replication factor is below 1 or above the number of live brokers."""


class InvalidReplicaAssignmentError(BrokerError, code=ErrorCode.INVALID_REPLICA_ASSIGNMENT):
    """The replicas that were given name brokers twice or unknown ones, or skip partitions."""


class InvalidConfigError(BrokerError, code=ErrorCode.INVALID_CONFIG):
    """A configuration key or value that cannot be."""


class NotControllerError(BrokerError, code=ErrorCode.NOT_CONTROLLER):
    """Another broker is the controller (or none is now); clients look for it."""


class InvalidRequestError(BrokerError, code=ErrorCode.INVALID_REQUEST):
    """The request contradicts itself or the protocol."""


class UnsupportedForMessageFormatError(BrokerError, code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT):
    """The log's old record format cannot hold what was asked for."""


class PolicyViolationError(BrokerError, code=ErrorCode.POLICY_VIOLATION):
    """The cluster's policy for topics or configurations does not allow it."""


class OutOfOrderSequenceNumberError(BrokerError, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
    """The broker lacks records that it acknowledged, or got them out of order."""


class DuplicateSequenceNumberError(BrokerError, code=ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
    """The broker has this batch already."""


class InvalidProducerEpochError(BrokerError, code=ErrorCode.INVALID_PRODUCER_EPOCH):
    """A newer producer epoch is known to the broker."""


class InvalidTxnStateError(BrokerError, code=ErrorCode.INVALID_TXN_STATE):
    """The transaction is not in a state that allows this."""


class InvalidProducerIdMappingError(BrokerError, code=ErrorCode.INVALID_PRODUCER_ID_MAPPING):
    """The transactional id belongs to another producer id by now, or has expired."""


class InvalidTransactionTimeoutError(BrokerError, code=ErrorCode.INVALID_TRANSACTION_TIMEOUT):
    """The transaction timeout is above the broker's transaction.max.timeout.ms."""


class ConcurrentTransactionsError(BrokerError, code=ErrorCode.CONCURRENT_TRANSACTIONS):
    """The former transaction of this producer is still being completed; clients ask again."""


class TransactionCoordinatorFencedError(BrokerError, code=ErrorCode.TRANSACTION_COORDINATOR_FENCED):
    """A transaction marker comes from a coordinator that has been succeeded."""


class TransactionalIdAuthorizationFailedError(BrokerError, code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
    """An access rule on the transactional id is missing or denies it."""


class SecurityDisabledError(BrokerError, code=ErrorCode.SECURITY_DISABLED):
    """The brokers have no authorizer, or none of the kind that is needed."""


class OperationNotAttemptedError(BrokerError, code=ErrorCode.OPERATION_NOT_ATTEMPTED):
    """Something else in the same request failed before it."""


class KafkaStorageError(BrokerError, code=ErrorCode.KAFKA_STORAGE_ERROR):
    """The disk of the partition's log directory fails at that broker."""


class LogDirNotFoundError(BrokerError, code=ErrorCode.LOG_DIR_NOT_FOUND):
    """The broker has no such log directory."""


class SaslAuthenticationFailedError(LoginFailed, BrokerError, code=ErrorCode.SASL_AUTHENTICATION_FAILED):
    """Name, password or token is wrong."""


class UnknownProducerIdError(BrokerError, code=ErrorCode.UNKNOWN_PRODUCER_ID):
    """The broker has no record of this producer (any more): its records were deleted."""


class ReassignmentInProgressError(BrokerError, code=ErrorCode.REASSIGNMENT_IN_PROGRESS):
    """The partition's replicas are being moved: wait for the end, or cancel it."""


class DelegationTokenAuthDisabledError(BrokerError, code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED):
    """The brokers have no delegation tokens: delegation.token.secret.key is not set."""


class DelegationTokenNotFoundError(BrokerError, code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
    """There is no such delegation token."""


class DelegationTokenOwnerMismatchError(BrokerError, code=ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
    """The delegation token belongs to somebody else."""


class DelegationTokenRequestNotAllowedError(BrokerError, code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED):
    """Delegation tokens cannot be asked for over this kind of connection."""


class DelegationTokenAuthorizationFailedError(BrokerError, code=ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED):
    """An access rule on the delegation token is missing or denies it."""


class DelegationTokenExpiredError(BrokerError, code=ErrorCode.DELEGATION_TOKEN_EXPIRED):
    """The delegation token has expired."""


class InvalidPrincipalTypeError(BrokerError, code=ErrorCode.INVALID_PRINCIPAL_TYPE):
    """The principal's type cannot be used here."""


class NonEmptyGroupError(BrokerError, code=ErrorCode.NON_EMPTY_GROUP):
    """The group has members: stop them first."""


class GroupIdNotFoundError(BrokerError, code=ErrorCode.GROUP_ID_NOT_FOUND):
    """There is no such group."""


class FetchSessionIdNotFoundError(BrokerError, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND):
    """The broker has dropped the fetch session; clients begin another."""


class InvalidFetchSessionEpochError(BrokerError, code=ErrorCode.INVALID_FETCH_SESSION_EPOCH):
    """A fetch session out of step; clients begin another."""


class ListenerNotFoundError(BrokerError, code=ErrorCode.LISTENER_NOT_FOUND):
    """The leader has no listener of the name that the client came by."""


class TopicDeletionDisabledError(BrokerError, code=ErrorCode.TOPIC_DELETION_DISABLED):
    """The brokers have delete.topic.enable=false."""


class FencedLeaderEpochError(BrokerError, code=ErrorCode.FENCED_LEADER_EPOCH):
    """The client's leader epoch is older than the broker's; clients ask for the metadata."""


class UnknownLeaderEpochError(BrokerError, code=ErrorCode.UNKNOWN_LEADER_EPOCH):
    """The client's leader epoch is newer than the broker's; clients ask again."""


class UnsupportedCompressionTypeError(BrokerError, code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
    """The broker or the client's version of the call does not know the compression."""


class StaleBrokerEpochError(BrokerError, code=ErrorCode.STALE_BROKER_EPOCH):
    """The request comes from a former life of the broker."""


class OffsetNotAvailableError(BrokerError, code=ErrorCode.OFFSET_NOT_AVAILABLE):
    """A new leader does not know yet up to where it may be read; clients ask again."""


class MemberIdRequiredError(BrokerError, code=ErrorCode.MEMBER_ID_REQUIRED):
    """The member has to join again with the id that it was given."""


class PreferredLeaderNotAvailableError(BrokerError, code=ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE):
    """The preferred leader is away or not in sync."""


class GroupMaxSizeReachedError(BrokerError, code=ErrorCode.GROUP_MAX_SIZE_REACHED):
    """The group has group.max.size members already."""


class FencedInstanceIdError(FencedError, BrokerError, code=ErrorCode.FENCED_INSTANCE_ID):
    """Another member with the same group_instance_id has joined."""


class EligibleLeadersNotAvailableError(BrokerError, code=ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE):
    """No replica that may lead is there."""


class ElectionNotNeededError(BrokerError, code=ErrorCode.ELECTION_NOT_NEEDED):
    """The wanted replica leads already."""


class NoReassignmentInProgressError(BrokerError, code=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
    """There is no move to cancel."""


class GroupSubscribedToTopicError(BrokerError, code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC):
    """Members of the group read the topic: its offsets cannot be deleted."""


class InvalidRecordError(BrokerError, code=ErrorCode.INVALID_RECORD):
    """The broker refuses a record: a compacted topic wants keys, for one."""


class UnstableOffsetCommitError(BrokerError, code=ErrorCode.UNSTABLE_OFFSET_COMMIT):
    """The group's offsets are part of a transaction that is not decided yet; clients ask again."""


class ThrottlingQuotaExceededError(BrokerError, code=ErrorCode.THROTTLING_QUOTA_EXCEEDED):
    """A quota is used up: later it works."""


class ProducerFencedError(FencedError, BrokerError, code=ErrorCode.PRODUCER_FENCED):
    """Another producer with the same transactional id has begun."""


class ResourceNotFoundError(BrokerError, code=ErrorCode.RESOURCE_NOT_FOUND):
    """There is nothing of this name."""


class DuplicateResourceError(BrokerError, code=ErrorCode.DUPLICATE_RESOURCE):
    """The request names something twice."""


class UnacceptableCredentialError(BrokerError, code=ErrorCode.UNACCEPTABLE_CREDENTIAL):
    """The credential does not fulfil what is asked of it."""


class InconsistentVoterSetError(BrokerError, code=ErrorCode.INCONSISTENT_VOTER_SET):
    """The voters of a KRaft quorum do not agree."""


class InvalidUpdateVersionError(BrokerError, code=ErrorCode.INVALID_UPDATE_VERSION):
    """What was to be changed has been changed by somebody else meanwhile."""


class FeatureUpdateFailedError(BrokerError, code=ErrorCode.FEATURE_UPDATE_FAILED):
    """The feature level cannot be changed."""


class PrincipalDeserializationFailureError(BrokerError, code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE):
    """A forwarded request's principal cannot be read."""


class SnapshotNotFoundError(BrokerError, code=ErrorCode.SNAPSHOT_NOT_FOUND):
    """There is no such KRaft snapshot."""


class PositionOutOfRangeError(BrokerError, code=ErrorCode.POSITION_OUT_OF_RANGE):
    """A position outside a KRaft snapshot."""


class UnknownTopicIdError(BrokerError, code=ErrorCode.UNKNOWN_TOPIC_ID):
    """The broker knows no topic of this id (yet): it may have been deleted."""


class DuplicateBrokerRegistrationError(BrokerError, code=ErrorCode.DUPLICATE_BROKER_REGISTRATION):
    """A broker of this id is there already."""


class BrokerIdNotRegisteredError(BrokerError, code=ErrorCode.BROKER_ID_NOT_REGISTERED):
    """There is no broker of this id."""


class InconsistentTopicIdError(BrokerError, code=ErrorCode.INCONSISTENT_TOPIC_ID):
    """The topic was made anew: its id is another one now."""


class InconsistentClusterIdError(BrokerError, code=ErrorCode.INCONSISTENT_CLUSTER_ID):
    """The broker belongs to another cluster."""


class TransactionalIdNotFoundError(BrokerError, code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
    """There is no such transactional id."""


class FetchSessionTopicIdError(BrokerError, code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR):
    """A fetch session mixes topic names and ids; clients begin another."""


class IneligibleReplicaError(BrokerError, code=ErrorCode.INELIGIBLE_REPLICA):
    """A replica that may not join the in-sync ones now."""


class NewLeaderElectedError(BrokerError, code=ErrorCode.NEW_LEADER_ELECTED):
    """The partition's leader has changed with this very request."""


class OffsetMovedToTieredStorageError(BrokerError, code=ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE):
    """The offset lies in remote storage."""


class FencedMemberEpochError(BrokerError, code=ErrorCode.FENCED_MEMBER_EPOCH):
    """The coordinator has given the member up: it joins anew."""


class UnreleasedInstanceIdError(BrokerError, code=ErrorCode.UNRELEASED_INSTANCE_ID):
    """The former member with this group_instance_id is still there."""


class UnsupportedAssignorError(BrokerError, code=ErrorCode.UNSUPPORTED_ASSIGNOR):
    """The broker has no assignor of this name."""


class StaleMemberEpochError(BrokerError, code=ErrorCode.STALE_MEMBER_EPOCH):
    """The member's epoch is out of date: the commit can be tried again with the new one."""


class MismatchedEndpointTypeError(BrokerError, code=ErrorCode.MISMATCHED_ENDPOINT_TYPE):
    """The request came to a listener of brokers instead of controllers, or the other way round."""


class UnsupportedEndpointTypeError(BrokerError, code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE):
    """There is no such kind of endpoint."""


class UnknownControllerIdError(BrokerError, code=ErrorCode.UNKNOWN_CONTROLLER_ID):
    """There is no controller of this id."""


class UnknownSubscriptionIdError(BrokerError, code=ErrorCode.UNKNOWN_SUBSCRIPTION_ID):
    """The client's telemetry subscription is out of date."""


class TelemetryTooLargeError(BrokerError, code=ErrorCode.TELEMETRY_TOO_LARGE):
    """The client's telemetry is larger than the broker takes."""


class InvalidRegistrationError(BrokerError, code=ErrorCode.INVALID_REGISTRATION):
    """The broker's registration is not valid."""


class TransactionAbortableError(AbortableError, BrokerError, code=ErrorCode.TRANSACTION_ABORTABLE):
    """The transaction cannot be committed: abort it and begin it again."""


class InvalidRecordStateError(BrokerError, code=ErrorCode.INVALID_RECORD_STATE):
    """A share group's record is not in a state that allows this."""


class ShareSessionNotFoundError(BrokerError, code=ErrorCode.SHARE_SESSION_NOT_FOUND):
    """The broker has dropped the share session."""


class InvalidShareSessionEpochError(BrokerError, code=ErrorCode.INVALID_SHARE_SESSION_EPOCH):
    """A share session out of step."""


class FencedStateEpochError(BrokerError, code=ErrorCode.FENCED_STATE_EPOCH):
    """The share coordinator knows a newer epoch."""


class InvalidVoterKeyError(BrokerError, code=ErrorCode.INVALID_VOTER_KEY):
    """The key of a KRaft voter does not match."""


class DuplicateVoterError(BrokerError, code=ErrorCode.DUPLICATE_VOTER):
    """The KRaft voter is there already."""


class VoterNotFoundError(BrokerError, code=ErrorCode.VOTER_NOT_FOUND):
    """There is no such KRaft voter."""


class InvalidRegularExpressionError(BrokerError, code=ErrorCode.INVALID_REGULAR_EXPRESSION):
    """The pattern of the subscription is no regular expression of RE2."""
