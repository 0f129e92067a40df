"""The index of all APIs: key -> request, response, versions. Importing it loads every message."""

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
from kbroker.protocol.schema import Api as Api
from kbroker.protocol.schema import api_of as api_of

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

API_BY_KEY: dict[int, Api] = dict(sorted(schema.API_BY_KEY.items()))
