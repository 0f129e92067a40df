"""OpenTelemetry for producers and consumers that are made with `tracing=True`; who is not, pays nothing.

    producer   a span for each record, from `send` until it is acknowledged or given up; the record's `traceparent`
               header (W3C Trace Context) names it
    consumer   a span for each poll that returned records, with a link to the span of each record that has such a header
    context_of(record)   the context of a record's sender, to begin a span of one's own in

Spans go wherever the application's OpenTelemetry SDK sends them; as long as it has set up none they cost little and go
nowhere. Rows of `send_arrow` and of `batches` are not traced: they are many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kbroker.client.errors import ConfigurationError
from kbroker.protocol.records.builder import Headers
from kbroker.protocol.records.record import Record

if TYPE_CHECKING:
    from kbroker.client.accumulator import OnDelivery
    from kbroker.client.delivery import Delivery

HEADERS = ("traceparent", "tracestate")
"""Of W3C Trace Context; those of another sender go when a record is sent on."""
LONGEST_HEADER = 512
"""Bytes that are looked at, as many as the specification asks for."""
Append = Callable[..., "Delivery | None"]
MOST_LINKS = 128
"""Of a span: what OpenTelemetry's SDK keeps unless it is told otherwise."""


def _needed() -> Any:
    """Return OpenTelemetry's trace module."""
    try:
        from opentelemetry import trace
    except ImportError:
        raise ConfigurationError("tracing=True needs OpenTelemetry: pip install opentelemetry-sdk") from None
    return trace


class Sending:
    """Stands before an accumulator's `append`, with the same arguments."""

    def __init__(self, append: Append, client_id: str) -> None:
        trace = _needed()
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._append = append
        self._trace = trace
        self._client_id = client_id
        self._tracer = trace.get_tracer("kbroker")
        self._propagator = TraceContextTextMapPropagator()

    def __call__(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
        on_delivery: OnDelivery | None,
    ) -> Delivery | None:
        """Append the record with its span's name. One that finds no room is asked for again: its span is dropped."""
        attributes = _attributes("send", self._client_id, topic)
        span = self._tracer.start_span(f"send {topic}", kind=self._trace.SpanKind.PRODUCER, attributes=attributes)
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._trace.set_span_in_context(span))
        own = [(name, text.encode()) for name, text in carrier.items()]
        traced = [*(each for each in headers if each[0] not in HEADERS), *own]
        try:
            delivery = self._append(topic, value, key, partition, timestamp_ms, traced, on_delivery)
        except BaseException as error:
            self._end_failed(span, error)
            raise
        if delivery is not None:
            delivery.add_done_callback(lambda done: self._end(span, done))
        return delivery

    def _end(self, span: Any, delivery: Delivery) -> None:
        error = delivery.exception(0)
        if error is None:
            written = delivery.result(0)
            span.set_attribute("messaging.destination.partition.id", str(written.partition))
            if written.offset >= 0:
                span.set_attribute("messaging.kafka.offset", written.offset)
            span.end()
        else:
            self._end_failed(span, error)

    def _end_failed(self, span: Any, error: BaseException) -> None:
        span.record_exception(error)
        span.set_status(self._trace.StatusCode.ERROR, str(error))
        span.end()


class Receiving:
    """Tells of what a consumer's calls returned."""

    def __init__(self, client_id: str, group_id: str | None) -> None:
        self._trace = _needed()
        self._tracer = self._trace.get_tracer("kbroker")
        self._client_id = client_id
        self._group_id = group_id

    def received(self, records: Sequence[Record]) -> None:
        """Make a span for records that are handed over together."""
        if not records:
            return
        topics = {record.topic for record in records}
        topic = next(iter(topics)) if len(topics) == 1 else None
        attributes = _attributes("receive", self._client_id, topic)
        attributes["messaging.batch.message_count"] = len(records)
        if self._group_id is not None:
            attributes["messaging.consumer.group.name"] = self._group_id
        name = "poll" if topic is None else f"poll {topic}"
        kind = self._trace.SpanKind.CONSUMER
        self._tracer.start_span(name, kind=kind, links=self._links(records), attributes=attributes).end()

    def _links(self, records: Sequence[Record]) -> list[Any]:
        links: list[Any] = []
        for record in records:
            context = _sender(record)
            if context is not None and context.is_valid:
                links.append(self._trace.Link(context))
                if len(links) == MOST_LINKS:
                    break
        return links


def context_of(record: Record) -> Any:
    """Return the OpenTelemetry context that a record's sender was in; an empty one where it said nothing."""
    _needed()
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {
        name: bytes(value).decode("ascii", "replace")
        for name, value in record.headers
        if name in HEADERS and value is not None and len(value) <= LONGEST_HEADER
    }
    return TraceContextTextMapPropagator().extract(carrier, Context())


def _sender(record: Record) -> Any:
    """Return the context of the span that sent a record, None where its headers name none."""
    if not any(name == "traceparent" for name, _ in record.headers):
        return None
    return _needed().get_current_span(context_of(record)).get_span_context()


def _attributes(operation: str, client_id: str, topic: str | None) -> dict[str, Any]:
    """Return what OpenTelemetry's conventions for messaging ask for."""
    attributes: dict[str, Any] = {
        "messaging.system": "kafka",
        "messaging.operation.type": operation,
        "messaging.operation.name": "poll" if operation == "receive" else operation,
        "messaging.client.id": client_id,
    }
    if topic is not None:
        attributes["messaging.destination.name"] = topic
    return attributes
