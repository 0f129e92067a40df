"""DescribeClientQuotas and AlterClientQuotas (KIP-546): how much clients may use. Any broker takes them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Generator, Iterator, Mapping
from typing import Any

from kbroker.cluster.client_quotas import Place, QuotaKeeper, addresses_of, ip_place, place_of
from kbroker.controller.znode_operations import ControllerMoved, ZooKeeperError
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import ALTER_CONFIGS, DESCRIBE_CONFIGS, on_cluster
from kbroker.handlers.registry import handles
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kbroker.replica.turns import Turn, in_turns
from kbroker.security.limited_lines import LimitedLines
from kbroker.security.quotas import ANY, CLIENT_KEYS, IP_KEYS, Entity, stored, valid_limit

log = logging.getLogger(__name__)
_lines = LimitedLines(log, "limits that were not changed")

USER, CLIENT, IP = "user", "client-id", "ip"
TYPES = (USER, CLIENT, IP)
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
ENTITIES_AT_ONCE = 50
"""Looked at between two looks at the clock."""
MOST_OF_ENTRY = 1_000
"""Names, or limits, of one entity: they are taken in one turn of the loop."""

Named = Mapping[str, str]
"""Type of entity -> name, ANY for the default."""


def _keeper(services: Services) -> QuotaKeeper:
    assert services.quotas is not None
    return services.quotas


# --- DescribeClientQuotas -----------------------------------------------------------------------------------------


@handles(
    DescribeClientQuotasRequest,
    on_cluster(DESCRIBE_CONFIGS),
    ends_with_connection=True,
    asks_for_much=lambda request: all(each.match_type != EXACT for each in request.components),
)
def describe_client_quotas(
    services: Services, ctx: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse | Awaitable[DescribeClientQuotasResponse]:
    """Tell the limits of entities that have all the components asked for, and no others when that is strict."""
    return in_turns(_describe(_keeper(services), _components(request), request.strict))


def _describe(
    keeper: QuotaKeeper, components: Mapping[str, Any], is_strict: bool
) -> Generator[None, None, DescribeClientQuotasResponse]:
    entries = []
    for number, (named, limits) in enumerate(_limited(keeper)):
        if limits and _is_meant(components, is_strict, named):
            entries.append(_told(named, limits))
        if number % ENTITIES_AT_ONCE == 0:
            yield
    return DescribeClientQuotasResponse(error_code=ErrorCode.NONE, entries=entries)


def _limited(keeper: QuotaKeeper) -> Iterator[tuple[Named, Mapping[str, float]]]:
    """All entities as they are now, and their limits."""
    for entity, limits in list(keeper.quotas.entities().items()):
        yield _named(entity), limits
    for address, limit in list(keeper.ips.items()):
        yield {IP: address}, {"connection_creation_rate": limit}


def _told(named: Named, limits: Mapping[str, float]) -> DescribeClientQuotasResponse.EntryData:
    return DescribeClientQuotasResponse.EntryData(
        entity=[
            DescribeClientQuotasResponse.EntityData(entity_type=kind, entity_name=None if name == ANY else name)
            for kind, name in named.items()
        ],
        values=[DescribeClientQuotasResponse.ValueData(key=key, value=value) for key, value in limits.items()],
    )


def _named(entity: Entity) -> Named:
    named = {USER: entity.user, CLIENT: entity.client}
    return {kind: name for kind, name in named.items() if name is not None}


def _components(request: DescribeClientQuotasRequest) -> dict[str, Any]:
    components: dict[str, Any] = {}
    for component in request.components:
        kind = component.entity_type
        if kind not in TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
        if kind in components:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate {kind} filter component entity type")
        if component.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected match type: {component.match_type}")
        if (component.match_type == EXACT) is (component.match is None):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A name is matched exactly, and nothing else has one")
        components[kind] = component
    if IP in components and len(components) > 1:
        text = "Invalid entity filter component combination, IP filter component should not be used with others"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    return components


def _is_meant(components: Mapping[str, Any], strict: bool, named: Named) -> bool:
    if strict and named.keys() != components.keys():
        return False
    for kind, component in components.items():
        name = named.get(kind)
        if name is None or (component.match_type == EXACT and name != component.match):
            return False
        if component.match_type == DEFAULT and name != ANY:
            return False
    return True


# --- AlterClientQuotas --------------------------------------------------------------------------------------------


@handles(AlterClientQuotasRequest, on_cluster(ALTER_CONFIGS))
async def alter_client_quotas(
    services: Services, ctx: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Set and remove limits, each entity for itself."""
    if any(len(each.entity) > MOST_OF_ENTRY or len(each.ops) > MOST_OF_ENTRY for each in request.entries):
        text = f"An entry has more than {MOST_OF_ENTRY} names or limits: there are not as many of one entity"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    entries, turn = [], Turn()
    for entry in request.entries:
        error = await _alter(_keeper(services), entry, request.validate_only)
        entries.append(
            AlterClientQuotasResponse.EntryData(
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message or None,
                entity=[
                    AlterClientQuotasResponse.EntityData(entity_type=each.entity_type, entity_name=each.entity_name)
                    for each in entry.entity
                ],
            )
        )
        await turn.end_if_over()
    return AlterClientQuotasResponse(entries=entries)


async def _alter(
    keeper: QuotaKeeper, entry: AlterClientQuotasRequest.EntryData, validate_only: bool
) -> KafkaError | None:
    """Change one entity's limits; returns what is wrong, if anything is."""
    try:
        place, kinds = await _place(entry)
        changes = _changes(kinds, entry)
        if not validate_only:
            await keeper.change(place, changes)
    except KafkaError as error:
        return error
    except ControllerMoved as error:
        return KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, str(error))
    except ZooKeeperError as error:
        log.log(_lines.level("ZooKeeper", logging.ERROR), "limits of %s not changed: %r", place.entity, error)
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper: {error}")
    return None


async def _place(entry: AlterClientQuotasRequest.EntryData) -> tuple[Place, Mapping[str, type]]:
    named: dict[str, str] = {}
    for each in entry.entity:
        if each.entity_type not in TYPES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {each.entity_type}")
        if each.entity_name == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Empty {each.entity_type} not supported")
        named[each.entity_type] = ANY if each.entity_name is None else each.entity_name
    if not named:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    if IP not in named:
        return place_of(Entity(named.get(USER), named.get(CLIENT))), CLIENT_KEYS
    if len(named) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid quota entity combination: an ip stands alone")
    try:
        addresses = await addresses_of(named[IP])
    except RuntimeError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{named[IP]} is not looked up: {error}") from error
    if not addresses:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{named[IP]} is not a valid IP or resolvable host.")
    return ip_place(named[IP]), IP_KEYS


def _changes(kinds: Mapping[str, type], entry: AlterClientQuotasRequest.EntryData) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for change in entry.ops:
        problem = valid_limit(kinds, change.key, 0.0 if change.remove else change.value)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
        changes[change.key] = None if change.remove else stored(kinds, change.key, change.value)
    return changes
