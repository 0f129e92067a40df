"""Very many elements in one request: others have their turns of the event loop while it is worked off."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.cluster.topic_names import OFFSETS_TOPIC
from kbroker.handlers import load_all
from kbroker.handlers.acls import _by_pattern
from kbroker.handlers.cluster import MOST_UPDATES
from kbroker.handlers.demands import Asked, together
from kbroker.handlers.refusals import blank
from kbroker.handlers.registry import HANDLERS
from kbroker.protocol.codec import decode, encode
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from kbroker.protocol.messages.metadata import UpdateFeaturesRequest
from kbroker.protocol.messages.offsets import DeleteRecordsRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from kbroker.protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeUserScramCredentialsRequest,
)
from kbroker.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeProducersRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from kbroker.protocol.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
)
from kbroker.protocol.schema import schema_of
from kbroker.replica.turns import PORTION, in_turns
from kbroker.security.acls import AclOperation, AclPattern, AclPermission, AclResource, Entry, Pattern
from kbroker.security.authorizer import EVERYTHING
from kbroker.security.quotas import Entity
from tests.fixtures.others import Others

MANY = 20 * PORTION
MATCH = 2
UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID


async def commit_nothing(*asked: Any, adds: bool) -> ErrorCode:
    return ErrorCode.NONE


async def delete_nothing(group_id: str, keys: Sequence[Any]) -> tuple[ErrorCode, dict[Any, ErrorCode]]:
    return ErrorCode.NONE, {}


async def read_nobody(users: Iterable[str]) -> dict[str, Any]:
    return {}


def append(topic: str, partition: int, records: Any, acks: int, now_ms: int, answer: Any, *how: Any) -> None:
    answer.results.append(None)


RULES = frozenset(Entry(f"User:{number}", "*", AclOperation.READ, AclPermission.ALLOW) for number in range(MANY))

SERVICES: Any = SimpleNamespace(
    transactions=SimpleNamespace(verify=lambda *asked: dict.fromkeys(asked[3], ErrorCode.NONE)),
    metadata=SimpleNamespace(knows=lambda *key: False, topics={}, brokers={}),
    users=SimpleNamespace(configurations=read_nobody),
    groups=SimpleNamespace(
        leave=lambda group_id, leaving: (ErrorCode.NONE, [UNKNOWN_MEMBER] * len(leaving)),
        transaction_ended=lambda *told: None,
        commit=lambda *asked: ErrorCode.NONE,
        commit_in_transaction=commit_nothing,
        committed=lambda group_id: (None, ErrorCode.NONE),
        delete_offsets=delete_nothing,
    ),
    quotas=SimpleNamespace(
        quotas=SimpleNamespace(entities=lambda: {Entity(f"n{number}", None): {"x": 1.0} for number in range(MANY)}),
        ips={},
    ),
    config=SimpleNamespace(request_timeout_ms=60_000, offset_metadata_max_bytes=4096),
    replicas=SimpleNamespace(is_leadership_unproven=lambda: False, append=append),
    rules=SimpleNamespace(
        authorizer=SimpleNamespace(
            patterns=lambda: [Pattern(AclResource.TOPIC, AclPattern.LITERAL, "one")], entries=lambda pattern: RULES
        )
    ),
)


def many(struct: Any, name: str, **values: Any) -> list[Any]:
    return [blank(struct, **{name: f"n{number}"}, **values) for number in range(MANY)]


def partitions() -> list[Any]:
    return many(AddPartitionsToTxnRequest.AddPartitionsToTxnTopic, "name", partitions=[0])


def of_transaction(**values: Any) -> AddPartitionsToTxnRequest:
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    return AddPartitionsToTxnRequest(transactions=[blank(transaction, topics=partitions(), **values)])


def of_transactions() -> AddPartitionsToTxnRequest:
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    return AddPartitionsToTxnRequest(transactions=many(transaction, "transactional_id", verify_only=True))


def of_client() -> Any:
    return blank(AddPartitionsToTxnRequest, v3_and_below_topics=partitions())


def markers() -> WriteTxnMarkersRequest:
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=OFFSETS_TOPIC, partition_indexes=list(range(MANY)))
    return WriteTxnMarkersRequest(markers=[blank(marker, topics=[topic])])


def rules_filter(struct: Any) -> Any:
    return blank(struct, resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)


def rules_to_delete() -> DeleteAclsRequest:
    filters = many(
        DeleteAclsRequest.DeleteAclsFilter,
        "resource_name_filter",
        resource_type_filter=2,
        pattern_type_filter=MATCH,
        operation=1,
        permission_type=1,
    )
    return DeleteAclsRequest(filters=filters)


def rules_to_make() -> CreateAclsRequest:
    rule = CreateAclsRequest.AclCreation
    codes = {"resource_type": 2, "operation": 3, "permission_type": 3}
    return CreateAclsRequest(creations=many(rule, "principal", resource_name="", **codes))


def topics_of(request: Any, struct: Any, field: str = "name", **values: Any) -> tuple[Callable[[], Any], int]:
    """Very many topics of which no partition is named."""
    version = schema_of(request).versions.last
    return lambda: blank(request, topics=many(struct, field), **values), version


REQUESTS: dict[str, tuple[Callable[[], Any], int]] = {
    "brokers verify partitions": (lambda: of_transaction(verify_only=True), 5),
    "brokers add partitions": (of_transaction, 5),
    "brokers verify transactions": (of_transactions, 5),
    "a client adds partitions": (of_client, 3),
    "users are described": (
        lambda: DescribeUserScramCredentialsRequest(users=many(DescribeUserScramCredentialsRequest.UserName, "name")),
        0,
    ),
    "users are changed": (
        lambda: blank(
            AlterUserScramCredentialsRequest,
            upsertions=many(AlterUserScramCredentialsRequest.ScramCredentialUpsertion, "name"),
        ),
        0,
    ),
    "limits are changed": (
        lambda: blank(
            AlterClientQuotasRequest,
            entries=[blank(AlterClientQuotasRequest.EntryData, entity=[]) for _ in range(MANY)],
        ),
        1,
    ),
    "markers are written": (markers, 1),
    "markers of no partitions are written": (
        lambda: WriteTxnMarkersRequest(
            markers=[blank(WriteTxnMarkersRequest.WritableTxnMarker, topics=[]) for _ in range(MANY)]
        ),
        1,
    ),
    "offsets of no partitions are committed": topics_of(
        OffsetCommitRequest, OffsetCommitRequest.OffsetCommitRequestTopic, group_id="g"
    ),
    "offsets of no partitions are committed in a transaction": topics_of(
        TxnOffsetCommitRequest, TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic, group_id="g"
    ),
    "offsets of no partitions are asked for": (
        lambda: blank(OffsetFetchRequest, topics=many(OffsetFetchRequest.OffsetFetchRequestTopic, "name")),
        7,
    ),
    "offsets of no partitions are deleted": topics_of(
        OffsetDeleteRequest, OffsetDeleteRequest.OffsetDeleteRequestTopic, group_id="g"
    ),
    "logs of no partitions are asked for offsets": topics_of(ListOffsetsRequest, ListOffsetsRequest.ListOffsetsTopic),
    "logs of no partitions are asked for epochs": topics_of(
        OffsetForLeaderEpochRequest, OffsetForLeaderEpochRequest.OffsetForLeaderTopic, "topic"
    ),
    "records of no partitions are deleted": topics_of(DeleteRecordsRequest, DeleteRecordsRequest.DeleteRecordsTopic),
    "producers of no partitions are described": topics_of(
        DescribeProducersRequest, DescribeProducersRequest.TopicRequest
    ),
    "rules are made": (rules_to_make, 3),
    "rules are described": (lambda: rules_filter(DescribeAclsRequest), 3),
    "rules are deleted": (rules_to_delete, 3),
    "members leave": (
        lambda: LeaveGroupRequest(group_id="g", members=many(LeaveGroupRequest.MemberIdentity, "member_id")),
        5,
    ),
    "limits of clients are told": (lambda: DescribeClientQuotasRequest(components=[], strict=False), 1),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_others_have_their_turns_in_between(name: str, others: Others, short_turns: None) -> None:
    load_all()
    make, version = REQUESTS[name]
    request = make()
    context: Any = SimpleNamespace(
        api_version=version, is_large=True, ends_with_connection=False, received_at=0, authority=EVERYTHING
    )
    before = others.turns
    await HANDLERS[schema_of(type(request)).api_key].handler(SERVICES, context, request)
    assert others.turns - before >= MANY // PORTION // 3


class Watched(list[Any]):
    """An array that notes how much of it is looked at in each turn of the loop."""

    others: Others
    looked_at: Counter[int]

    def __iter__(self) -> Iterator[Any]:
        self.looked_at[self.others.turns] += len(self)
        return super().__iter__()

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.looked_at[self.others.turns] += len(found) if isinstance(place, slice) else 1
        return found


@pytest.fixture
def watched(others: Others) -> type[Watched]:
    Watched.others, Watched.looked_at = others, Counter()
    return Watched


@pytest.mark.parametrize("knows", [False, True])
@pytest.mark.parametrize("how", ["verify", "add for a broker", "add"])
async def test_very_many_partitions_of_one_topic_join_a_transaction_in_turns(
    how: str, knows: bool, watched: type[Watched], short_turns: None
) -> None:
    load_all()
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=watched(range(MANY)))
    transaction = blank(
        AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction, topics=[topic], verify_only=how == "verify"
    )
    of_broker = AddPartitionsToTxnRequest(transactions=[transaction])
    request = blank(AddPartitionsToTxnRequest, v3_and_below_topics=[topic]) if how == "add" else of_broker
    most_verified = 0
    error = ErrorCode.NONE if knows else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def verify(*asked: Any) -> Any:
        nonlocal most_verified
        most_verified = max(most_verified, len(asked[3]))
        return dict.fromkeys(asked[3], error)

    async def add(*asked: Any) -> Any:
        assert asked[3] == [("t", number) for number in range(MANY)]
        return SimpleNamespace(error=error)

    services: Any = SimpleNamespace(
        transactions=SimpleNamespace(verify=verify, add_partitions=add),
        metadata=SimpleNamespace(knows=lambda *key: knows),
    )
    context: Any = SimpleNamespace(api_version=3 if how == "add" else 5, is_large=True, ends_with_connection=False)
    answer: Any = await HANDLERS[schema_of(AddPartitionsToTxnRequest).api_key].handler(services, context, request)
    version = context.api_version
    answer = decode(AddPartitionsToTxnResponse, encode(answer, version), version)
    topics = answer.results_by_topic_v3_and_below or answer.results_by_transaction[0].topic_results
    assert {each.partition_error_code for each in topics[0].results_by_partition} == {error}
    assert len(topics[0].results_by_partition) == MANY
    assert max(watched.looked_at.values()) <= 3 * PORTION
    assert most_verified <= PORTION


@pytest.mark.parametrize("is_transactional", [False, True])
async def test_very_many_batches_of_one_topic_are_looked_at_in_turns(
    is_transactional: bool, watched: type[Watched], short_turns: None
) -> None:
    load_all()
    records = bytearray(HEADER_SIZE)
    records[MAGIC_POSITION] = MAGIC
    data = [ProduceRequest.PartitionProduceData(index=0, records=records) for _ in range(MANY)]
    if is_transactional:
        last = records.copy()
        last[ATTRIBUTES_POSITION] = TRANSACTIONAL_BIT
        data[-1].records = last
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=watched(data))
    request = ProduceRequest(transactional_id="id", acks=1, timeout_ms=1, topic_data=[topic])
    asked_for: list[str] = []
    verified: list[Any] = []

    def may(operation: AclOperation, resource: AclResource, name: str, *_: Any) -> bool:
        asked_for.append(name)
        return True

    def produced_transaction(*asked: Any) -> Any:
        verified.append(asked)
        return SimpleNamespace(ask=lambda: None, look=lambda: None, then=None)

    handling = HANDLERS[schema_of(ProduceRequest).api_key]
    context: Any = SimpleNamespace(
        api_version=11, is_large=True, received_at=0, client_id="c", may_be_overtaken=False, late=True, api_key=0
    )
    replicas = SimpleNamespace(
        is_leadership_unproven=lambda: False,
        append=lambda *asked, **how: asked[5].results.append(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
        traffic={},
        produced_transaction=produced_transaction,
    )
    services: Any = SimpleNamespace(replicas=replicas)

    def work() -> Generator[None, None, Any]:
        steps = together(handling.demands)(Asked(services, context, request, SimpleNamespace(may=may)))  # type: ignore[arg-type]
        assert steps is not None
        yield from steps
        return handling.handler(services, context, request)

    answer: Any = await in_turns(work())
    assert len(answer.responses[0].partition_responses) == MANY
    assert asked_for == (["id", "t"] if is_transactional else ["t"])
    assert len(verified) == is_transactional
    assert max(watched.looked_at.values()) <= 3 * PORTION


async def test_a_thread_sorts_very_many_filters_by_what_they_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    load_all()
    sorted_by: list[int] = []

    def noted(filters: Any) -> Any:
        sorted_by.append(threading.get_ident())
        return _by_pattern(filters)

    monkeypatch.setattr("kbroker.handlers.acls._by_pattern", noted)
    context: Any = SimpleNamespace(api_version=3, is_large=True)
    answer: Any = await HANDLERS[schema_of(DeleteAclsRequest).api_key].handler(SERVICES, context, rules_to_delete())
    assert len(answer.filter_results) == MANY
    assert sorted_by
    assert threading.get_ident() not in sorted_by


async def test_groups_hear_in_turns_of_offsets_that_very_many_markers_decide(others: Others, short_turns: None) -> None:
    load_all()
    heard: list[int] = []
    groups = SimpleNamespace(transaction_ended=lambda *told: heard.append(others.turns))
    services: Any = SimpleNamespace(**vars(SERVICES) | {"groups": groups})
    context: Any = SimpleNamespace(is_large=True, received_at=0)
    answer: Any = await HANDLERS[schema_of(WriteTxnMarkersRequest).api_key].handler(services, context, markers())
    ((topic,),) = (each.topics for each in answer.markers)
    assert [each.error_code for each in topic.partitions] == [ErrorCode.NONE] * MANY
    assert len(heard) == MANY
    assert heard[-1] - heard[0] >= MANY // 3


def test_a_clients_right_to_very_many_topics_is_looked_at_in_turns() -> None:
    load_all()
    api_key = schema_of(AddPartitionsToTxnRequest).api_key
    authority = SimpleNamespace(may=lambda *_: True, could=lambda *_: True)
    context = SimpleNamespace(api_version=3, api_key=api_key, is_large=True, ends_with_connection=False)
    steps = together(HANDLERS[api_key].demands)(Asked(SERVICES, context, of_client(), authority))  # type: ignore[arg-type]
    assert steps is not None
    assert context.ends_with_connection, "from the first moment"
    assert len(list(steps)) >= MANY // PORTION


def test_a_members_right_to_very_many_topics_is_looked_at_in_turns() -> None:
    load_all()
    api_key = schema_of(ConsumerGroupHeartbeatRequest).api_key
    names = [f"n{number}" for number in range(MANY)]
    request = blank(ConsumerGroupHeartbeatRequest, group_id="g", subscribed_topic_names=names)
    authority = SimpleNamespace(may=lambda operation, resource, name, *_: name != names[-1])
    context = SimpleNamespace(api_version=1, api_key=api_key, is_large=True)
    steps = together(HANDLERS[api_key].demands)(Asked(SERVICES, context, request, authority))  # type: ignore[arg-type]
    assert steps is not None
    for _ in range(MANY):
        next(steps)
    with pytest.raises(KafkaError) as refused:
        next(steps)
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_more_features_than_there_can_be_are_refused() -> None:
    load_all()
    keys = [blank(UpdateFeaturesRequest.FeatureUpdateKey, feature="f") for _ in range(MOST_UPDATES + 1)]
    request = UpdateFeaturesRequest(feature_updates=keys)
    context: Any = SimpleNamespace(api_version=1)
    with pytest.raises(KafkaError, match="more than there can be") as refused:
        await HANDLERS[schema_of(UpdateFeaturesRequest).api_key].handler(SERVICES, context, request)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
