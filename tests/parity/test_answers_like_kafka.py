"""The same requests to our broker and to Apache Kafka 3.9.2, in every version; the answers must be the same.

Each conversation is held with either broker on topics of its own; what is compared is in `transcript.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.free_ports import free_ports
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
)
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.log_dirs import DescribeLogDirsRequest
from kbroker.protocol.messages.metadata import DescribeClusterRequest, MetadataRequest
from kbroker.protocol.messages.offsets import DeleteRecordsRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.reassignments import ElectLeadersRequest
from kbroker.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from kbroker.protocol.messages.transactions import InitProducerIdRequest
from kbroker.protocol.primitives import ZERO_UUID
from tests.fixtures.brokers import START_TIMEOUT, broker_properties, forget
from tests.fixtures.kafka import running_kafka
from tests.fixtures.zookeeper import fresh_chroot, remove_chroot
from tests.parity.requests import (
    NOW,
    altered,
    batch,
    change,
    creation,
    description,
    fetching,
    make_topic,
    new_topic,
    offsets_at,
    production,
    topic_id,
)
from tests.parity.transactional_conversations import TRANSACTIONAL_CONVERSATIONS
from tests.parity.transcript import Talk, unlike, versions_of

pytestmark = pytest.mark.slow

SETTINGS = {
    "num.partitions": "1",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "5",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture(scope="module")
def ours(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a broker of ours, which is broker 1."""
    address = fresh_chroot(zookeeper_server)
    properties = broker_properties(address.connect_string, SETTINGS)
    process = BrokerProcess(1, tmp_path_factory.mktemp("ours"), free_ports(1)[0], properties)
    try:
        yield process.start().wait_until_ready(START_TIMEOUT).port
    finally:
        forget(process)
        remove_chroot(address)


@pytest.fixture(scope="module")
def kafka(zookeeper_server: str, kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a broker of Apache Kafka, which is broker 1 too."""
    address = fresh_chroot(zookeeper_server)
    folder = tmp_path_factory.mktemp("kafka")
    with running_kafka(folder, address.connect_string, kafka_class_path, SETTINGS) as broker:
        yield broker.port
    remove_chroot(address)


Conversation = Callable[[Talk], None]


def compare(ours: int, kafka: int, conversation: Conversation) -> None:
    """Hold the conversation with either broker."""
    prefix = conversation.__name__.replace("_", "-")
    talks = [Talk(ours, prefix), Talk(kafka, prefix)]
    for talk in talks:
        try:
            conversation(talk)
        finally:
            talk.close()
    differences = []
    for mine, theirs in zip(talks[0].lines, talks[1].lines, strict=True):
        differences += [f"{mine[0]}: {each}" for each in unlike(mine[1], theirs[1])]
    assert not differences, "\n".join(differences[:20])


def wait_until_described(port: int, broker: str, step: tuple[str, int, str | None]) -> None:
    """Wait until a change of a key shows: brokers hear of it by a notification."""
    key, how, _ = step
    talk = Talk(port, "waiting")
    try:
        deadline = time.monotonic() + CHANGE_TIMEOUT_S
        while True:
            answer = talk.ask("described", description(BROKER, broker, [key]), 4)
            is_set = SET_VALUES[key] in {entry.value for entry in answer.results[0].configs}
            if is_set == (how == SET):
                return
            assert time.monotonic() < deadline, f"{step} of broker {broker or 'default'} does not show"
            time.sleep(0.02)
    finally:
        talk.close()


# -- conversations ------------------------------------------------------------------------------------------------

PRODUCE_VERSIONS = versions_of(ProduceRequest, 3)
"""Nobody sends batches of magic 2 in older versions."""


def topics_that_can_be_created(talk: Talk) -> None:
    for version in versions_of(CreateTopicsRequest):
        name = talk.topic(f"v{version}")
        talk.ask("only checked", creation(new_topic(name, 3), validate_only=True), version)
        talk.ask("created", creation(new_topic(name, 2, configs=[("retention.ms", "5000")])), version)
        talk.ask("again", creation(new_topic(name)), version)
    talk.ask("defaults", creation(new_topic(talk.topic("defaults"), -1, -1)), 7)
    talk.ask("assigned", creation(new_topic(talk.topic("assigned"), -1, -1, assigned=[(0, [1]), (1, [1])])), 7)
    talk.ask("twice", creation(*[new_topic(talk.topic("twice"))] * 2), 7)
    talk.ask("none", creation(), 7)


def topics_that_cannot_be_created(talk: Talk) -> None:
    make_topic(talk, "a.b")
    bad = {
        "collides": new_topic(talk.topic("a_b")),
        "no partitions": new_topic("x", 0),
        "negative": new_topic("x", -2),
        "no replicas": new_topic("x", 1, 0),
        "too many replicas": new_topic("x", 1, 3),
        "both": new_topic("x", 2, 1, assigned=[(0, [1])]),
        "gap": new_topic("x", -1, -1, assigned=[(1, [1])]),
        "uneven": new_topic("x", -1, -1, assigned=[(0, [1]), (1, [1, 2])]),
    } | {name[:12]: new_topic(name) for name in ("", ".", "..", "a b", "ü", "a/b", "x" * 250, "__cluster_metadata")}
    for label, topic in bad.items():
        talk.every(label, lambda _, topic=topic: creation(topic), (2, 7))  # type: ignore[misc]
    for key, value in BAD_CONFIGS:
        talk.ask(f"{key}={value}", creation(new_topic("x", configs=[(key, value)]), validate_only=True), 4)


SET_VALUES = {"background.threads": "12", "log.segment.bytes": "5000000"}
"""What broker_settings sets."""
CHANGE_TIMEOUT_S = 30.0

BAD_CONFIGS = (
    ("no.such.key", "1"),
    ("retention.ms", None),
    ("retention.ms", "abc"),
    ("retention.ms", "-2"),
    ("cleanup.policy", "foo"),
    ("min.insync.replicas", "0"),
    ("segment.bytes", "1"),
    ("flush.messages", "0"),
    ("preallocate", "maybe"),
    ("max.message.bytes", "99999999999"),
    ("compression.zstd.level", "30"),
)


def partitions(talk: Talk) -> None:
    topic = make_topic(talk, "t")

    def more(count: int, name: str = topic, assigned: Sequence[Sequence[int]] | None = None) -> CreatePartitionsRequest:
        wanted = CreatePartitionsRequest.CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None
            if assigned is None
            else [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=list(each)) for each in assigned],
        )
        return CreatePartitionsRequest(topics=[wanted], timeout_ms=5_000, validate_only=False)

    versions = versions_of(CreatePartitionsRequest)
    talk.every("grow", lambda version: more(version + 2), versions)
    for label, request in {
        "same": more(5),
        "fewer": more(1),
        "none": more(0),
        "unknown": more(2, "no-such-topic"),
        "bad name": more(2, "a b"),
        "assigned": more(6, assigned=[[1]]),
        "too few assigned": more(9, assigned=[[1]]),
        "unknown broker": more(7, assigned=[[5]]),
        "twice the same broker": more(7, assigned=[[1, 1]]),
    }.items():
        talk.ask(label, request, 3)


def metadata(talk: Talk) -> None:
    topic = make_topic(talk, "t", 3)
    wanted = MetadataRequest.MetadataRequestTopic

    def about(*names: str) -> Callable[[int], MetadataRequest]:
        return lambda version: MetadataRequest(
            topics=[wanted(name=name) for name in names],
            allow_auto_topic_creation=version < 4,
            include_topic_authorized_operations=version >= 8,
        )

    versions = versions_of(MetadataRequest)
    talk.every("one", about(topic), versions)
    talk.every("twice", about(topic, topic), versions)
    talk.every("bad name", about("a b"), versions)
    talk.every("empty name", about(""), versions)
    talk.every("no topic", about(), versions_of(MetadataRequest, 1))
    talk.every("unknown", about("no-such-topic"), versions_of(MetadataRequest, 4))
    identity = topic_id(talk, topic)
    for label, each in {"known": identity, "unknown": bytes([7]) * 16}.items():
        asked = MetadataRequest(topics=[wanted(topic_id=each, name=None)])
        talk.every(f"by {label} id", lambda _, asked=asked: asked, (10, 11, 12))  # type: ignore[misc]
    for included in (True, False):
        request = DescribeClusterRequest(include_cluster_authorized_operations=included)
        talk.every("cluster", lambda _, request=request: request, (0, 1))  # type: ignore[misc]
    for kind in (2, 7):
        request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=kind)
        talk.ask(f"endpoints {kind}", request, 1)


def batches(talk: Talk) -> None:
    topic = make_topic(talk, "t", 2)
    small = make_topic(talk, "small", 1, [("max.message.bytes", "100")])
    stamped = make_topic(talk, "stamped", 1, [("message.timestamp.type", "LogAppendTime")])
    late = make_topic(talk, "late", 1, [("message.timestamp.before.max.ms", "1000")])
    for compression in range(5):
        sent = batch(20, compression)
        versions = PRODUCE_VERSIONS if compression < 4 else versions_of(ProduceRequest, 7)
        talk.every(f"codec {compression}", lambda _, sent=sent: production(topic, bytearray(sent)), versions)  # type: ignore[misc]
    for label, request in {
        "acks 1": production(topic, batch(), acks=1),
        "acks 2": production(topic, batch(), acks=2),
        "zstd in version 6": production(topic, batch(compression=4)),
        "unknown topic": production("no-such-topic", batch()),
        "unknown partition": production(topic, batch(), 9),
        "too large": production(small, batch(5)),
        "append time": production(stamped, batch()),
        "nothing": production(topic, b""),
        "cut": production(topic, batch()[:-3]),
        "two": production(topic, batch() + batch()),
        "wrong CRC": production(topic, altered(70, ">b", 1, checksum=False)),
        "magic 1": production(topic, altered(16, ">b", 1, checksum=False)),
        "magic 3": production(topic, altered(16, ">b", 3, checksum=False)),
        "transactional": production(topic, altered(21, ">h", 0x10)),
    }.items():
        talk.every(label, lambda _, request=request: request, (6, 9))  # type: ignore[misc]
    for label, data in {
        "count too high": altered(57, ">i", 4),
        "count too low": altered(57, ">i", 2),
        "no records": altered(57, ">i", 0),
        "last delta": altered(23, ">i", 7),
        "base offset": altered(0, ">q", 7),
        "control": altered(21, ">h", 0x20),
        "record length": altered(61, ">b", 5),
        "batch length": altered(8, ">i", 10, checksum=False),
    }.items():
        talk.ask(label, production(topic, data), 3)  # version 5 and later also tell the log start offset
    talk.ask("late", production(late, batch()), 3)
    identity = topic_id(talk, topic)
    versions = versions_of(FetchRequest)
    talk.every("all of it", lambda version: fetching(version, topic, identity, 0), versions)
    talk.every("nothing of partition 1", lambda version: fetching(version, topic, identity, 0, 1), versions)


def idempotent_batches(talk: Talk) -> None:
    topic = make_topic(talk, "t")
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
    for _ in range(200):  # Kafka's broker fetches its first block of ids while the first client waits
        if talk.ask("first", request, 1).error_code is ErrorCode.NONE:
            break
        time.sleep(0.05)
    talk.lines.clear()
    answer = talk.every("id", lambda _: request, versions_of(InitProducerIdRequest))
    for epoch, sequence, count in (
        *((0, 5, 1), (0, 5, 1), (0, 6, 3), (0, 9, 2), (0, 6, 3), (0, 20, 1), (0, 2, 1), (0, 11, 1), (0, 12, 1)),
        *((0, 13, 1), (0, 14, 1), (0, 15, 1), (0, 5, 1), (1, 16, 1), (1, 0, 1), (0, 16, 1), (1, 1, 1), (1, -1, 1)),
    ):
        records = batch(count, producer=(answer.producer_id, epoch, sequence))
        talk.ask(f"epoch {epoch}, {count} from {sequence}", production(topic, records), 4)


def fetches(talk: Talk) -> None:
    topic = make_topic(talk, "t")
    for _ in range(3):
        talk.ask("produce", production(topic, batch(4)), 9)
    identity = topic_id(talk, topic)
    versions = versions_of(FetchRequest)
    for label, first, arguments in (
        ("from the middle of a batch", 4, {"offset": 5}),
        ("one byte", 4, {"offset": 0, "max_bytes": 1, "partition_max_bytes": 1}),
        ("committed", 4, {"offset": 0, "isolation_level": 1}),
        ("the end", 4, {"offset": 12}),
        ("beyond", 4, {"offset": 13}),
        ("negative", 4, {"offset": -1}),
        ("old leader", 9, {"offset": 0, "current_leader_epoch": 0}),
        ("new leader", 9, {"offset": 0, "current_leader_epoch": 9}),
        ("diverging", 12, {"offset": 0, "last_fetched_epoch": 5}),
        ("session", 7, {"offset": 0, "session_epoch": 0}),
        ("no such session", 7, {"offset": 0, "session_id": 4, "session_epoch": 3}),
    ):
        talk.every(
            label,
            lambda version, more=arguments: fetching(version, topic, identity, **more),  # type: ignore[misc]
            range(first, versions[-1] + 1),
        )
    for version in (7, 12, 17):
        opened = talk.ask("open", fetching(version, topic, identity, 0, session_epoch=0), version)
        known = {"session_id": opened.session_id}
        talk.ask("same", fetching(version, topic, identity, 0, session_epoch=1, **known), version)
        talk.ask("move", fetching(version, topic, identity, 12, session_epoch=2, **known), version)
        talk.ask("skip", fetching(version, topic, identity, 0, session_epoch=9, **known), version)
        talk.ask("close", fetching(version, topic, identity, 0, session_epoch=-1, **known), version)
        talk.ask("gone", fetching(version, topic, identity, 0, session_epoch=3, **known), version)


def offsets(talk: Talk) -> None:
    topic, empty = make_topic(talk, "t"), make_topic(talk, "empty")
    for _ in range(3):
        talk.ask("produce", production(topic, batch(4)), 9)
    for timestamp in (-1, -2, -3, -4, -5, -6, 0, NOW, NOW + 1, NOW + 3_000, NOW + 3_001):
        for name in (topic, empty, "no-such-topic"):
            asked = offsets_at(name, timestamp)
            versions = versions_of(ListOffsetsRequest)
            talk.every(f"{timestamp} of {name}", lambda _, asked=asked: asked, versions)  # type: ignore[misc]
    talk.ask("unknown partition", offsets_at(topic, -1, 9), 9)
    talk.ask("new leader", offsets_at(topic, -1, current_leader_epoch=9), 9)
    ends = OffsetForLeaderEpochRequest
    for epoch, current in ((0, -1), (1, -1), (-1, -1), (0, 3), (0, 0)):
        for name in (topic, empty, "no-such-topic"):
            partition = ends.OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
            request = ends(topics=[ends.OffsetForLeaderTopic(topic=name, partitions=[partition])])
            talk.every(f"end of {epoch}", lambda _, request=request: request, (2, 3, 4))  # type: ignore[misc]
    for offset in (2, 1, -2, 13, 5):
        wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
        for name in (topic, "no-such-topic"):
            about = DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=[wanted])
            deletion = DeleteRecordsRequest(topics=[about], timeout_ms=5_000)
            talk.every(f"up to {offset}", lambda _, deletion=deletion: deletion, (0, 1, 2))  # type: ignore[misc]
    talk.ask("start", offsets_at(topic, -2), 9)
    talk.ask("deleted", fetching(12, topic, ZERO_UUID, 0), 12)
    sizes = DescribeLogDirsRequest(topics=[DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=[0])])
    talk.every("sizes", lambda _: sizes, versions_of(DescribeLogDirsRequest))


def elections(talk: Talk) -> None:
    topic = make_topic(talk, "t")
    for name, partition in ((topic, 0), (topic, 9), ("no-such-topic", 0)):
        wanted = ElectLeadersRequest.TopicPartitions(topic=name, partitions=[partition])
        request = ElectLeadersRequest(topic_partitions=[wanted], timeout_ms=5_000)
        talk.every(f"{name}-{partition}", lambda _, request=request: request, (0, 1, 2))  # type: ignore[misc]


def topic_settings(talk: Talk) -> None:
    topic = make_topic(talk, "t", 1, [("retention.ms", "7000")])
    for keys in (None, [], ["retention.ms", "no.such.key", "segment.ms"]):
        asked = description(TOPIC, topic, keys)
        talk.every("described", lambda _, asked=asked: asked, versions_of(DescribeConfigsRequest))  # type: ignore[misc]
    for kind, name in ((TOPIC, "no-such-topic"), (TOPIC, "a b"), (TOPIC, ""), (99, "x")):
        talk.ask(f"{kind} {name}", description(kind, name, None), 4)
    seen = ["retention.ms", "cleanup.policy", "leader.replication.throttled.replicas"]
    for step in (
        ("retention.ms", SET, " 8000 "),
        ("cleanup.policy", APPEND, "compact"),
        ("cleanup.policy", SUBTRACT, "compact"),
        ("leader.replication.throttled.replicas", APPEND, "0:1,0:2"),
        ("leader.replication.throttled.replicas", SUBTRACT, "0:1"),
        ("leader.replication.throttled.replicas", DELETE, None),
        ("retention.ms", APPEND, "1"),
        ("retention.ms", SET, None),
        ("retention.ms", SET, "x"),
        ("retention.ms", DELETE, None),
        ("no.such.key", SET, "1"),
    ):
        talk.every(f"{step}", lambda _, step=step: change(TOPIC, topic, step), (0, 1))  # type: ignore[misc]
        talk.ask(f"after {step}", description(TOPIC, topic, seen), 4)
    wanted = AlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=topic,
        configs=[AlterConfigsRequest.AlterableConfig(name="max.message.bytes", value="5000")],
    )
    talk.every("all", lambda _: AlterConfigsRequest(resources=[wanted], validate_only=False), (0, 1, 2))
    talk.ask("after all", description(TOPIC, topic, None), 4)


def broker_settings(talk: Talk) -> None:
    """Not with log.cleaner.threads: where its machine is busy, Kafka follows no further change after that one."""
    seen = ["background.threads", "log.retention.ms", "log.retention.hours", "min.insync.replicas", "log.roll.ms"]
    for name in ("1", ""):
        for step in (
            ("background.threads", SET, "12"),
            ("log.segment.bytes", SET, "5000000"),
            ("num.io.threads", SET, "100"),
            ("broker.id", SET, "4"),
            ("min.insync.replicas", SET, "0"),
            ("background.threads", DELETE, None),
            ("log.segment.bytes", DELETE, None),
        ):
            answer = talk.ask(f"{name} {step}", change(BROKER, name, step), 1)
            if answer.responses[0].error_code is ErrorCode.NONE:
                wait_until_described(talk.port, name, step)
            talk.ask(f"{name} after {step}", description(BROKER, name, seen), 4)
    for name in ("7", "abc"):
        talk.ask(name, description(BROKER, name, None), 4)
        talk.ask(name, change(BROKER, name, ("log.cleaner.threads", SET, "2")), 1)


def deletions(talk: Talk) -> None:
    for version in versions_of(DeleteTopicsRequest):
        topic = make_topic(talk, f"v{version}")
        for name in (topic, topic, "no-such-topic"):
            by_name = DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_UUID)
            request = DeleteTopicsRequest(
                topics=[by_name] if version >= 6 else [],
                topic_names=[name] if version < 6 else [],
                timeout_ms=15_000,
            )
            talk.ask(f"delete {name}", request, version)
    by_id = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id(talk, make_topic(talk, "id")))
    talk.ask("by id", DeleteTopicsRequest(topics=[by_id], timeout_ms=15_000), 6)


@pytest.mark.parametrize(
    "conversation",
    [
        topics_that_can_be_created,
        topics_that_cannot_be_created,
        partitions,
        metadata,
        batches,
        idempotent_batches,
        fetches,
        offsets,
        elections,
        topic_settings,
        broker_settings,
        deletions,
        *TRANSACTIONAL_CONVERSATIONS,
    ],
    ids=lambda conversation: conversation.__name__,
)
def test_the_answers_are_kafkas(ours: int, kafka: int, conversation: Conversation) -> None:
    compare(ours, kafka, conversation)


def test_every_key_of_the_broker_is_described_as_kafka_describes_it(ours: int, kafka: int) -> None:
    """Kafka has keys that mean nothing here (KRaft, tiered storage); the others are the same, newer groups apart."""
    shown = []
    for port in (ours, kafka):
        talk = Talk(port, "keys")
        try:
            answer = talk.ask("keys", description(BROKER, "1", None, documented=True), 4)
        finally:
            talk.close()
        shown.append({entry.name: entry for entry in answer.results[0].configs})
    mine, theirs = shown
    of_one_broker = {"listeners", "log.dirs", "zookeeper.connect", "broker.id", "zookeeper.session.timeout.ms"}
    of_newer_groups = {"group.coordinator.rebalance.protocols", "group.consumer.migration.policy"}
    for name in sorted(mine.keys() & theirs.keys() - of_one_broker - of_newer_groups - broker_properties("").keys()):
        left, right = mine[name], theirs[name]
        for entry in (left, right):
            assert entry.documentation, name
            entry.documentation = None
        assert left == right, name
    assert len(mine.keys() & theirs.keys()) > 200
