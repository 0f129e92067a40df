"""Kafka's RequestMetrics: how many requests of each API there were, and where their time went."""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.metrics.exposition import Exposition
from kbroker.metrics.families import Section
from kbroker.metrics.sources import Sources
from kbroker.network.request_times import ApiRequests, Times
from kbroker.protocol.errors import ErrorCode

PRODUCE = 0

_declare = Section("Requests")
REQUESTS = _declare.meter(
    "kafka_network_requestmetrics_requests",
    "Requests; those of Fetch also as FetchConsumer or FetchFollower.",
    "request",
    "version",
)
ERRORS = _declare.meter(
    "kafka_network_requestmetrics_errors",
    "Error codes in answers, that of each partition, group or topic too; not of the topics that Metadata tells of.",
    "request",
    "error",
)
EXPIRED_PRODUCES = _declare.meter(
    "kafka_server_delayedproducemetrics_expires",
    "Partitions of Produce requests with acks=all that replicas in sync did not copy in the request's time-out.",
)
THROTTLED = _declare.counter(
    "kbroker_throttled_requests_total", "Requests after which their client had to wait, for its quota.", "request"
)
THROTTLED_S = _declare.counter("kbroker_throttled_seconds_total", "For how long.", "request")
REQUEST_BYTES = _declare.summary("kafka_network_requestmetrics_requestbytes", "Size of the requests.", "request")
QUEUE = _declare.summary(
    "kafka_network_requestmetrics_requestqueuetimems",
    "Milliseconds from the complete frame until its handler begins.",
    "request",
)
LOCAL = _declare.summary(
    "kafka_network_requestmetrics_localtimems", "Milliseconds until the handler has returned.", "request"
)
REMOTE = _declare.summary(
    "kafka_network_requestmetrics_remotetimems",
    "Milliseconds from there until the answer is ready: the wait for replicas, for records, for a disk.",
    "request",
)
RESPONSE_QUEUE = _declare.summary(
    "kafka_network_requestmetrics_responsequeuetimems",
    "Milliseconds until the answers before it on its connection are out.",
    "request",
)
SEND = _declare.summary(
    "kafka_network_requestmetrics_responsesendtimems", "Milliseconds until all of it is in the socket.", "request"
)
TOTAL = _declare.summary(
    "kafka_network_requestmetrics_totaltimems",
    "Milliseconds from the complete frame until the answer is out.",
    "request",
)


def collect(sources: Sources, out: Exposition) -> None:
    """Add what the dispatcher has counted; of APIs that were asked for."""
    produce = sources.dispatcher.apis.get(PRODUCE)
    out.add(EXPIRED_PRODUCES, 0 if produce is None else produce.requests.errors[ErrorCode.REQUEST_TIMED_OUT])
    meter = sources.dispatcher.meter
    for key, count in list(meter.throttled.items()):
        name = sources.dispatcher.apis[key].requests.name
        out.add(THROTTLED, count, name)
        out.add(THROTTLED_S, meter.throttled_ms[key] / 1000, name)
    for api in list(sources.dispatcher.apis.values()):
        requests = api.requests
        if not any(requests.by_version):
            continue
        _counts(out, requests.name, requests.by_version)
        for error, times in list(requests.errors.items()):
            out.add(ERRORS, times, requests.name, error.name)
        _times(out, requests.name, requests.times)
        if requests.from_brokers is not None:
            _fetches(out, requests)
        out.let_others_in()


def _fetches(out: Exposition, requests: ApiRequests) -> None:
    """Fetch is told of in three ways, as Kafka does."""
    assert requests.from_brokers is not None
    followers = requests.by_version_from_brokers
    consumers = [max(every - some, 0) for every, some in zip(requests.by_version, followers, strict=True)]
    _counts(out, "FetchConsumer", consumers)
    _counts(out, "FetchFollower", followers)
    if requests.from_consumers is not None and any(consumers):
        _times(out, "FetchConsumer", requests.from_consumers)
    if any(followers):
        _times(out, "FetchFollower", requests.from_brokers)


def _counts(out: Exposition, name: str, by_version: Sequence[int]) -> None:
    for version, count in enumerate(by_version):
        if count:
            out.add(REQUESTS, count, name, str(version))


def _times(out: Exposition, name: str, times: Times) -> None:
    families = (
        (QUEUE, times.queue),
        (LOCAL, times.local),
        (REMOTE, times.remote),
        (RESPONSE_QUEUE, times.response_queue),
        (SEND, times.response_send),
        (TOTAL, times.total),
        (REQUEST_BYTES, times.size),
    )
    for family, distribution in families:
        out.add_summary(family, distribution, name)
