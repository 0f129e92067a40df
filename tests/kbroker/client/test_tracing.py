"""Spans of OpenTelemetry, from `send` over the record's header to the consumer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker import Consumer, Producer
from kbroker.client.delivery import Batch, Delivery
from kbroker.client.errors import ConfigurationError, DeliveryTimeout
from kbroker.client.tracing import MOST_LINKS, Receiving, Sending, context_of
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.records.record import Record

trace = pytest.importorskip("opentelemetry.trace")
pytest.importorskip("opentelemetry.sdk.trace")


@pytest.fixture(scope="module")
def exporter() -> Any:
    """Where the spans of this process go: OpenTelemetry takes one provider for good."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    trace.set_tracer_provider(provider)
    return kept


@pytest.fixture
def spans(exporter: Any) -> Iterator[Any]:
    """The spans that have ended since the test began."""
    exporter.clear()
    yield exporter.get_finished_spans
    exporter.clear()


def read_all(bootstrap: str, topic: str, count: int, **options: Any) -> list[Record]:
    found: list[Record] = []
    with Consumer(bootstrap, auto_offset_reset="earliest", **options) as consumer:
        consumer.subscribe([topic])
        while len(found) < count:
            found += consumer.poll(0.5)
    return found


def test_a_record_is_followed_from_its_sender_to_the_poll_that_returned_it(
    broker: BrokerProcess, topic_name: str, spans: Any
) -> None:
    tracer = trace.get_tracer("the application")
    with Producer(broker.bootstrap, tracing=True, client_id="me") as producer:
        with tracer.start_as_current_span("order") as order:
            written = producer.send(topic_name, b"1", headers=[("mine", b"x"), ("traceparent", b"old")]).result(60)
        assert producer.metrics().keys() == producer.statistics().keys()
    (sent,) = [span for span in spans() if span.name == f"send {topic_name}"]
    assert sent.parent.span_id == order.get_span_context().span_id
    assert sent.kind is trace.SpanKind.PRODUCER
    assert sent.attributes["messaging.kafka.offset"] == written.offset
    assert (sent.attributes["messaging.destination.name"], sent.attributes["messaging.client.id"]) == (topic_name, "me")
    (record,) = read_all(broker.bootstrap, topic_name, 1, tracing=True)
    assert [name for name, _ in record.headers] == ["mine", "traceparent"]
    polled = [span for span in spans() if span.name == f"poll {topic_name}"]
    assert [link.context.span_id for span in polled for link in span.links] == [sent.context.span_id]
    sender = trace.get_current_span(context_of(record)).get_span_context()
    assert (sender.trace_id, sender.is_remote) == (sent.context.trace_id, True)


def test_who_does_not_ask_for_it_sends_and_gets_records_as_they_are(
    broker: BrokerProcess, topic_name: str, spans: Any
) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send(topic_name, b"1").result(60)
    (record,) = read_all(broker.bootstrap, topic_name, 1)
    assert record.headers == ()
    assert spans() == ()
    assert not trace.get_current_span(context_of(record)).get_span_context().is_valid


def test_a_record_that_is_given_up_ends_its_span_with_the_error(spans: Any) -> None:
    batch = Batch("t", 0, None, 0.0, 1.0)
    batch.count = 1
    sending = Sending(lambda *record: Delivery(batch, 0, 0), "me")
    assert sending("t", b"v", None, None, None, (), None) is not None
    assert spans() == ()
    batch.finish(-1, error=DeliveryTimeout("too late"))
    (span,) = spans()
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.events[0].name == "exception"


def test_a_record_that_cannot_be_sent_ends_its_span_with_the_error(spans: Any) -> None:
    def too_large(*record: Any) -> Delivery:
        raise ValueError("too large")

    with pytest.raises(ValueError, match="too large"):
        Sending(too_large, "me")("t", b"v", None, None, None, (), None)
    (span,) = spans()
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.events[0].name == "exception"


def test_a_record_that_is_sent_on_carries_no_state_of_its_former_sender(spans: Any) -> None:
    sent: list[Any] = []
    headers = (("traceparent", b"old"), ("tracestate", b"old=1"), ("mine", b"x"))
    Sending(lambda *record: sent.append(record[5]), "me")("t", b"v", None, None, None, headers, None)
    assert [name for name, _ in sent[0]] == ["mine", "traceparent"]


def test_a_state_that_is_too_long_is_not_read(spans: Any) -> None:
    parent = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    for state, entries in ((b"a=1", 1), (b"a=1," + b" " * 512 + b"b=2", 0)):
        context = context_of(Record(0, 0, 0, None, b"", (parent, ("tracestate", state)), "t", 0))
        assert len(trace.get_current_span(context).get_span_context().trace_state) == entries


def test_a_record_without_room_is_no_span(spans: Any) -> None:
    assert Sending(lambda *record: None, "me")("t", b"v", None, None, None, (), None) is None
    assert spans() == ()


def test_a_poll_of_several_topics_links_as_many_senders_as_are_kept(spans: Any) -> None:
    header = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    records = [Record(number, 0, 0, None, b"", (header,), f"t{number % 2}", 0) for number in range(MOST_LINKS + 10)]
    receiving = Receiving("me", "billing")
    receiving.received(records)
    receiving.received([])
    (span,) = spans()
    assert (span.name, len(span.links)) == ("poll", MOST_LINKS)
    assert span.attributes["messaging.batch.message_count"] == MOST_LINKS + 10
    assert span.attributes["messaging.consumer.group.name"] == "billing"


@pytest.mark.parametrize("value", [b"", b"\xff", b"00-0-0-0", None])
def test_a_header_that_names_no_span_is_passed_over(spans: Any, value: bytes | None) -> None:
    Receiving("me", None).received([Record(0, 0, 0, None, b"", (("traceparent", value),), "t", 0)])
    (span,) = spans()
    assert not span.links


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigurationError, match="pip install opentelemetry-sdk"):
        Receiving("me", None)
