"""Producers that go on through crashes of their broker and know afterwards what was acknowledged to them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as ConfluentProducer

from kbroker import Producer
from kbroker.dev.broker_process import BrokerProcess
from tests.system.wire import Peer, one_batch, produce

VALUE_BYTES = 300
MOST_IN_FLIGHT = 1000
UNKNOWN_OFFSET = -1


def value_of(name: str, number: int) -> bytes:
    return f"{name}-{number:07d}-".encode().ljust(VALUE_BYTES, b".")


class Bootstrap(Protocol):
    """A broker, or a cluster of them."""

    @property
    def bootstrap(self) -> str: ...


class Writer:
    """Sends numbered values round the partitions in a thread, until told to stop."""

    name = ""
    is_idempotent = True
    pause_s = 0.032
    """Between a handful of records and the next."""
    options: Mapping[str, Any] = {}
    """More of the client's own options."""

    def __init__(self, broker: Bootstrap, topic: str, partitions: int) -> None:
        self.broker = broker
        self.topic = topic
        self.partitions = partitions
        self.sent = 0
        self.acknowledged: dict[int, tuple[int, int]] = {}
        """Number -> (partition, offset)."""
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.finish(10)

    def finish(self, timeout: float) -> None:
        """Send no more, and wait for what is on its way."""
        self._stop.set()
        self._thread.join(timeout)
        if self._thread.is_alive():
            self.errors.append(f"{self.name} does not end within {timeout:g} s")

    def _run(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self.errors.append(repr(error))

    def _write(self) -> None:
        raise NotImplementedError

    def _is_ahead(self) -> bool:
        """Whether enough is on its way: nobody catches up with a sender who goes on while the broker is away."""
        return self.sent - len(self.acknowledged) - len(self.errors) >= MOST_IN_FLIGHT

    def _next(self) -> tuple[int, int, bytes]:
        """(number, partition, value)"""
        number = self.sent
        self.sent += 1
        return number, number % self.partitions, value_of(self.name, number)


class OurWriter(Writer):
    """Our producer, idempotent."""

    name = "ours"

    def _write(self) -> None:
        options = {"linger_ms": 1, "delivery_timeout_ms": 60_000, **self.options}
        with Producer(self.broker.bootstrap, **options) as producer:
            while not self._stop.is_set():
                for _ in range(0 if self._is_ahead() else 4):
                    number, partition, value = self._next()

                    def delivered(metadata: Any, error: BaseException | None, number: int = number) -> None:
                        if error is None:
                            self.acknowledged[number] = (metadata.partition, metadata.offset)
                        else:
                            self.errors.append(f"{number}: {error}")

                    producer.send(self.topic, value, partition=partition, on_delivery=delivered)
                time.sleep(self.pause_s)
            producer.flush(60)


class ConfluentWriter(Writer):
    """librdkafka's producer, idempotent."""

    name = "confluent"

    def _write(self) -> None:
        producer = ConfluentProducer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.size": 50_000,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                **self.options,
            }
        )
        while not self._stop.is_set():
            for _ in range(0 if self._is_ahead() else 4):
                number, partition, value = self._next()
                self._produce(producer, number, partition, value)
            producer.poll(0)
            time.sleep(self.pause_s)
        if producer.flush(60):
            self.errors.append("confluent-kafka could not deliver everything")

    def _produce(self, producer: ConfluentProducer, number: int, partition: int, value: bytes) -> None:
        """A broker of Kafka's that has just started may not know the topic yet, and librdkafka believes it."""
        deadline = time.monotonic() + 60
        while True:
            try:
                producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered(number))
                return
            except KafkaException as error:
                if error.args[0].code() != KafkaError._UNKNOWN_TOPIC or time.monotonic() > deadline:
                    raise
                producer.poll(0.1)

    def _delivered(self, number: int) -> Any:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                # Of a batch that the broker has already, librdkafka may not learn where.
                offset = UNKNOWN_OFFSET if message.offset() is None else message.offset()
                self.acknowledged[number] = (message.partition(), offset)
            else:
                self.errors.append(f"{number}: {error}")

        return delivered


class PlainWriter(Writer):
    """One batch at a time, no producer id, no retries: what is not answered may be there or not, but not twice."""

    name = "plain"
    is_idempotent = False
    broker: BrokerProcess

    def _write(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(OSError, AssertionError), Peer(self.broker) as peer:
                while not self._stop.is_set():
                    number, partition, value = self._next()
                    answer = produce(peer, self.topic, one_batch(value), partition)
                    if not answer.error_code:
                        self.acknowledged[number] = (partition, answer.base_offset)
                    time.sleep(self.pause_s)
            time.sleep(0.02)
