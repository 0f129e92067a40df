"""ApiVersions: what this broker can do, told to whoever connects."""

from __future__ import annotations

import re
from functools import cache

from kbroker.controller.features import SUPPORTED
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import nothing
from kbroker.handlers.registry import HANDLERS, handles
from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kbroker.security.acls import ANONYMOUS

FIRST_FROM_NOUGHT_VERSION = 4
"""Older clients take a feature that begins with level 0 for a mistake."""

LONGEST_NAME = 100
"""Of what is remembered of a client's software: it is a metric's label, and nobody has logged in yet."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9\-.]*+(?<=[a-zA-Z0-9])")


@cache
def _served(keys: tuple[int, ...]) -> list[ApiVersionsResponse.ApiVersion]:
    return [
        ApiVersionsResponse.ApiVersion(
            api_key=key, min_version=API_BY_KEY[key].min_version, max_version=API_BY_KEY[key].max_version
        )
        for key in keys
    ]


@cache
def software() -> str:
    """Return what this broker is, in two words."""
    from importlib.metadata import PackageNotFoundError, version  # loads e-mail and more

    try:
        return f"kbroker {version('kbroker')}"
    except PackageNotFoundError:
        return "kbroker"


def _is_known(ctx: RequestContext) -> bool:
    """Whether the client has logged in, where clients do."""
    return not ctx.connection.security_protocol.has_sasl or ctx.principal != ANONYMOUS


@handles(ApiVersionsRequest, nothing("clients ask before anything else"))
def api_versions(services: Services, ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """List every API that has a handler with its versions; remember what software the client says it is."""
    if ctx.api_version >= 3:
        name, release = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(release)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        ctx.connection.client_software_name = name[:LONGEST_NAME]
        ctx.connection.client_software_version = release[:LONGEST_NAME]
    features = services.features
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=_served(tuple(sorted(HANDLERS))),
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in SUPPORTED.items()
            if lowest or ctx.api_version >= FIRST_FROM_NOUGHT_VERSION
        ],
        software=software() if request.include_software and _is_known(ctx) else "",
        finalized_features_epoch=features.epoch,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.levels.items()
        ],
    )
