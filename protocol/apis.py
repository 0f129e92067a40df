"""The index of all APIs: key -> request, response, versions. Importing it loads every message."""

from dataclasses import dataclass

from kbroker.protocol import schema
from kbroker.protocol.messages import (
    api_versions,
    configs,
    fetch,
    groups,
    internal_topics,
    log_dirs,
    metadata,
    offsets,
    produce,
    quotas,
    reassignments,
    replication,
    security,
    topics,
    transactions,
)
from kbroker.protocol.schema import Message, schema_of

FAMILIES = (
    api_versions,
    configs,
    fetch,
    groups,
    internal_topics,
    log_dirs,
    metadata,
    offsets,
    produce,
    quotas,
    reassignments,
    replication,
    security,
    topics,
    transactions,
)


@dataclass(frozen=True, slots=True)
class Api:
    """One API: a request with its response."""

    key: int
    name: str
    """Kafka's name, e.g. "Fetch"."""
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int
    flexible_from: int
    """First version with compact encoding; above max_version for an API that has none."""


def _api(key: int) -> Api:
    request, response = schema.REQUESTS[key], schema.RESPONSES[key]
    declared = schema_of(request)
    never = declared.flexible == schema.NEVER
    return Api(
        key=key,
        name=declared.name.removesuffix("Request"),
        request=request,
        response=response,
        min_version=declared.versions.first,
        max_version=declared.versions.last,
        flexible_from=declared.versions.last + 1 if never else declared.flexible.first,
    )


API_BY_KEY: dict[int, Api] = {key: _api(key) for key in sorted(schema.REQUESTS)}


def api_of(request_type: type[Message]) -> Api:
    """Return the API of a request's (or response's) class."""
    return API_BY_KEY[schema_of(request_type).api_key]
