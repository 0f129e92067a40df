"""Configuration: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

from __future__ import annotations

from kbroker.protocol.primitives import Array, Bool, Error, Int8, Int32, NullableArray, NullableStr, Str
from kbroker.protocol.schema import Message, NullableSecretStr, Struct, request, response, since


@request(key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest(Message):
    """Ask for configuration values of resources; null keys ask for all."""

    resources: Array[DescribeConfigsResource]
    include_synonyms: Bool = False
    include_documentation: Bool = since(3, default=False)

    class DescribeConfigsResource(Struct):
        resource_type: Int8
        resource_name: Str
        configuration_keys: NullableArray[Str]


@response(to=DescribeConfigsRequest)
class DescribeConfigsResponse(Message):
    """Values with their source, type and synonyms; a sensitive value is null."""

    throttle_time_ms: Int32 = 0
    results: Array[DescribeConfigsResult]

    class DescribeConfigsResult(Struct):
        error_code: Error
        error_message: NullableStr = None
        resource_type: Int8
        resource_name: Str
        configs: Array[DescribeConfigsResponse.DescribeConfigsResourceResult]

    class DescribeConfigsResourceResult(Struct):
        name: Str
        value: NullableStr
        read_only: Bool
        config_source: Int8 = -1
        is_sensitive: Bool
        synonyms: Array[DescribeConfigsResponse.DescribeConfigsSynonym]
        config_type: Int8 = since(3, default=0, ignorable=True)
        documentation: NullableStr = since(3, default="", ignorable=True)

    class DescribeConfigsSynonym(Struct):
        name: Str
        value: NullableStr
        source: Int8


@request(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest(Message):
    """Replace all overrides of resources."""

    resources: Array[AlterConfigsResource]
    validate_only: Bool

    class AlterConfigsResource(Struct):
        resource_type: Int8
        resource_name: Str
        configs: Array[AlterConfigsRequest.AlterableConfig]

    class AlterableConfig(Struct):
        name: Str
        value: NullableSecretStr


@response(to=AlterConfigsRequest)
class AlterConfigsResponse(Message):
    """What became of each resource."""

    throttle_time_ms: Int32 = 0
    responses: Array[AlterConfigsResourceResponse]

    class AlterConfigsResourceResponse(Struct):
        error_code: Error
        error_message: NullableStr = None
        resource_type: Int8
        resource_name: Str


@request(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest(Message):
    """Change single keys: operation 0 sets, 1 deletes, 2 appends, 3 subtracts."""

    resources: Array[AlterConfigsResource]
    validate_only: Bool

    class AlterConfigsResource(Struct):
        resource_type: Int8
        resource_name: Str
        configs: Array[IncrementalAlterConfigsRequest.AlterableConfig]

    class AlterableConfig(Struct):
        name: Str
        config_operation: Int8
        value: NullableSecretStr


@response(to=IncrementalAlterConfigsRequest)
class IncrementalAlterConfigsResponse(Message):
    """What became of each resource."""

    throttle_time_ms: Int32 = 0
    responses: Array[AlterConfigsResourceResponse]

    class AlterConfigsResourceResponse(Struct):
        error_code: Error
        error_message: NullableStr = None
        resource_type: Int8
        resource_name: Str
