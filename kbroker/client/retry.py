"""Records that cannot be worked off now, or ever: tried again, then sent on to NAME.retry and NAME.dlq.

    with Consumer(…, group_id="billing", enable_auto_commit=False) as consumer, Producer(…) as producer:
        consumer.subscribe(["orders", "orders.retry"])
        Retry(consumer, producer, attempts=3, delay_s=60).run(bill)

`bill(record)` is called up to `attempts` times, with growing pauses. If it raises each time, a record of `orders` goes
to `orders.retry` with what it raised in its headers, and one of `orders.retry` is given once more, no sooner than
`delay_s` after it was put there; then it goes to `orders.dlq`. Only when a record is worked off, or its copy is
acknowledged, is it committed. What is sent on has left its partition's order: others with its key overtake it.

Headers of a copy (text, UTF-8):

    error.topic, error.partition, error.offset     where the record was first
    error.class, error.message                     what was raised last
    error.attempts                                 how often it was tried in all
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from kbroker.client.blocking import Consumer, Producer
from kbroker.client.delivery import Delivery
from kbroker.client.errors import ConfigurationError, WokenUp
from kbroker.client.partition_names import Partition
from kbroker.client.types import TopicPartition
from kbroker.protocol.records.record import Record

RETRY, DEAD = ".retry", ".dlq"
PREFIX = "error."
MESSAGE_LIMIT = 1_000
"""Characters of an error's text that are kept."""
PAUSE_LIMIT_S = 5.0


class Retry:
    """Works a consumer's records off. `run` ends with `consumer.wakeup()`."""

    def __init__(
        self,
        consumer: Consumer,
        producer: Producer,
        *,
        attempts: int = 3,
        pause_s: float = 0.1,
        delay_s: float = 60.0,
        max_records: int = 500,
        timeout_s: float = 60.0,
    ) -> None:
        """`pause_s` lies before the second attempt, each further pause is twice as long; `timeout_s` is for copies."""
        config = consumer.config
        if config.group_id is None or config.enable_auto_commit:
            raise ConfigurationError("a consumer with group_id and enable_auto_commit=False is wanted")
        if config.key_deserializer is not None or config.value_deserializer is not None:
            raise ConfigurationError("records are sent on as they are: deserialize in the function that works them off")
        if attempts < 1:
            raise ConfigurationError(f"attempts is at least 1, not {attempts}")
        self._consumer = consumer
        self._producer = producer
        self._attempts = attempts
        self._pause_s = pause_s
        self._delay_s = delay_s
        self._max_records = max_records
        self._timeout_s = timeout_s
        self._waiting: dict[TopicPartition, float] = {}
        """Partitions whose next record is not to be tried before that time."""

    def run(self, work: Callable[[Record], object]) -> None:
        """Work off whatever comes, until `consumer.wakeup()`; what is no `Exception` (Ctrl-C) ends it too."""
        try:
            while True:
                self.step(work)
        except WokenUp:
            return

    def step(self, work: Callable[[Record], object], timeout: float = 1.0) -> int:
        """Poll once, and work off and commit what comes; returns how many records came."""
        self._resume()
        records = self._consumer.poll(timeout, self._max_records)
        done: dict[Partition, int] = {}
        aside: dict[TopicPartition, float] = {}  # not all of _waiting: a rebalance in poll gives what waited anew
        copies: list[Delivery] = []
        is_settled = False
        try:
            for record in records:
                key = TopicPartition(record.topic, record.partition)
                if key in aside:
                    continue
                if (due := self._due(record)) > time.time():
                    aside[key] = due
                    continue
                if (error := self._try(work, record)) is not None:
                    copies.append(self._send_on(record, error))
                done[key] = record.offset + 1
        finally:
            try:
                for copy in copies:
                    copy.result(self._timeout_s)
                if done:
                    self._consumer.commit(done)
                is_settled = True
                self._waiting |= aside
                self._consumer.pause(*aside)
            finally:
                self._go_back(records, done if is_settled else {})
        return len(records)

    def _go_back(self, records: list[Record], done: Mapping[Partition, int]) -> None:
        """Have what is not done given again: what waits, all after an interrupt or when a copy or the commit failed."""
        left: dict[TopicPartition, int] = {}
        for record in records:
            key = TopicPartition(record.topic, record.partition)
            if record.offset >= done.get(key, 0):
                left.setdefault(key, record.offset)
        for key, offset in left.items():
            self._consumer.seek(key, offset)

    def _try(self, work: Callable[[Record], object], record: Record) -> Exception | None:
        """Return what the last attempt raised, None after one that did not."""
        problem: Exception | None = None
        for attempt in range(self._attempts):
            if attempt:
                time.sleep(min(self._pause_s * 2 ** (attempt - 1), PAUSE_LIMIT_S))
            try:
                work(record)
            except Exception as error:
                problem = error
            else:
                return None
        return problem

    def _due(self, record: Record) -> float:
        """Return when a record may be tried: one that was put aside waits."""
        return record.timestamp / 1000 + self._delay_s if record.topic.endswith(RETRY) else 0.0

    def _resume(self) -> None:
        """Go on with partitions that have waited; those that others have by now are forgotten."""
        paused = self._consumer.paused() if self._waiting else set()
        for key, due in list(self._waiting.items()):
            if key not in paused:
                del self._waiting[key]
            elif due <= time.time():
                del self._waiting[key]
                self._consumer.resume(key)

    def _send_on(self, record: Record, error: Exception) -> Delivery:
        """Send a copy to where records like this one go next."""
        before = {name: value for name, value in record.headers if name.startswith(PREFIX)}
        tried = _number(before.get(f"{PREFIX}attempts")) + self._attempts
        base = record.topic.removesuffix(RETRY)
        said = {
            "topic": before.get(f"{PREFIX}topic") or record.topic.encode(),
            "partition": before.get(f"{PREFIX}partition") or b"%d" % record.partition,
            "offset": before.get(f"{PREFIX}offset") or b"%d" % record.offset,
            "class": type(error).__qualname__.encode(),
            "message": str(error)[:MESSAGE_LIMIT].encode(errors="replace"),
            "attempts": b"%d" % tried,
        }
        headers = [pair for pair in record.headers if not pair[0].startswith(PREFIX)]
        headers += [(f"{PREFIX}{name}", value) for name, value in said.items()]
        topic = base + (DEAD if record.topic.endswith(RETRY) else RETRY)
        return self._producer.send(topic, record.value, record.key, headers=headers)


def _number(text: bytes | None) -> int:
    """Return what a header says; anybody may have written it."""
    return int(text) if text is not None and text.isdigit() and len(text) < 10 else 0
