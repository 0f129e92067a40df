"""Topics as Metadata tells them, kept in encoded form: asked for all its topics again and again, a broker copies bytes.

What is kept of one topic holds until the topic or the brokers change, what is kept of all of them until anything does.
"""

from __future__ import annotations

from collections.abc import Generator

from kbroker.cluster.metadata_cache import NO_LEADER, MetadataCache, PartitionInfo, TopicInfo
from kbroker.cluster.topic_names import INTERNAL_TOPICS
from kbroker.protocol.codec import EncodedArray, encode_elements
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.metadata import MetadataResponse
from kbroker.security.acls import OPERATIONS_OF, AclResource, bits

TOPIC_OPERATIONS = bits(OPERATIONS_OF[AclResource.TOPIC])
"""What may be done with a topic where no authorizer says otherwise."""
MOST_FORMS = 4
"""In how many forms (version, listener, with operations or without) topics are kept."""

Topic = MetadataResponse.MetadataResponseTopic
Partition = MetadataResponse.MetadataResponsePartition


class TopicDescriptions:
    """Topics in one form: for a version of Metadata, a listener, with or without what may be done with them."""

    def __init__(self, cache: MetadataCache, version: int, listener: str, with_operations: bool) -> None:
        self.version = version
        self._cache = cache
        self._listener = listener
        self._with_operations = with_operations
        self._kept: dict[str, tuple[int, bytes]] = {}
        """Topic name -> the topic's change, and its description then."""
        self._all: EncodedArray | None = None
        self._all_as_of = -1
        self._broker_changes = -1
        self._alive: set[int] = set()
        self._reachable: set[int] = set()

    def of(self, topic: TopicInfo) -> bytes:
        """Return one topic's description, as it stands among Metadata's topics."""
        if self._broker_changes != self._cache.broker_changes:
            self._look_at_brokers()
        change, described = self._kept.get(topic.name, (-1, b""))
        if change != topic.change:
            described = encode_elements([self._describe(topic)], MetadataResponse, self.version)
            self._kept[topic.name] = topic.change, described
        return described

    def with_operations(self, topic: TopicInfo, operations: int) -> bytes:
        """Return one topic's description with what one client may do with it: that is kept for nobody."""
        if self._broker_changes != self._cache.broker_changes:
            self._look_at_brokers()
        described = self._describe(topic)
        described.topic_authorized_operations = operations
        return encode_elements([described], MetadataResponse, self.version)

    def of_all(self) -> Generator[None, None, EncodedArray]:
        """Return all topics' descriptions; yields after each."""
        as_of = self._cache.updates
        if self._all is None or self._all_as_of != as_of:
            descriptions = []
            for topic in list(self._cache.topics.values()):
                descriptions.append(self.of(topic))
                yield
            self._forget_gone_topics()
            found = EncodedArray(len(descriptions), [b"".join(descriptions)])
            self._all, self._all_as_of = found, as_of
        return self._all

    def _forget_gone_topics(self) -> None:
        if len(self._kept) > 2 * len(self._cache.topics):
            self._kept = {name: kept for name, kept in self._kept.items() if name in self._cache.topics}

    def _look_at_brokers(self) -> None:
        brokers = self._cache.brokers
        self._alive = set(brokers)
        self._reachable = {broker.id for broker in brokers.values() if self._listener in broker.endpoints}
        self._broker_changes = self._cache.broker_changes
        self._kept.clear()

    def _describe(self, topic: TopicInfo) -> Topic:
        described = Topic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[self._partition(partition) for partition in topic.partitions.values()],
        )
        if self._with_operations:
            described.topic_authorized_operations = TOPIC_OPERATIONS
        return described

    def _partition(self, partition: PartitionInfo) -> Partition:
        """Describe one partition; version 0 leaves out brokers that cannot be reached and says so by code 9."""
        replicas, isr = list(partition.replicas), list(partition.isr)
        code, leader = ErrorCode.NONE, partition.leader
        if self.version == 0:
            replicas = [replica for replica in replicas if replica in self._reachable]
            isr = [replica for replica in isr if replica in self._reachable]
            if len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
                code = ErrorCode.REPLICA_NOT_AVAILABLE
        if leader not in self._reachable:
            known_elsewhere = leader in self._alive and self.version >= 6
            code = ErrorCode.LISTENER_NOT_FOUND if known_elsewhere else ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_LEADER
        return Partition(
            error_code=code,
            partition_index=partition.partition,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=list(partition.offline_replicas),
        )


def descriptions_in(cache: MetadataCache, version: int, listener: str, with_operations: bool) -> TopicDescriptions:
    """Return the topics in a form; the forms asked for last are kept beside what they describe."""
    form = version, listener, with_operations
    found = cache.descriptions.pop(form, None)
    if found is None:
        found = TopicDescriptions(cache, version, listener, with_operations)
        while len(cache.descriptions) >= MOST_FORMS:
            del cache.descriptions[next(iter(cache.descriptions))]
    cache.descriptions[form] = found
    described: TopicDescriptions = found
    return described
