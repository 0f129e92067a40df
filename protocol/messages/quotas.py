"""Client quotas."""

from __future__ import annotations

from kbroker.protocol.primitives import Array, Bool, Error, Float64, Int8, Int32, NullableArray, NullableStr, Str
from kbroker.protocol.schema import Message, Struct, request, response


@request(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Message):
    """Ask for client quotas by entity."""

    components: Array[ComponentData]
    strict: Bool

    class ComponentData(Struct):
        entity_type: Str
        match_type: Int8
        match: NullableStr


@response(to=DescribeClientQuotasRequest)
class DescribeClientQuotasResponse(Message):
    """Quota values per entity; null entries after an error."""

    throttle_time_ms: Int32 = 0
    error_code: Error
    error_message: NullableStr = None
    entries: NullableArray[EntryData]

    class EntryData(Struct):
        entity: Array[DescribeClientQuotasResponse.EntityData]
        values: Array[DescribeClientQuotasResponse.ValueData]

    class EntityData(Struct):
        entity_type: Str
        entity_name: NullableStr

    class ValueData(Struct):
        key: Str
        value: Float64


@request(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest(Message):
    """Set and remove client quotas."""

    entries: Array[EntryData]
    validate_only: Bool

    class EntryData(Struct):
        entity: Array[AlterClientQuotasRequest.EntityData]
        ops: Array[AlterClientQuotasRequest.OpData]

    class EntityData(Struct):
        entity_type: Str
        entity_name: NullableStr

    class OpData(Struct):
        key: Str
        value: Float64
        remove: Bool


@response(to=AlterClientQuotasRequest)
class AlterClientQuotasResponse(Message):
    """What became of each entity."""

    throttle_time_ms: Int32 = 0
    entries: Array[EntryData]

    class EntryData(Struct):
        error_code: Error
        error_message: NullableStr = None
        entity: Array[AlterClientQuotasResponse.EntityData]

    class EntityData(Struct):
        entity_type: Str
        entity_name: NullableStr
