"""Brokers that lie, to see who notices: each lie is a meddler (exchange.py) that does one wrong thing now and then.

    liar = LIES["drop"](random.Random(7), chance=0.05)
    proxy.meddle(liar)
    ...
    liar.told                                  # how often it has lied

Lies about what is stored change what readers are served, where changing what is written would be noticed by the broker
(sequences of idempotent producers). What was hidden once is hidden from everybody who reads through the proxy.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.groups import OffsetCommitRequest, OffsetFetchRequest
from kbroker.protocol.messages.offsets import ListOffsetsRequest
from kbroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from kbroker.protocol.messages.transactions import EndTxnRequest, TxnOffsetCommitRequest
from kbroker.protocol.schema import Message, schema_of
from kbroker.verify.proxy.batches import Batch, emptied, joined, moved, split, without_producer
from kbroker.verify.proxy.exchange import Exchange

Place = tuple[str, int]
"""Topic and partition."""
READ_COMMITTED = 1
PAUSE_S = 0.05
"""An answer that is empty though there is something comes after the wait of one that is honest."""
MOST_REMEMBERED = 1_000_000


def keys(*requests: type[Message]) -> frozenset[int]:
    """The API keys of requests."""
    return frozenset(schema_of(request).api_key for request in requests)


class Lie:
    """What all lies have: a chance each time they could be told, and a count."""

    api_keys: frozenset[int] = frozenset()
    name: ClassVar[str]

    def __init__(self, rng: random.Random, chance: float = 0.1) -> None:
        self._rng = rng
        self._chance = chance
        self.told = 0

    def request(self, exchange: Exchange) -> Message | None:
        """Pass it on as it is."""
        return None

    def answer(self, exchange: Exchange, answer: Any) -> None:
        """Leave it as it is."""

    def _lies_now(self) -> bool:
        """Draw; true is counted."""
        lies = self._rng.random() < self._chance
        self.told += lies
        return lies


class Hiding(Lie):
    """Readers are not served certain batches: in their places stand empty ones, as compaction leaves them."""

    api_keys = keys(FetchRequest, ProduceRequest)

    def __init__(self, rng: random.Random, chance: float = 0.1) -> None:
        super().__init__(rng, chance)
        self._hidden: set[tuple[Place, int]] = set()

    def answer(self, exchange: Exchange, answer: Any) -> None:
        """Take hidden batches out of what is served."""
        if not self._hidden or not isinstance(exchange.request, FetchRequest):
            return
        for place, partition in fetched(exchange, answer):
            batches = split(partition.records)
            if any((place, header.base_offset) in self._hidden for header, _ in batches):
                partition.records = joined([self._shown(place, batch) for batch in batches])

    def _hide(self, place: Place, base_offset: int) -> None:
        if len(self._hidden) < MOST_REMEMBERED:
            self._hidden.add((place, base_offset))

    def _shown(self, place: Place, batch: Batch) -> Any:
        is_hidden = (place, batch[0].base_offset) in self._hidden
        return emptied(batch) if is_hidden else batch[1]


class Drop(Hiding):
    """Acknowledges batches that nobody will ever read.

    Those of producers without sequences never reach the broker, and their offsets are given to others; those of
    idempotent ones are stored, or the next would be refused, and are not served.
    """

    name = "drop"

    def __init__(self, rng: random.Random, chance: float = 0.1) -> None:
        super().__init__(rng, chance)
        self._ends: dict[Place, int] = {}
        """The offset behind the last batch that was acknowledged."""

    def request(self, exchange: Exchange) -> Message | None:
        """Leave batches out of a request; answer at once where nothing is left of it."""
        if not isinstance(exchange.request, ProduceRequest):
            return None
        dropped: list[tuple[Place, int]] = []
        for topic in exchange.request.topic_data:
            kept = []
            for partition in topic.partition_data:
                offset = self._offset_to_tell((topic.name, partition.index), partition)
                if offset is None:
                    kept.append(partition)
                else:
                    dropped.append(((topic.name, partition.index), offset))
            topic.partition_data = kept
        exchange.request.topic_data = [topic for topic in exchange.request.topic_data if topic.partition_data]
        if not exchange.request.topic_data:
            answer = ProduceResponse(responses=[])
            self._tell(answer, dropped)
            return answer
        exchange.notes[self] = dropped
        return None

    def answer(self, exchange: Exchange, answer: Any) -> None:
        """Acknowledge what was left out; choose what is to be hidden of what was not."""
        super().answer(exchange, answer)
        if not isinstance(exchange.request, ProduceRequest):
            return
        batches = {(t.name, p.index): split(p.records) for t in exchange.request.topic_data for p in t.partition_data}
        for place, partition in acknowledged(answer):
            for header, _ in batches.get(place, ())[:1]:
                self._ends[place] = partition.base_offset + header.last_offset_delta + 1
                if header.has_producer and self._lies_now():
                    self._hide(place, partition.base_offset)
        self._tell(answer, exchange.notes[self])

    def _offset_to_tell(self, place: Place, partition: Any) -> int | None:
        """Where the batch is said to be; None for one that is passed on."""
        end = self._ends.get(place)
        batches = split(partition.records)
        if end is None or not batches or batches[0][0].has_producer or not self._lies_now():
            return None
        self._ends[place] = end + sum(header.last_offset_delta + 1 for header, _ in batches)
        return end

    def _tell(self, answer: Any, dropped: Iterable[tuple[Place, int]]) -> None:
        topics = {topic.name: list(topic.partition_responses) for topic in answer.responses}
        for (topic, index), offset in dropped:
            said = ProduceResponse.PartitionProduceResponse(
                index=index, error_code=ErrorCode.NONE, base_offset=offset, log_start_offset=0
            )
            topics.setdefault(topic, []).append(said)
        answer.responses = [
            ProduceResponse.TopicProduceResponse(name=name, partition_responses=told) for name, told in topics.items()
        ]


class StoreTwice(Lie):
    """Stores batches a second time: as plain ones, so that no sequence gives them away to the broker."""

    name = "store-twice"
    api_keys = keys(ProduceRequest)

    def request(self, exchange: Exchange) -> Message | None:
        """Send some of the batches behind the request once more."""
        request = exchange.request
        topics = []
        for topic in request.topic_data:
            again = [
                ProduceRequest.PartitionProduceData(
                    index=partition.index, records=joined([without_producer(batch) for batch in batches])
                )
                for partition in topic.partition_data
                if (batches := split(partition.records)) and self._lies_now()
            ]
            if again:
                topics.append(ProduceRequest.TopicProduceData(name=topic.name, partition_data=again))
        if topics:
            exchange.extra_requests.append(
                ProduceRequest(acks=request.acks, timeout_ms=request.timeout_ms, topic_data=topics)
            )
        return None


class Renumber(Lie):
    """Tells producers another offset than their batch has."""

    name = "renumber"
    api_keys = keys(ProduceRequest)

    def answer(self, exchange: Exchange, answer: Any) -> None:
        """Say the next offset."""
        for _, partition in acknowledged(answer):
            if self._lies_now():
                partition.base_offset += 1


class Swap(Lie):
    """Serves two neighbouring batches in the other's place."""

    name = "swap"
    api_keys = keys(FetchRequest)

    def __init__(self, rng: random.Random, chance: float = 0.1) -> None:
        super().__init__(rng, chance)
        self._decided: dict[tuple[Place, int], bool] = {}
        """By the first batch's place: whoever reads both in one answer reads them in the same order."""

    def answer(self, exchange: Exchange, answer: Any) -> None:
        """Swap in what is served."""
        for place, partition in fetched(exchange, answer):
            batches = split(partition.records)
            swapped = list(self._swapped(place, batches))
            if any(new is not old for new, (_, old) in zip(swapped, batches, strict=True)):
                partition.records = joined(swapped)

    def _swapped(self, place: Place, batches: list[Batch]) -> Iterator[Any]:
        number = 0
        while number < len(batches):
            first = batches[number]
            second = batches[number + 1] if number + 1 < len(batches) else None
            if second is not None and self._are_swapped(place, first, second):
                start = first[0].base_offset
                yield moved(second, start)
                yield moved(first, start + second[0].last_offset_delta + 1)
                number += 2
            else:
                yield first[1]
                number += 1

    def _are_swapped(self, place: Place, first: Batch, second: Batch) -> bool:
        if first[0].is_control or second[0].is_control or first[0].next_offset != second[0].base_offset:
            return False
        if first[0].count == 0 or second[0].count == 0:
            return False
        key = (place, first[0].base_offset)
        if key not in self._decided:
            if len(self._decided) >= MOST_REMEMBERED:
                return False
            self._decided[key] = self._lies_now()
        return self._decided[key]


class AnswerEmpty(Lie):
    """From some offset on a partition looks as if it ended there, though more was acknowledged."""

    name = "answer-empty"
    api_keys = keys(ProduceRequest, FetchRequest, ListOffsetsRequest)

    def __init__(self, rng: random.Random, chance: float = 0.1) -> None:
        super().__init__(rng, chance)
        self._ends: dict[Place, int] = {}

    def answer(self, exchange: Exchange, answer: Any) -> None:
        """Choose an end at an acknowledgement; serve nothing behind it."""
        if isinstance(exchange.request, ProduceRequest):
            for place, partition in acknowledged(answer):
                if place not in self._ends and self._lies_now():
                    self._ends[place] = partition.base_offset
        elif isinstance(exchange.request, ListOffsetsRequest):
            for topic in answer.topics:
                for partition in topic.partitions:
                    end = self._ends.get((topic.name, partition.partition_index))
                    if end is not None and partition.offset > end:
                        partition.offset = end
        else:
            for place, partition in fetched(exchange, answer):
                if place in self._ends:
                    self._cut(exchange, partition, self._ends[place])

    def _cut(self, exchange: Exchange, partition: Any, end: int) -> None:
        partition.high_watermark = min(partition.high_watermark, end)
        partition.last_stable_offset = min(partition.last_stable_offset, end)
        batches = split(partition.records)
        kept = [data for header, data in batches if header.base_offset < end]
        if len(kept) < len(batches):
            partition.records = joined(kept)
            if not kept:
                exchange.pause_seconds = PAUSE_S


class StripAborted(Lie):
    """Says of no transaction that it was aborted: readers of committed records get its records."""

    name = "strip-aborted"
    api_keys = keys(FetchRequest)

    def answer(self, exchange: Exchange, answer: Any) -> None:
        """Empty the lists."""
        for _, partition in fetched(exchange, answer):
            if partition.aborted_transactions and self._lies_now():
                partition.aborted_transactions = []


class BeyondStable(Lie):
    """Serves readers of committed records what is not decided yet."""

    name = "beyond-stable"
    api_keys = keys(FetchRequest)

    def request(self, exchange: Exchange) -> Message | None:
        """Ask for all records."""
        lies = exchange.request.isolation_level == READ_COMMITTED and self._rng.random() < self._chance
        if lies:
            exchange.request.isolation_level = 0
        exchange.notes[self] = lies
        return None

    def answer(self, exchange: Exchange, answer: Any) -> None:
        """Say that all of it is stable."""
        if not exchange.notes[self]:
            return
        for _, partition in fetched(exchange, answer):
            if partition.error_code is ErrorCode.NONE:
                self.told += any(
                    header.is_transactional and header.last_offset >= partition.last_stable_offset
                    for header, _ in split(partition.records)
                )
                partition.aborted_transactions = []
                partition.last_stable_offset = partition.high_watermark


class CommitHalf(Hiding):
    """Of transactions over several partitions the part in one of them is never served."""

    name = "commit-half"
    api_keys = keys(ProduceRequest, FetchRequest, EndTxnRequest)

    def __init__(self, rng: random.Random, chance: float = 0.1) -> None:
        super().__init__(rng, chance)
        self._open: dict[int, dict[Place, list[int]]] = {}
        """Producer id -> the base offsets of its transaction, by partition."""

    def request(self, exchange: Exchange) -> Message | None:
        """Choose before the commit which half is lost."""
        if isinstance(exchange.request, EndTxnRequest):
            parts = self._open.pop(exchange.request.producer_id, {})
            if exchange.request.committed and len(parts) > 1 and self._lies_now():
                place = self._rng.choice(sorted(parts))
                for base_offset in parts[place]:
                    self._hide(place, base_offset)
        return None

    def answer(self, exchange: Exchange, answer: Any) -> None:
        """Remember where the parts of a transaction lie."""
        super().answer(exchange, answer)
        if not isinstance(exchange.request, ProduceRequest) or exchange.request.transactional_id is None:
            return
        batches = {(t.name, p.index): split(p.records) for t in exchange.request.topic_data for p in t.partition_data}
        for place, partition in acknowledged(answer):
            for header, _ in batches.get(place, ())[:1]:
                parts = self._open.setdefault(header.producer_id, {})
                parts.setdefault(place, []).append(partition.base_offset)


class StaleCommits(Lie):
    """Tells a group an older offset than it has committed last."""

    name = "stale-commits"
    api_keys = keys(OffsetCommitRequest, TxnOffsetCommitRequest, OffsetFetchRequest)

    def __init__(self, rng: random.Random, chance: float = 0.1) -> None:
        super().__init__(rng, chance)
        self._committed: dict[tuple[str, Place], tuple[int, int]] = {}
        """The offset before the last one, and the last."""

    def request(self, exchange: Exchange) -> Message | None:
        """Remember what is committed."""
        request = exchange.request
        if isinstance(request, OffsetCommitRequest | TxnOffsetCommitRequest):
            for topic in request.topics:
                for partition in topic.partitions:
                    key = (request.group_id, (topic.name, partition.partition_index))
                    before = self._committed.get(key, (0, 0))[1]
                    if partition.committed_offset > before:
                        self._committed[key] = (before, partition.committed_offset)
        return None

    def answer(self, exchange: Exchange, answer: Any) -> None:
        """Say the one before."""
        if not isinstance(exchange.request, OffsetFetchRequest):
            return
        groups = [(group.group_id, group.topics) for group in answer.groups]
        for group_id, topics in groups or [(exchange.request.group_id, answer.topics)]:
            for topic in topics:
                for partition in topic.partitions:
                    stale, last = self._committed.get((group_id, (topic.name, partition.partition_index)), (0, 0))
                    if stale < last and partition.committed_offset >= last and self._lies_now():
                        partition.committed_offset = stale


LIES: dict[str, type[Lie]] = {
    lie.name: lie
    for lie in (
        Drop,
        StoreTwice,
        Renumber,
        Swap,
        AnswerEmpty,
        StripAborted,
        BeyondStable,
        CommitHalf,
        StaleCommits,
    )
}
"""All lies by name."""


def acknowledged(answer: Any) -> Iterator[tuple[Place, Any]]:
    """The partitions of a Produce answer whose records were taken."""
    if isinstance(answer, ProduceResponse):
        for topic in answer.responses:
            for partition in topic.partition_responses:
                if partition.error_code is ErrorCode.NONE and partition.base_offset >= 0:
                    yield (topic.name, partition.index), partition


def fetched(exchange: Exchange, answer: Any) -> Iterator[tuple[Place, Any]]:
    """The partitions of a Fetch answer, as far as their topics' names are known."""
    for topic in answer.responses:
        name = exchange.topic_of(topic)
        if name is not None:
            for partition in topic.partitions:
                yield (name, partition.partition_index), partition
