"""Very many elements in one request: others have their turns of the event loop while it is worked off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.handlers import load_all
from kbroker.handlers.cluster import MOST_UPDATES
from kbroker.handlers.demands import Asked, together
from kbroker.handlers.refusals import blank
from kbroker.handlers.registry import HANDLERS
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.groups import LeaveGroupRequest
from kbroker.protocol.messages.metadata import UpdateFeaturesRequest
from kbroker.protocol.messages.quotas import AlterClientQuotasRequest
from kbroker.protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeUserScramCredentialsRequest,
)
from kbroker.protocol.messages.transactions import AddPartitionsToTxnRequest
from kbroker.protocol.schema import schema_of
from kbroker.replica import turns
from kbroker.replica.turns import PORTION
from kbroker.security.acls import AclPattern, AclResource, Pattern

MANY = 20 * PORTION
MATCH = 2
UNKNOWN_MEMBER = ErrorCode.UNKNOWN_MEMBER_ID


async def read_nobody(users: Iterable[str]) -> dict[str, Any]:
    return {}


SERVICES: Any = SimpleNamespace(
    transactions=SimpleNamespace(verify=lambda *asked: dict.fromkeys(asked[3], ErrorCode.NONE)),
    metadata=SimpleNamespace(knows=lambda *key: False),
    users=SimpleNamespace(read=read_nobody),
    groups=SimpleNamespace(leave=lambda group_id, leaving: (ErrorCode.NONE, [UNKNOWN_MEMBER] * len(leaving))),
    rules=SimpleNamespace(
        authorizer=SimpleNamespace(patterns=lambda: [Pattern(AclResource.TOPIC, AclPattern.LITERAL, "one")])
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
    "rules are made": (rules_to_make, 3),
    "rules are deleted": (rules_to_delete, 3),
    "members leave": (
        lambda: LeaveGroupRequest(group_id="g", members=many(LeaveGroupRequest.MemberIdentity, "member_id")),
        5,
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_others_have_their_turns_in_between(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By this clock a turn is over after two looks at it."""
    now = count()
    monkeypatch.setattr(turns, "monotonic", lambda: next(now))
    monkeypatch.setattr(turns, "TURN_S", 2)
    monkeypatch.setattr(turns, "SHORTEST_TURN_S", 2)
    load_all()
    make, version = REQUESTS[name]
    request = make()
    context: Any = SimpleNamespace(api_version=version, is_large=True, ends_with_connection=False)
    taken = 0

    async def other() -> None:
        nonlocal taken
        while True:
            taken += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await HANDLERS[schema_of(type(request)).api_key].handler(SERVICES, context, request)
    task.cancel()
    assert taken >= MANY // PORTION // 3


def test_a_clients_right_to_very_many_topics_is_looked_at_in_turns() -> None:
    load_all()
    api_key = schema_of(AddPartitionsToTxnRequest).api_key
    authority = SimpleNamespace(may=lambda *_: True, could=lambda *_: True)
    context = SimpleNamespace(api_version=3, api_key=api_key, is_large=True, ends_with_connection=False)
    steps = together(HANDLERS[api_key].demands)(Asked(SERVICES, context, of_client(), authority))  # type: ignore[arg-type]
    assert steps is not None
    assert context.ends_with_connection, "from the first moment"
    assert len(list(steps)) >= MANY // PORTION


async def test_more_features_than_there_can_be_are_refused() -> None:
    load_all()
    keys = [blank(UpdateFeaturesRequest.FeatureUpdateKey, feature="f") for _ in range(MOST_UPDATES + 1)]
    request = UpdateFeaturesRequest(feature_updates=keys)
    context: Any = SimpleNamespace(api_version=1)
    with pytest.raises(KafkaError, match="more than there can be") as refused:
        await HANDLERS[schema_of(UpdateFeaturesRequest).api_key].handler(SERVICES, context, request)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
