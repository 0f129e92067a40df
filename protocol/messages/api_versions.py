"""ApiVersions."""

from __future__ import annotations

from kbroker.protocol.primitives import Array, Bool, Error, Int16, Int32, Int64, Str
from kbroker.protocol.schema import Message, Struct, request, response, since


@request(key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest(Message):
    """A client's first question: which APIs, in which versions? It also says what software it is."""

    client_software_name: Str = since(3, default="", ignorable=True)
    client_software_version: Str = since(3, default="", ignorable=True)
    include_software: Bool = since(3, default=False, tag=10_000, ignorable=True)
    """Ours: to be told what software the broker is, too; others skip it."""


@response(to=ApiVersionsRequest)
class ApiVersionsResponse(Message):
    """The APIs and versions served, and the cluster's features; always behind a response header v0."""

    error_code: Error
    api_keys: Array[ApiVersion]
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    supported_features: Array[SupportedFeatureKey] = since(3, default=(), tag=0, ignorable=True)
    finalized_features_epoch: Int64 = since(3, default=-1, tag=1, ignorable=True)
    finalized_features: Array[FinalizedFeatureKey] = since(3, default=(), tag=2, ignorable=True)
    zk_migration_ready: Bool = since(3, default=False, tag=3, ignorable=True)
    software: Str = since(3, default="", tag=10_000, ignorable=True)
    """Ours, for who asks for it: name and version of the broker's software."""

    class ApiVersion(Struct):
        api_key: Int16
        min_version: Int16
        max_version: Int16

    class SupportedFeatureKey(Struct):
        name: Str
        min_version: Int16
        max_version: Int16

    class FinalizedFeatureKey(Struct):
        name: Str
        max_version_level: Int16
        min_version_level: Int16
