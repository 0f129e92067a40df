"""What producers of transactions, and those who look at them, say to a broker, rightly and wrongly, in every version.

A coordinator ends what it has decided after its answer; `at_last` asks until that is over and notes the last answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.groups import FindCoordinatorRequest, OffsetFetchRequest
from kbroker.protocol.messages.offsets import ListOffsetsRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from tests.parity.requests import batch, fetching, make_topic, production, topic_id
from tests.parity.transcript import Talk, versions_of

GROUP, TRANSACTION = range(2)
CONSUMER_OFFSETS = "__consumer_offsets"
NOBODY = "nobody"
"""A transactional id that no producer has."""
MINUTE_MS = 60_000
AT_LAST_S = 30.0
NOT_YET = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)


@dataclass(frozen=True, slots=True)
class Producer:
    """Who a transactional producer says it is."""

    transactional_id: str
    producer_id: int
    epoch: int


def errors_of(answer: Any) -> set[ErrorCode]:
    """All errors in an answer."""
    if isinstance(answer, ErrorCode):
        return {answer}
    if isinstance(answer, list):
        return set().union(*(errors_of(each) for each in answer))
    names = getattr(type(answer), "__slots__", ())
    return set().union(*(errors_of(getattr(answer, name, None)) for name in names))


def at_last(talk: Talk, label: str, request: Any, version: int) -> Any:
    """Ask until the answer is no longer that it is too early, and note that one."""
    deadline = time.monotonic() + AT_LAST_S
    while True:
        answer = talk.ask(label, request, version)
        if not errors_of(answer) & NOT_YET:
            return answer
        assert time.monotonic() < deadline, f"{label} is too early for {AT_LAST_S:g} s: {answer}"
        talk.lines.pop()
        time.sleep(0.01)


# -- requests -----------------------------------------------------------------------------------------------------


def initialization(
    transactional_id: str | None, timeout_ms: int = MINUTE_MS, producer_id: int = -1, epoch: int = -1
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def search(kind: int, key: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])


def new_producer(talk: Talk, name: str, timeout_ms: int = MINUTE_MS) -> Producer:
    """A producer of its own."""
    transactional_id = talk.topic(name)
    at_last(talk, "coordinator of", search(TRANSACTION, transactional_id), 4)
    answer = at_last(talk, "new", initialization(transactional_id, timeout_ms), 4)
    return Producer(transactional_id, answer.producer_id, answer.producer_epoch)


def impostors(producer: Producer) -> dict[str, Producer]:
    """The producer itself comes last."""
    return {
        "no name": replace(producer, transactional_id=""),
        "unknown name": replace(producer, transactional_id=NOBODY),
        "another's id": replace(producer, producer_id=producer.producer_id + 7_000_000),
        "no id": replace(producer, producer_id=-1),
        "older epoch": replace(producer, epoch=producer.epoch - 1),
        "newer epoch": replace(producer, epoch=producer.epoch + 1),
        "itself": producer,
    }


Partitions = dict[str, Sequence[int]]


def addition(
    version: int, producer: Producer, wanted: Partitions, verify_only: bool = False
) -> AddPartitionsToTxnRequest:
    """Partitions of a transaction, as clients (up to version 3) or brokers ask."""
    topics = [
        AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=list(partitions))
        for name, partitions in wanted.items()
    ]
    if version <= 3:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=topics,
        )
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=topics,
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def group_addition(producer: Producer, group: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group,
    )


def end(producer: Producer, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )


def commitment(
    producer: Producer,
    group: str,
    topic: str,
    partition: int = 0,
    offset: int = 5,
    metadata: str | None = "",
    **more: Any,
) -> TxnOffsetCommitRequest:
    committed = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    return TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=[committed])],
        **more,
    )


def committed(group: str, topic: str, require_stable: bool) -> OffsetFetchRequest:
    return OffsetFetchRequest(
        group_id=group,
        topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1])],
        require_stable=require_stable,
    )


def transactional(
    producer: Producer, topic: str, sequence: int = 0, partition: int = 0, named: str | None = "", plain: bool = False
) -> ProduceRequest:
    """A batch of a transaction; `named`: the request's transactional id, "" is the producer's own."""
    records = batch(2, 0, (producer.producer_id, producer.epoch, sequence), not plain)
    name = producer.transactional_id if named == "" else named
    return production(topic, records, partition, transactional_id=name)


def marker(producer: Producer, topic: str, partition: int = 0, commit: bool = True, term: int = 0) -> Any:
    markers = WriteTxnMarkersRequest
    in_topic = markers.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])
    return markers.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=commit,
        topics=[in_topic],
        coordinator_epoch=term,
    )


def end_at(topic: str, isolation_level: int, partition: int = 0) -> ListOffsetsRequest:
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=-1)
    in_topic = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[in_topic])


def of_partitions(topic: str, *partitions: int) -> DescribeProducersRequest:
    asked = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=list(partitions))
    return DescribeProducersRequest(topics=[asked])


# -- conversations ------------------------------------------------------------------------------------------------

CLIENTS_ADD = range(4)
BROKERS_ADD = (4, 5)
OFFSET_VERSIONS = versions_of(TxnOffsetCommitRequest)
PRODUCE_VERSIONS = (3, 8, 9, 10, 11)


def initializations(talk: Talk) -> None:
    name = talk.topic("first")
    for version in versions_of(FindCoordinatorRequest, 4):
        at_last(talk, "found", search(TRANSACTION, name), version)
        for kind in (2, -1):
            talk.ask(f"kind {kind}", search(kind, name), version)
    versions = versions_of(InitProducerIdRequest)
    for label, request in {
        "empty name": initialization(""),
        "no time": initialization(name, 0),
        "negative time": initialization(name, -1),
        "longest time": initialization(name, 900_000),
        "too long a time": initialization(name, 900_001),
        "shortest time": initialization(name, 1),
    }.items():
        talk.every(label, lambda _, request=request: request, versions)  # type: ignore[misc]
    for version in versions_of(InitProducerIdRequest, 3):
        talk.ask("id without epoch", initialization(name, producer_id=7), version)
        talk.ask("epoch without id", initialization(name, epoch=0), version)
        producer = new_producer(talk, f"of {version}")
        for label, each in impostors(producer).items():
            if each.transactional_id != NOBODY:  # who would be somebody from now on
                request = initialization(each.transactional_id, MINUTE_MS, each.producer_id, each.epoch)
                talk.ask(label, request, version)
        own = initialization(producer.transactional_id, MINUTE_MS, producer.producer_id, producer.epoch)
        talk.ask("once more", own, version)
        talk.ask(
            "of nobody", initialization(talk.topic(f"nobody {version}"), MINUTE_MS, producer.producer_id, 3), version
        )


def initializations_in_transactions(talk: Talk) -> None:
    topic = make_topic(talk, "t")
    for version in versions_of(InitProducerIdRequest):
        producer = new_producer(talk, f"of {version}")
        talk.ask("add", addition(3, producer, {topic: [0]}), 3)
        at_last(talk, "begun", initialization(producer.transactional_id), version)
        talk.ask("fenced", addition(3, producer, {topic: [0]}), 3)
        talk.ask("fenced", end(producer, commit=True), 3)


def partitions_of_transactions(talk: Talk) -> None:
    topic, other = make_topic(talk, "t", 2), make_topic(talk, "u")
    for version in CLIENTS_ADD:
        producer = new_producer(talk, f"client {version}")
        wrong: dict[str, Partitions] = {
            "unknown topic": {topic: [0], "no-such-topic": [0]},
            "unknown partition": {topic: [0, 9], other: [0]},
            "negative partition": {topic: [-1]},
            "internal topic": {CONSUMER_OFFSETS: [0], topic: [0]},
            "no name": {"": [0]},
            "nothing": {},
            "no partition": {topic: []},
        }
        for label, wanted in wrong.items():
            talk.ask(label, addition(version, producer, wanted), version)
        for label, each in impostors(producer).items():
            talk.ask(label, addition(version, each, {topic: [0], other: [0]}), version)
        talk.ask("again", addition(version, producer, {topic: [0]}), version)
        talk.ask("more", addition(version, producer, {topic: [0, 1]}), version)


def verified_partitions(talk: Talk) -> None:
    topic = make_topic(talk, "t", 2)
    for version in BROKERS_ADD:
        producer = new_producer(talk, f"broker {version}")
        for verify_only in (True, False, True):
            for label, each in impostors(producer).items():
                request = addition(version, each, {topic: [0]}, verify_only)
                talk.ask(f"{label}, verify {verify_only}", request, version)
        talk.ask("one of two", addition(version, producer, {topic: [0, 1]}, verify_only=True), version)
        talk.ask("unknown topic", addition(version, producer, {"no-such-topic": [0], topic: [0]}), version)
        talk.ask("unknown partition", addition(version, producer, {topic: [1, 9]}), version)
        talk.ask("as before", addition(version, producer, {topic: [0, 1]}, verify_only=True), version)
        stranger = replace(producer, transactional_id=NOBODY)
        asking = [addition(version, each, {topic: [0]}, verify_only=True) for each in (stranger, producer)]
        both = [each.transactions[0] for each in asking]
        talk.ask("two", AddPartitionsToTxnRequest(transactions=both), version)
        talk.ask("end", end(producer, commit=False), 3)
        at_last(talk, "ended", addition(version, producer, {topic: [0]}, verify_only=True), version)


def groups_of_transactions(talk: Talk) -> None:
    at_last(talk, "group", search(GROUP, talk.topic("g")), 4)
    for version in versions_of(AddOffsetsToTxnRequest):
        producer = new_producer(talk, f"of {version}")
        for label, each in impostors(producer).items():
            talk.ask(label, group_addition(each, talk.topic("g")), version)
        talk.ask("no group", group_addition(producer, ""), version)
        talk.ask("again", group_addition(producer, talk.topic("g")), version)


def ends_of_transactions(talk: Talk) -> None:
    topic = make_topic(talk, "t")
    for version in versions_of(EndTxnRequest):
        for commit in (True, False):
            producer = new_producer(talk, f"{commit} {version}")
            for label, each in impostors(producer).items():
                talk.ask(f"{label}, empty, {commit}", end(each, commit), version)
            talk.ask("add", addition(3, producer, {topic: [0]}), 3)
            for label, each in impostors(producer).items():
                talk.ask(f"{label}, {commit}", end(each, commit), version)
            at_last(talk, "again", end(producer, commit), version)
            at_last(talk, "the other way", end(producer, not commit), version)
            talk.ask("next", addition(3, producer, {topic: [0]}), 3)
            talk.ask("ends", end(producer, not commit), version)


def offsets_in_transactions(talk: Talk) -> None:
    topic = make_topic(talk, "t", 2)
    for version in OFFSET_VERSIONS:
        group = talk.topic(f"g{version}")
        at_last(talk, "group", search(GROUP, group), 4)
        producer = new_producer(talk, f"of {version}")
        talk.ask("too early", commitment(producer, group, topic), version)
        talk.ask("add", group_addition(producer, group), 3)
        for label, each in impostors(producer).items():
            talk.ask(label, commitment(each, group, topic), version)
        for label, request in {
            "unknown topic": commitment(producer, group, "no-such-topic"),
            "unknown partition": commitment(producer, group, topic, 9),
            "no group": commitment(producer, "", topic),
            "long text": commitment(producer, group, topic, metadata="x" * 4097),
            "longest text": commitment(producer, group, topic, metadata="x" * 4096),
            "no text": commitment(producer, group, topic, metadata=None),
            "negative": commitment(producer, group, topic, offset=-5),
        }.items():
            talk.ask(label, request, version)
        if version >= 3:
            members: dict[str, dict[str, Any]] = {
                "generation": {"generation_id": 3},
                "member": {"member_id": "m"},
                "instance": {"group_instance_id": "i"},
                "all": {"generation_id": 3, "member_id": "m", "group_instance_id": "i"},
            }
            for label, member in members.items():
                talk.ask(label, commitment(producer, group, topic, **member), version)
        talk.ask("open, stable", committed(group, topic, require_stable=True), 7)
        talk.ask("open, any", committed(group, topic, require_stable=False), 7)
        talk.ask("end", end(producer, commit=version % 2 == 0), 3)
        at_last(talk, "ended", end(producer, commit=version % 2 == 0), 3)
        talk.ask("decided", committed(group, topic, require_stable=True), 7)


def batches_in_transactions(talk: Talk) -> None:
    topic = make_topic(talk, "t", 3)
    for version in PRODUCE_VERSIONS:
        producer = new_producer(talk, f"of {version}")
        talk.ask("not added", transactional(producer, topic), version)
        talk.ask("add", addition(3, producer, {topic: [0]}), 3)
        for label, each in impostors(producer).items():
            talk.ask(label, transactional(each, topic), version)
        for label, request in {
            "no name, next": transactional(producer, topic, 2, named=None),
            "another partition": transactional(producer, topic, 0, 1),
            "another's name": transactional(producer, topic, 4, named=NOBODY),
            "gap": transactional(producer, topic, 40),
            "again": transactional(producer, topic, 0),
            "not of the transaction": transactional(producer, topic, 4, plain=True),
            "older epoch": transactional(replace(producer, epoch=producer.epoch - 1), topic, 4),
        }.items():
            talk.ask(label, request, version)
        other = new_producer(talk, f"other of {version}")
        of_two = transactional(producer, topic, 4)
        (mine,), (theirs,) = of_two.topic_data, transactional(other, topic, 0, 1).topic_data
        mine.partition_data = [*mine.partition_data, *theirs.partition_data]
        talk.ask("of two producers", of_two, version)
        talk.ask("end", end(producer, commit=True), 3)
        at_last(talk, "ended", end(producer, commit=True), 3)
        talk.ask("late", transactional(producer, topic, 4), version)


def markers(talk: Talk) -> None:
    topic = make_topic(talk, "t", 2)
    producer = new_producer(talk, "p")
    talk.ask("add", addition(3, producer, {topic: [0]}), 3)
    talk.ask("produce", transactional(producer, topic), 9)
    newer, older = (replace(producer, epoch=producer.epoch + step) for step in (2, 1))
    for label, each in {
        "unknown topic": marker(producer, "no-such-topic"),
        "unknown partition": marker(producer, topic, 9),
        "nothing open": marker(producer, topic, 1),
        "newer term": marker(producer, topic, 0, commit=False, term=5),
        "older term": marker(producer, topic, 0, commit=False, term=4),
        "again": marker(producer, topic, 0, commit=False, term=5),
        "newer epoch": marker(newer, topic, 0, term=5),
        "older epoch": marker(older, topic, 0, term=5),
        "both older": marker(older, topic, 0, term=4),
    }.items():
        talk.ask(label, WriteTxnMarkersRequest(markers=[each]), 1)
    talk.ask("none", WriteTxnMarkersRequest(markers=[]), 1)
    talk.ask("what is there", fetching(12, topic, b"", 0, isolation_level=1), 12)
    talk.ask("and there", fetching(12, topic, b"", 0, 1, isolation_level=1), 12)


def transactions_told(talk: Talk) -> None:
    topic = make_topic(talk, "t", 2)
    producer, other = new_producer(talk, "p"), new_producer(talk, "q")

    def told() -> None:
        names = [producer.transactional_id, other.transactional_id, NOBODY, ""]
        talk.ask("names", DescribeTransactionsRequest(transactional_ids=names), 0)
        for version in versions_of(ListTransactionsRequest):
            for states in ([], ["Ongoing"], ["Empty", "CompleteCommit"], ["nonsense", "Ongoing", "ongoing"]):
                request = ListTransactionsRequest(state_filters=states, producer_id_filters=[producer.producer_id])
                talk.ask(f"states {states}", request, version)
        nobody = ListTransactionsRequest(state_filters=[], producer_id_filters=[1 << 60])
        talk.ask("nobody's", nobody, 0)
        for age in (-5, 1 << 50):
            old = ListTransactionsRequest(
                state_filters=[], producer_id_filters=[producer.producer_id], duration_filter=age
            )
            talk.ask(f"older than {age}", old, 1)
        for name in (topic, "no-such-topic", ""):
            talk.ask(f"producers of {name}", of_partitions(name, 0, 1, 9, -1), 0)

    told()
    talk.ask("add", addition(3, producer, {topic: [0]}), 3)
    told()
    talk.ask("produce", transactional(producer, topic), 9)
    told()
    talk.ask("end", end(producer, commit=True), 3)
    at_last(talk, "ended", end(producer, commit=True), 3)
    told()


def committed_reads(talk: Talk) -> None:
    topic = make_topic(talk, "t")
    identity = topic_id(talk, topic)
    producers = [new_producer(talk, name) for name in "pqr"]
    for producer in producers:
        talk.ask("add", addition(3, producer, {topic: [0]}), 3)
        talk.ask("produce", transactional(producer, topic), 9)
    talk.ask("plain", production(topic, batch(3)), 9)

    def read() -> None:
        for version in versions_of(FetchRequest, 4):
            for offset in (0, 3, 6, 9):
                for level in (0, 1):
                    request = fetching(version, topic, identity, offset, isolation_level=level)
                    talk.ask(f"{level} from {offset}", request, version)
        for version in versions_of(ListOffsetsRequest, 2):
            for level in (0, 1):
                talk.ask(f"end {level}", end_at(topic, level), version)

    read()
    for producer, commit in zip(producers, (False, True, False), strict=True):
        talk.ask("end", end(producer, commit), 3)
        at_last(talk, "ended", end(producer, commit), 3)
        read()


def timed_out_transactions(talk: Talk) -> None:
    topic = make_topic(talk, "t", 2)
    group = talk.topic("g")
    at_last(talk, "group", search(GROUP, group), 4)
    producer = new_producer(talk, "p", 1)
    talk.ask("add", addition(3, producer, {topic: [0]}), 3)
    asked = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])
    noted = len(talk.lines)
    deadline = time.monotonic() + AT_LAST_S
    while talk.ask("state", asked, 0).transaction_states[0].transaction_state != "CompleteAbort":
        assert time.monotonic() < deadline, "the transaction is not aborted"
        time.sleep(0.01)
    del talk.lines[noted:-1]
    ways: Iterable[tuple[str, Any, Sequence[int]]] = (
        ("add", lambda version: addition(version, producer, {topic: [0]}), CLIENTS_ADD),
        ("add the group", lambda _: group_addition(producer, group), versions_of(AddOffsetsToTxnRequest)),
        ("commit offsets", lambda _: commitment(producer, group, topic), OFFSET_VERSIONS),
        ("produce", lambda _: transactional(producer, topic), PRODUCE_VERSIONS),
        ("produce elsewhere", lambda _: transactional(producer, topic, 0, 1), PRODUCE_VERSIONS),
        ("commit", lambda _: end(producer, commit=True), versions_of(EndTxnRequest)),
        ("abort", lambda _: end(producer, commit=False), versions_of(EndTxnRequest)),
    )
    for label, make, versions in ways:
        talk.every(label, make, versions)
    for version in versions_of(InitProducerIdRequest, 3):
        own = initialization(producer.transactional_id, MINUTE_MS, producer.producer_id, producer.epoch)
        talk.ask("goes on", own, version)
    talk.ask("begins anew", initialization(producer.transactional_id), 3)


TRANSACTIONAL_CONVERSATIONS: tuple[Callable[[Talk], None], ...] = (
    initializations,
    initializations_in_transactions,
    partitions_of_transactions,
    verified_partitions,
    groups_of_transactions,
    ends_of_transactions,
    offsets_in_transactions,
    batches_in_transactions,
    markers,
    transactions_told,
    committed_reads,
    timed_out_transactions,
)
