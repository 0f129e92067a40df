"""Who leads which partition and what it holds, asked without an event loop; connections are kept for the next one.

    cluster = PlainCluster("127.0.0.1:9092")
    cluster.partitions(["flights"])                     {("flights", 0), …}
    cluster.offsets([("flights", 0)], EARLIEST)         {("flights", 0): 17}
    cluster.bounds([("flights", 0)])                    {("flights", 0): (17, 20)}
    cluster.sizes([("flights", 0)])                     {("flights", 0): 1048576}
    cluster.commit("my-group", {("flights", 0): 20})

Not for several threads at once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from kbroker.client.client_config import NEW_TOPIC_S, ConsumerConfig
from kbroker.client.errors import KNOWS_NOBODY, NotConnected, NotLeaderOrFollowerError, error_for
from kbroker.client.plain_connection import PlainConnection
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.grouping import Key, by_topic
from kbroker.protocol.messages.configs import DescribeConfigsRequest
from kbroker.protocol.messages.groups import FindCoordinatorRequest, OffsetCommitRequest
from kbroker.protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.offsets import EARLIEST, LATEST, ListOffsetsRequest
from kbroker.protocol.messages.topics import CreateTopicsRequest
from kbroker.protocol.records.buffers import BufferPool

if TYPE_CHECKING:
    from kbroker.protocol.schema import Message

NO_DEBUG_REPLICA = -1
NO_ID = bytes(16)
BROKER_RESOURCE = 4
GROUP, TRANSACTION = 0, 1
MANY_COORDINATORS = 4
"""From this version on FindCoordinator takes several keys, and answers in their order."""
BACKOFF_S = 0.1
LONGEST_BACKOFF_S = 1.0

Answer = TypeVar("Answer")


class Patience:
    """How long something is tried again: its time runs from the first failure on, not while all is well.

    An answer may take as long as all of the patience, and whoever reads may be held up for longer than that in between.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Begin anew: something went well."""
        self._failed_at: float | None = None
        self._pause = BACKOFF_S

    def pause(self, seconds: float | None = None) -> bool:
        """Wait before the next try; or False at once, where the patience (its first `seconds`) ends before."""
        if not self.lasts(seconds, self._pause):
            return False
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_BACKOFF_S)
        return True

    def lasts(self, seconds: float | None = None, further: float = 0.0) -> bool:
        """Note a failure, and return whether there will be patience left `further` seconds from now."""
        now = time.monotonic()
        if self._failed_at is None:
            self._failed_at = now
        return now + further <= self._failed_at + (self.seconds if seconds is None else seconds)


class PlainCluster:
    """Addresses of the brokers, leaders of the partitions, a connection to each broker that was asked."""

    def __init__(
        self, bootstrap: str, options: Mapping[str, Any] | None = None, *, retry_for: float | None = None
    ) -> None:
        """`options` are a Consumer's, by snake_case or Kafka's dotted names; raises ConfigurationError."""
        self.config = ConsumerConfig.read({"bootstrap": bootstrap, **(options or {})})
        self.retry_for = self.config.request_timeout_ms / 1000 if retry_for is None else retry_for
        """Seconds that a question is asked again after errors that pass: no leader, a broker that is away."""
        self.pool = BufferPool(128 << 20)
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[Key, int] = {}
        self._leader_epochs: dict[Key, int] = {}
        """-1 from a broker that gives none. By it a leader that is none any more, and does not know it, is told."""
        self.topic_ids: dict[str, bytes] = {}
        """Of the topics that were asked about last; zeros from a broker that gives none."""
        self._connections: dict[tuple[str, int], PlainConnection] = {}
        self._silent: set[tuple[str, int]] = set()
        """Addresses that gave no answer when they were asked last: others are asked before them."""

    def __enter__(self) -> PlainCluster:
        """Nothing is opened before it is needed."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; the next question opens new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def topics(self) -> list[str]:
        """Return the names of all topics that are not Kafka's own."""
        answer = self._retry(lambda: self._metadata(None))
        return [t.name for t in answer.topics if t.name and not t.is_internal]

    def partitions(self, topics: Iterable[str]) -> set[Key]:
        """Return the topics' partitions and learn their leaders; raises UnknownTopicOrPartitionError by name."""
        names = sorted(set(topics))
        places = set()
        for topic in self._retry(lambda: self._checked(names)) if names else ():
            for place in self._places_of_another(topic):
                del self._leader_epochs[place]
                self._leaders.pop(place, None)
            self.topic_ids[topic.name] = topic.topic_id
            for partition in topic.partitions:
                place = (topic.name, partition.partition_index)
                places.add(place)
                self._leaders[place] = partition.leader_id
                self._leader_epochs[place] = partition.leader_epoch
        return places

    def _places_of_another(self, topic: Any) -> list[Key]:
        """Return the partitions that are known of a topic of this name and another id."""
        if self.topic_ids.get(topic.name) in (None, topic.topic_id):
            return []
        return [place for place in self._leader_epochs if place[0] == topic.name]

    def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has; 0 where there is none, or this client may not know of it."""
        [answer] = self._retry(lambda: self._metadata([topic])).topics
        return len(answer.partitions)

    def offsets(
        self,
        partitions: Collection[Key],
        timestamp: int | Mapping[Key, int],
        *,
        read_committed: bool | None = None,
    ) -> dict[Key, int]:
        """Return each partition's offset at EARLIEST, at LATEST, or of the first record at or after a time in ms.

        The time may differ from partition to partition; -1 where no record is so young. LATEST is what a reader of
        this isolation level can reach, the cluster's own unless `read_committed` says otherwise.
        """
        times = timestamp if isinstance(timestamp, Mapping) else dict.fromkeys(partitions, timestamp)
        return self._look_up(list(partitions), [times], read_committed)[0]

    def bounds(self, partitions: Collection[Key]) -> dict[Key, tuple[int, int]]:
        """Return each partition's offsets at EARLIEST and LATEST."""
        places = list(partitions)
        earliest, latest = self._look_up(places, [dict.fromkeys(places, EARLIEST), dict.fromkeys(places, LATEST)])
        return {place: (earliest[place], latest[place]) for place in places}

    def _look_up(
        self,
        places: list[Key],
        questions: Sequence[Mapping[Key, int]],
        read_committed: bool | None = None,
    ) -> list[dict[Key, int]]:
        """Return the offsets at the times of each question, asked of all leaders at the same time."""
        committed = self.config.read_committed if read_committed is None else read_committed

        def ask() -> list[dict[Key, int]]:
            self.partitions({topic for topic, number in places if (topic, number) not in self._leaders})
            found: list[dict[Key, int]] = [{} for _ in questions]
            try:
                by_leader = self._by_leader(places)
                requests = [
                    (leader, _list_offsets(theirs, times, self._leader_epochs, committed))
                    for times in questions
                    for leader, theirs in by_leader.items()
                ]
                for number, answer in enumerate(self._ask_leaders(requests)):
                    for topic in answer.topics:
                        for result in topic.partitions:
                            self._raise_for(result.error_code, topic.name, result.partition_index)
                            found[number // len(by_leader)][topic.name, result.partition_index] = result.offset
            except (KafkaError, OSError):
                for place in places:
                    self._leaders.pop(place, None)  # another one may lead now
                raise
            return found

        return self._retry(ask)

    def sizes(self, partitions: Collection[Key], *, retry_for: float | None = None) -> dict[Key, int]:
        """Return the bytes of each partition's log on its leader, as stored; without those that no leader tells.

        Log directories that are offline are named, too, with an error: they hold nothing that a broker leads.
        """
        found: dict[Key, int] = {}

        def ask() -> None:
            missing = [place for place in partitions if place not in found]
            self.partitions({topic for topic, _ in missing})
            requests = [(leader, _describe_logs(theirs)) for leader, theirs in self._by_leader(missing).items()]
            answers = self._ask_leaders(requests)
            for answer in answers:
                self._raise_for(answer.error_code, "the sizes of logs")
                found.update(_sizes_in(answer))
            moved = [place for place in missing if place not in found]
            if moved and any(answer.results for answer in answers):  # older brokers tell nothing to who may not ask
                self._raise_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, *moved[0])

        with contextlib.suppress(NotLeaderOrFollowerError):
            self._retry(ask, retry_for)
        return found

    def _ask_leaders(self, requests: Sequence[tuple[int, Message]]) -> list[Any]:
        """Send all requests before waiting for the first answer, so that the brokers work at the same time."""
        connections = [self.connection(leader) for leader, _ in requests]
        try:
            for connection, (_, request) in zip(connections, requests, strict=True):
                connection.send(request)
            return [connection.receive() for connection in connections]
        except BaseException:
            for connection in connections:
                connection.close()  # nobody waits for what is on its way there
            raise

    def broker_ids(self) -> list[int]:
        """Return the live brokers' ids."""
        self._retry(lambda: self._metadata([]))
        return sorted(self._brokers)

    def broker_config(self, key: str) -> dict[int, str]:
        """Return the value that a configuration key has on each broker."""

        def ask() -> dict[int, str]:
            brokers = self.broker_ids()
            answers = self._ask_leaders([(broker, _describe_key(broker, key)) for broker in brokers])
            found: dict[int, str] = {}
            for broker, answer in zip(brokers, answers, strict=True):
                result = answer.results[0]
                if result.error_code is not ErrorCode.NONE:
                    raise error_for(
                        result.error_code, result.error_message or f"the configuration {key}", broker=broker
                    )
                found[broker] = (result.configs[0].value if result.configs else None) or ""
            return found

        return self._retry(ask)

    def create_topic(self, name: str, partitions: int, replicas: int, configs: Mapping[str, str]) -> None:
        """Create a topic unless somebody else just did."""
        new = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=[],
            configs=[CreateTopicsRequest.CreatableTopicConfig(name=key, value=text) for key, text in configs.items()],
        )

        def ask() -> None:
            controller = self._metadata([]).controller_id
            request = CreateTopicsRequest(topics=[new], timeout_ms=self.config.request_timeout_ms)
            result = self.connection(controller).request(request).topics[0]
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise error_for(result.error_code, result.error_message, topic=name)

        self._retry(ask)

    def commit(self, group: str, offsets: Mapping[Key, int]) -> None:
        """Store the offsets that the group reads next; the group must have no members."""
        partition = OffsetCommitRequest.OffsetCommitRequestPartition
        topics = [
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    partition(partition_index=number, committed_offset=offsets[name, number], committed_metadata="")
                    for number in numbers
                ],
            )
            for name, numbers in by_topic(offsets).items()
        ]

        def ask() -> None:
            answer = self._coordinator(group).request(OffsetCommitRequest(group_id=group, member_id="", topics=topics))
            for topic in answer.topics:
                for result in topic.partitions:
                    self._raise_for(result.error_code, topic.name, result.partition_index)

        self._retry(ask)

    def _coordinator(self, group: str) -> PlainConnection:
        return self.coordinators([group], GROUP)[group]

    def coordinators(self, keys: Collection[str], key_type: int) -> dict[str, PlainConnection]:
        """Ask any broker who coordinates these GROUPs or TRANSACTIONs and connect to them."""
        self._metadata([])
        found = self._ask_any(lambda connection: _find_coordinators(connection, keys, key_type))
        for key, each in zip(keys, found, strict=True):
            if each.error_code is not ErrorCode.NONE:
                what = "group" if key_type == GROUP else "transactional id"
                raise error_for(each.error_code, f"{what} {key!r}: {each.error_message or 'no coordinator'}")
        return {key: self._connect((each.host, each.port)) for key, each in zip(keys, found, strict=True)}

    def _by_leader(self, partitions: Iterable[Key]) -> dict[int, list[Key]]:
        by_leader: dict[int, list[Key]] = {}
        for place in partitions:
            by_leader.setdefault(self._leader(place), []).append(place)
        return by_leader

    def connection_for(self, place: Key, replica: int | None = None) -> PlainConnection:
        """Return the connection to a replica, or to the partition's leader; raises LeaderNotAvailableError."""
        if replica is not None and replica in self._brokers:
            return self.connection(replica)
        if place not in self._leaders:
            self.partitions([place[0]])
        return self.connection(self._leader(place))

    def forget(self, place: Key) -> None:
        """Ask anew who leads the partition, over a new connection: its leader moved or went away."""
        leader = self._leaders.pop(place, None)
        if leader is not None:
            self.disconnect(leader)

    def disconnect(self, broker_id: int) -> None:
        """Close the connection to a broker; the next question opens a new one."""
        address = self._brokers.get(broker_id)
        if address in self._connections:
            self._connections.pop(address).close()

    def connection(self, broker_id: int) -> PlainConnection:
        """Return the connection to a broker, made if there is none; raises LeaderNotAvailableError."""
        if broker_id not in self._brokers:
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, "not among the live ones", broker=broker_id)
        return self._connect(self._brokers[broker_id])

    def _connect(self, address: tuple[str, int]) -> PlainConnection:
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = self._connections[address] = PlainConnection(
                *address,
                client_id=self.config.client_id,
                timeout=self.config.request_timeout_ms / 1000,
                connect_timeout=self.config.connect_timeout_ms / 1000,
                pool=self.pool,
                security=self.config,
            )
        return connection

    def _leader(self, place: Key) -> int:
        leader = self._leaders.get(place, None)
        if leader is None:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=place[0], partition=place[1])
        if leader < 0:
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, "no leader", topic=place[0], partition=place[1])
        return leader

    def _checked(self, names: list[str]) -> list[Any]:
        answer = self._metadata(names)
        for topic in answer.topics:
            self._raise_for(topic.error_code, topic.name)
        return list(answer.topics)

    def _metadata(self, names: list[str] | None) -> Any:
        """Ask any broker that can be reached; raises ConnectionError naming all that were tried."""
        topics = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)

        def ask(connection: PlainConnection) -> Any:
            answer = connection.request(request)
            if not answer.brokers:
                raise NotConnected(f"{connection.address}: {KNOWS_NOBODY}")
            if names:
                self._refuse_older(answer, connection.address)
            return answer

        answer = self._ask_any(ask)
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return answer

    def _refuse_older(self, answer: Any, address: str) -> None:
        """A broker that is cut off from the others tells of leaders that are none any more: another one is asked.

        It does not know of partitions either that a topic has got; they never go while the topic stays.
        """
        same = [t for t in answer.topics if t.topic_id != NO_ID and t.topic_id == self.topic_ids.get(t.name)]
        told = {(topic.name, each.partition_index) for topic in same for each in topic.partitions}
        names = {topic.name for topic in same if topic.error_code is ErrorCode.NONE}
        for place in self._leader_epochs:
            if place[0] in names and place not in told:
                raise NotConnected(f"{address} does not know of {place[0]}-{place[1]}")
        for topic in same:
            for partition in topic.partitions:
                known = self._leader_epochs.get((topic.name, partition.partition_index), -1)
                if 0 <= partition.leader_epoch < known:
                    raise NotConnected(
                        f"{address} does not know of leader epoch {known} of {topic.name}-{partition.partition_index}"
                    )

    def _ask_any(self, ask: Callable[[PlainConnection], Any]) -> Any:
        """Ask the first that answers; those that did not when they were asked last come last."""
        failures = []
        addresses = dict.fromkeys([*self._brokers.values(), *self.config.addresses()])
        for address in sorted(addresses, key=self._silent.__contains__):
            try:
                answer = ask(self._connect(address))
            except OSError as error:
                self._silent.add(address)
                failures.append(str(error))
            else:
                self._silent.discard(address)
                return answer
        raise NotConnected("no broker answers: " + "; ".join(failures))

    def _retry(self, ask: Callable[[], Answer], retry_for: float | None = None) -> Answer:
        """Call `ask` until it returns or an error is final; for `retry_for` seconds after the first that passes."""
        longest = self.retry_for if retry_for is None else retry_for
        patience = Patience(longest)
        while True:
            try:
                return ask()
            except (KafkaError, OSError) as error:
                if not patience.pause(min(self._patience(error), longest)):
                    raise

    def _patience(self, error: KafkaError | OSError) -> float:
        """Return the seconds that it is worth asking again after this error."""
        if isinstance(error, OSError):
            return self.retry_for
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return min(NEW_TOPIC_S, self.retry_for)
        return self.retry_for if error.code.retriable else 0.0

    @staticmethod
    def _raise_for(code: ErrorCode, topic: str, partition: int | None = None) -> None:
        if code is not ErrorCode.NONE:
            raise error_for(code, topic=topic, partition=partition)


def _find_coordinators(connection: PlainConnection, keys: Collection[str], key_type: int) -> list[Any]:
    version = connection.version_for(FindCoordinatorRequest)
    if version >= MANY_COORDINATORS:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
        return list(connection.request(request, version).coordinators)
    return [connection.request(FindCoordinatorRequest(key=key, key_type=key_type), version) for key in keys]


def _describe_key(broker: int, key: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(broker), configuration_keys=[key]
    )
    return DescribeConfigsRequest(resources=[resource])


def _describe_logs(places: Iterable[Key]) -> DescribeLogDirsRequest:
    topics = [
        DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=numbers)
        for name, numbers in by_topic(places).items()
    ]
    return DescribeLogDirsRequest(topics=topics)


def _sizes_in(answer: DescribeLogDirsResponse) -> dict[Key, int]:
    return {
        (topic.name, log.partition_index): log.partition_size
        for directory in answer.results
        for topic in directory.topics
        for log in topic.partitions
        if not log.is_future_key
    }


def _list_offsets(
    places: list[Key],
    times: Mapping[Key, int],
    leader_epochs: Mapping[Key, int],
    read_committed: bool,
) -> ListOffsetsRequest:
    topics = [
        ListOffsetsRequest.ListOffsetsTopic(
            name=name,
            partitions=[
                ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=number,
                    current_leader_epoch=leader_epochs[name, number],
                    timestamp=times[name, number],
                )
                for number in numbers
            ],
        )
        for name, numbers in by_topic(places).items()
    ]
    return ListOffsetsRequest(replica_id=NO_DEBUG_REPLICA, isolation_level=int(read_committed), topics=topics)
