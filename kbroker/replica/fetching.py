"""What one Fetch request reads: its partitions in the order of its session, checked, limited, in slices of files.

    limit of a reader      follower: log end offset    consumer: high watermark    read_committed: last stable offset
    whole batch            the first partition that has data gets at least one, however small the limits (v3+)
    held back              followers out of sync, on throttled replicas, while the rate is exceeded (KIP-73)

What is not in memory is not waited for: it is left out, or, when there is nothing else, read ahead by a thread first.
A partition of an incremental session that had nothing and has not changed since costs a comparison or two.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Container, Generator, Iterable, Sequence
from typing import Any, Protocol

from kbroker.cluster.metadata_cache import MetadataCache
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.fetch import FetchRequest, FetchResponse
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.replica.fetch_sessions import NEVER_SEEN, FetchContext, FetchTarget
from kbroker.replica.hosted import HostedPartition
from kbroker.replica.partition import Instruction, Role
from kbroker.replica.read_ahead import ColdRead
from kbroker.replica.replica_selection import ReplicaSelector
from kbroker.replica.throttles import ReplicationThrottle
from kbroker.replica.traffic import Totals
from kbroker.replica.turns import in_turns, portions
from kbroker.segment.files import NotInMemory

log = logging.getLogger(__name__)

PartitionData = FetchResponse.PartitionData
Answers = list[tuple[FetchTarget, PartitionData]]
NOTHING = b""
MENDING = -2
"""Replica id in a Fetch of a broker that mends what it has: it reads as consumers do, and is no follower."""
READ_COMMITTED = 1
MOST_AT_ONCE = 100
"""Partitions that are looked at, and read, in one go: that takes a few milliseconds."""
READ_PORTION = 20
MOST_KEPT_AT_ONCE = 2_000
"""Partitions that were read already and are put together in one go."""
LONGEST_WAIT_MS = 60_000
"""An answer with nothing in it is as good as none: whoever wants to wait longer asks again."""
NOTE_INTERVAL_MS = 1_000
"""How often a follower's fetches count for those of its partitions, too, that have been idle since its last fetch."""


class ReplicaLookup(Protocol):
    """What a fetch needs of the replica manager."""

    metadata: MetadataCache
    steady: Callable[[], int]
    replica_selector: ReplicaSelector | None
    leader_throttle: ReplicationThrottle
    totals: Totals

    def find(self, topic: str, partition: int) -> HostedPartition | ErrorCode:
        """Return the hosted partition, or why there is none (3, 56, 6)."""

    def known_leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return leader and leader epoch as far as this broker knows."""

    def carry_out(self, hosted: HostedPartition, instructions: list[Instruction]) -> None:
        """Do what the partition's state asks for."""


class Builder(Protocol):
    """Makes the response of what was read."""

    def add(self, answers: Answers) -> None:
        """Add what is to be sent."""

    def response(self) -> Any:
        """Return the response with all that was added."""


class FetchParameters:
    """The fields of a Fetch request that hold for all its partitions."""

    __slots__ = (
        "by_log_end",
        "is_follower",
        "listener",
        "max_bytes",
        "max_wait_ms",
        "may_read",
        "min_bytes",
        "rack",
        "read_committed",
        "readable",
        "received_at",
        "replica_epoch",
        "replica_id",
        "version",
    )

    def __init__(self, request: FetchRequest, version: int, listener: str, received_at: int, max_bytes: int) -> None:
        self.version = version
        self.replica_id: int = request.replica_state.replica_id if version >= 15 else request.replica_id
        self.replica_epoch: int = request.replica_state.replica_epoch if version >= 15 else -1
        self.is_follower = self.replica_id >= 0
        self.by_log_end = self.is_follower
        self.max_wait_ms: int = min(request.max_wait_ms, LONGEST_WAIT_MS)
        self.max_bytes: int = request.max_bytes if self.is_follower else min(request.max_bytes, max_bytes)
        self.min_bytes: int = min(request.min_bytes, self.max_bytes)
        self.read_committed = request.isolation_level == READ_COMMITTED
        self.rack: str = request.rack_id
        self.listener = listener
        self.received_at = received_at
        self.readable: Container[str] = ()
        """Topics of which it is known that who asks may read them."""
        self.may_read: Callable[[str], bool] | None = None
        """Whether who asks may read a topic; None: every topic."""


class PartitionFetch:
    """One Fetch request: read all with `attempt`; while that is too little `is_enough` looks at what changes, and what
    there is in the end is the `answer`.
    """

    __slots__ = (
        "_builder",
        "_context",
        "_first",
        "_is_held_back",
        "_is_patient",
        "_is_up_to_date",
        "_kept",
        "_parameters",
        "_replicas",
        "_total",
        "_waiting",
        "by_log_end",
        "cold",
    )

    def __init__(
        self,
        replicas: ReplicaLookup,
        context: FetchContext,
        parameters: FetchParameters,
        builder: Builder,
    ) -> None:
        self._replicas = replicas
        self._context = context
        self._parameters = parameters
        self._first = True
        self._is_held_back = False
        """Whether the throttle left out records that are there."""
        self._waiting: dict[HostedPartition, FetchTarget] = {}
        """What can be waited for."""
        self._kept: dict[FetchTarget, PartitionData] = {}
        """What there was for each when it was last looked at, while it waits."""
        self._total = 0
        """The bytes of records in that."""
        self._is_up_to_date = False
        """Whether that is the answer: it is enough, and all of it was looked at in this turn or has not changed."""
        self._is_patient = False
        self.cold: list[ColdRead] = []
        """What the last attempt left out because it is not in memory."""
        self.by_log_end = parameters.is_follower
        self._builder = builder

    @property
    def hosted(self) -> Iterable[HostedPartition]:
        """The partitions it can wait for."""
        return self._waiting.keys()

    @property
    def patience_ms(self) -> int:
        """How long to wait for more than there was: no longer than the throttle asks for, if that is what kept it."""
        max_wait_ms = self._parameters.max_wait_ms
        if not self._is_held_back:
            return max_wait_ms
        return min(max_wait_ms, self._replicas.leader_throttle.pause_ms(self._replicas.steady()))

    def attempt(self, final: bool, patient: bool = False) -> Any:
        """Return the response, or None when there is too little and time to wait.

        Unless `patient`, what is not in memory is left out and noted as `cold`; None if that is all there is. For very
        many partitions it may be an awaitable of either: nothing else is to be asked before that is done.
        """
        parameters = self._parameters
        if self._is_up_to_date:
            self._is_up_to_date = False
            is_whole = not (self.cold or self._is_held_back) and self._total <= parameters.max_bytes
            if len(self._kept) > READ_PORTION:  # the look may have taken turns, and have ended a turn ago
                is_whole = is_whole and not self.changed_meanwhile()
            if final and is_whole and len(self._kept) <= MOST_KEPT_AT_ONCE:
                return self._answer(list(self._kept.items()), self._total)
        if len(self._context.targets) > MOST_AT_ONCE:
            return in_turns(self._attempt_in_turns(final, patient))
        self.cold = []
        self._is_patient = patient
        self._is_held_back = False
        answers, size, at_once = self._read_all(
            self._context.targets, parameters.max_bytes, parameters.version >= 3, self._notes_idle()
        )
        self._is_patient = False
        self._first = False
        if not self._is_to_be_sent(final, size, at_once):
            for target, answer in answers:
                target.keep_for_later(answer)
            self._keep(answers, size)
            return None
        return self._answer(answers, size)

    def _attempt_in_turns(self, final: bool, patient: bool) -> Generator[None, None, Any]:
        self.cold = []
        self._is_patient = patient
        self._is_held_back = False
        size, at_once, whole_batch, notes_idle = 0, False, self._parameters.version >= 3, self._notes_idle()
        answers: Answers = []
        for portion in portions(self._context.targets, READ_PORTION):
            budget = max(self._parameters.max_bytes - size, 0)
            found, found_size, is_news = self._read_all(portion, budget, whole_batch, notes_idle)
            answers += found
            size += found_size
            at_once = at_once or is_news
            whole_batch = whole_batch and not size
            yield
        self._is_patient = False
        self._first = False
        if not self._is_to_be_sent(final, size, at_once):
            for kept in portions(answers):
                for target, answer in kept:
                    target.keep_for_later(answer)
                yield
            self._keep(answers, size)
            return None
        if size:
            self._count(answers, size)
        for sent in portions(answers):
            self._builder.add(self._context.select(list(sent)))
            yield
        return self._builder.response()

    def _is_to_be_sent(self, final: bool, size: int, at_once: bool) -> bool:
        if (final and (size > 0 or not self.cold)) or at_once or size >= self._parameters.min_bytes:
            return True
        return not any(target.hosted is not None for target in self._context.targets)

    def _keep(self, answers: Answers, size: int) -> None:
        """Remember what there is, and wait for more."""
        self._kept = dict(answers)
        self._total = size
        self._waiting = {target.hosted: target for target in self._context.targets if target.hosted is not None}

    def _answer(self, answers: Answers, size: int) -> Any:
        if size:
            self._count(answers, size)
        self._builder.add(self._context.select(answers))
        return self._builder.response()

    def changed_meanwhile(self) -> list[HostedPartition]:
        """Those that have changed since they were read, in an attempt of several turns before it waited."""
        return [
            hosted
            for hosted, target in self._waiting.items()
            if hosted.changes != target.read_changes
            or (self.by_log_end and hosted.log.log_end_offset > target.read_end_offset)
        ]

    def is_enough(self, changed: Collection[HostedPartition]) -> bool | Awaitable[bool]:
        """Look at those of its partitions that have changed: is there enough now, or something to be told at once?"""
        self.cold = []
        if len(changed) > READ_PORTION:
            return in_turns(self._is_enough_in_turns(list(changed)))
        is_enough = self._look_at(changed)
        self._is_up_to_date = is_enough and self._is_whole()
        return is_enough

    def _is_enough_in_turns(self, changed: Sequence[HostedPartition]) -> Generator[None, None, bool]:
        is_enough = False
        for portion in portions(changed, READ_PORTION):
            is_enough = self._look_at(portion) or is_enough
            if self.cold:
                break
            yield
        self._is_up_to_date = is_enough and self._is_whole()
        return is_enough

    def _is_whole(self) -> bool:
        return not self.cold and len(self._waiting) == len(self._context.targets)

    def _look_at(self, changed: Iterable[HostedPartition]) -> bool:
        """Read these: is there enough by now, or something that is not in memory, or is to be told at once?"""
        kept, parameters = self._kept, self._parameters
        is_news = False
        for hosted in changed:
            target = self._waiting[hosted]
            others = self._total - size_of(kept.get(target))
            answer = kept[target] = self._read(target, parameters.max_bytes, whole_batch=not others)
            target.seen_changes = NEVER_SEEN  # it is told by the answer only
            if self.cold:
                return True
            self._total = others + size_of(answer)
            is_news = is_news or self._is_news(answer)
        return is_news or self._total >= parameters.min_bytes

    def _is_news(self, answer: PartitionData) -> bool:
        """Whether an answer is to be sent without waiting for more records.

        One that ends with a segment is: what follows there comes with the next fetch only.
        """
        if answer.error_code is ErrorCode.NONE:
            if answer.records:
                goes_on: bool = answer.records.goes_on
                return goes_on
            return answer.diverging_epoch.epoch >= 0 or answer.preferred_read_replica >= 0
        # A topic id that is not known yet may become known: only what concerns this broker ends the waiting. A
        # follower goes on with its other partitions, and comes back to this one soon.
        return self._parameters.is_follower or answer.error_code not in UNKNOWN_TOPIC_ERRORS

    def expired(self) -> None:
        """See delayed.Fetch."""
        if self._parameters.is_follower:
            self._replicas.totals.expired_follower_fetches += 1
        else:
            self._replicas.totals.expired_consumer_fetches += 1

    def _count(self, answers: Answers, sent: int) -> None:
        """Count what is sent, and what of it goes to throttled replicas, in sync or not."""
        if not self._parameters.is_follower:
            for target, answer in answers:
                if answer.records and target.hosted is not None:
                    target.hosted.traffic.bytes_out += len(answer.records)
            return
        self._replicas.totals.replicated_out += sent
        throttle = self._replicas.leader_throttle
        size = 0
        for target, answer in answers:
            if answer.records and throttle.is_throttled(target.hosted.topic, target.partition):
                size += len(answer.records)
        if size:
            throttle.record(size, self._replicas.steady())

    def _read_all(
        self, targets: Iterable[FetchTarget], budget: int, whole_batch: bool, notes_idle: bool
    ) -> tuple[Answers, int, bool]:
        """Return the answers, the bytes of records in them, and whether one of them is to be sent without waiting."""
        incremental = self._context.incremental
        answers: Answers = []
        total = 0
        at_once = False
        is_follower = self._parameters.is_follower
        for target in targets:
            hosted = target.hosted
            if (
                incremental
                and hosted is not None
                and hosted.changes == target.seen_changes
                and not (is_follower and hosted.log.log_end_offset > target.fetch_offset)
            ):
                if notes_idle:
                    self._note_follower(hosted, target)
                continue
            answer = self._read(target, budget, whole_batch)
            size = size_of(answer)
            if size:
                target.seen_changes = NEVER_SEEN
                whole_batch = False
                total += size
                budget = max(budget - size, 0)
            elif not budget:
                target.seen_changes = NEVER_SEEN
            at_once = at_once or self._is_news(answer)
            answers.append((target, answer))
        return answers, total, at_once

    def _notes_idle(self) -> bool:
        """Whether it is time to count a follower's fetch for its idle partitions: they are caught up by it as well."""
        session = self._context.session
        if session is None or not (self._first and self._parameters.is_follower):
            return False
        received_at = self._parameters.received_at
        if received_at - session.noted_ms < NOTE_INTERVAL_MS:
            return False
        session.noted_ms = received_at
        return True

    def _read(self, target: FetchTarget, budget: int, whole_batch: bool) -> PartitionData:
        found = self._locate(target)
        if not isinstance(found, HostedPartition):
            return self._refusal(target, found)
        if self._first:
            found.traffic.fetches += 1
        try:
            return self._read_from(found, target, budget, whole_batch)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                found.traffic.failed_fetches += 1
                log.error("cannot read %s at offset %d: %s", found, target.fetch_offset, error)
            elif self._parameters.is_follower:
                found.state.follower_is_astray(self._parameters.replica_id)
            return self._refusal(target, error.code)
        except Exception:
            found.traffic.failed_fetches += 1
            log.exception("cannot read %s at offset %d", found, target.fetch_offset)
            return self._refusal(target, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _locate(self, target: FetchTarget) -> HostedPartition | ErrorCode:
        """Return the hosted partition after checks of its leader and epoch (KIP-320), or the error."""
        target.hosted = None
        topic = target.topic
        if topic is None:
            topic = target.topic = self._replicas.metadata.name_of(target.topic_id)
            if topic is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
        parameters = self._parameters
        if parameters.may_read is not None and topic not in parameters.readable and not parameters.may_read(topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        found = self._replicas.find(topic, target.partition)
        if not isinstance(found, HostedPartition):
            return found
        if target.topic_id != ZERO_UUID and target.topic_id != found.topic_id != ZERO_UUID:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        state = found.state
        if state.role is Role.LEADER and target.current_leader_epoch == state.leader_epoch:
            error = ErrorCode.NONE
        else:
            leader_only = parameters.is_follower or parameters.version < 11 or state.role is Role.NONE
            error = state.leader_error(target.current_leader_epoch, leader_only)
        if error is ErrorCode.NONE and parameters.is_follower and parameters.replica_id not in state.remotes:
            unknown, no_epoch = ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER
            error = unknown if target.current_leader_epoch >= 0 else no_epoch
        if error is not ErrorCode.NONE:
            return error
        target.hosted = found
        return found

    def _read_from(self, hosted: HostedPartition, target: FetchTarget, budget: int, whole_batch: bool) -> PartitionData:
        parameters = self._parameters
        partition_log = hosted.log
        offset = target.fetch_offset
        # Counting a follower's fetch may move the high watermark once it was looked at: that is news for the next time.
        target.seen_changes = target.read_changes = hosted.changes
        high_watermark = partition_log.high_watermark
        last_stable_offset = partition_log.last_stable_offset
        log_start_offset = partition_log.log_start_offset
        log_end_offset = target.read_end_offset = partition_log.log_end_offset
        if target.last_fetched_epoch >= 0:
            diverging = self._divergence(hosted, target)
            if diverging is not None:
                target.seen_changes = NEVER_SEEN
                return diverging
        if not log_start_offset <= offset <= log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if parameters.is_follower:
            limit = log_end_offset
            if self._first:
                self._note_follower(hosted, target)
        else:
            limit = last_stable_offset if parameters.read_committed else high_watermark
            preferred = self._preferred_replica(hosted, offset)
            if preferred is not None:
                return PartitionData(
                    partition_index=target.partition,
                    error_code=ErrorCode.NONE,
                    high_watermark=high_watermark,
                    last_stable_offset=last_stable_offset,
                    log_start_offset=log_start_offset,
                    aborted_transactions=None,
                    preferred_read_replica=preferred,
                    records=NOTHING,
                )
        records: Any = NOTHING
        aborted = None
        if offset < limit and (budget > 0 or whole_batch) and not self._must_wait(hosted):
            max_bytes = min(budget, target.max_bytes)
            try:
                records = partition_log.read(offset, max_bytes, limit, whole_batch, self._is_patient)
            except NotInMemory:
                self.cold.append(ColdRead(partition_log, offset, max_bytes, limit, whole_batch))
                target.seen_changes = NEVER_SEEN
        if parameters.read_committed:
            aborted = self._aborted(hosted, records, limit)
        return PartitionData(
            partition_index=target.partition,
            error_code=ErrorCode.NONE,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
            aborted_transactions=aborted,
            records=records,
        )

    def _divergence(self, hosted: HostedPartition, target: FetchTarget) -> PartitionData | None:
        """Compare the reader's last epoch with ours (checks 10 to 12)."""
        partition_log = hosted.log
        epoch, end_offset = partition_log.offset_for_leader_epoch(target.last_fetched_epoch)
        if end_offset < 0 or epoch < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if target.fetch_offset < partition_log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch >= target.last_fetched_epoch and end_offset >= target.fetch_offset:
            return None
        return PartitionData(
            partition_index=target.partition,
            error_code=ErrorCode.NONE,
            high_watermark=partition_log.high_watermark,
            last_stable_offset=partition_log.last_stable_offset,
            log_start_offset=partition_log.log_start_offset,
            diverging_epoch=FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset),
            aborted_transactions=None,
            records=NOTHING,
        )

    def _note_follower(self, hosted: HostedPartition, target: FetchTarget) -> None:
        parameters = self._parameters
        instructions = hosted.state.follower_fetched(
            parameters.replica_id,
            target.fetch_offset,
            target.log_start_offset,
            parameters.received_at,
            self._replicas.metadata.brokers,
            hosted.log.log_end_offset,
            parameters.replica_epoch,
        )
        if hosted.deletions:
            hosted.settle_deletions(self._replicas.metadata.brokers)
        if instructions:
            self._replicas.carry_out(hosted, instructions)

    def _preferred_replica(self, hosted: HostedPartition, offset: int) -> int | None:
        selector = self._replicas.replica_selector
        if selector is None or self._parameters.version < 11 or not hosted.state.is_leader:
            return None
        chosen = selector(hosted, self._parameters.rack, self._parameters.listener, offset)
        return None if chosen == hosted.state.broker_id else chosen

    def _must_wait(self, hosted: HostedPartition) -> bool:
        """Whether the throttle holds the follower back. One in sync is never, or it would not stay so."""
        parameters = self._parameters
        if not parameters.is_follower or parameters.replica_id in hosted.state.isr:
            return False
        replicas = self._replicas
        throttle = replicas.leader_throttle
        if not (throttle.is_throttled(hosted.topic, hosted.partition) and throttle.is_exceeded(replicas.steady())):
            return False
        self._is_held_back = True
        return True

    def _aborted(self, hosted: HostedPartition, records: Any, limit: int) -> list[Any]:
        """List the aborted transactions among the records (an empty list, not null, where there are none)."""
        if not records:
            return []
        return [
            FetchResponse.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in hosted.log.aborted_transactions(records, limit)
        ]

    def _refusal(self, target: FetchTarget, error: ErrorCode) -> PartitionData:
        target.seen_changes = NEVER_SEEN  # nothing was seen: the next request of a session is told the same, or reads
        if error is ErrorCode.KAFKA_STORAGE_ERROR and self._parameters.version <= 5:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = PartitionData(
            partition_index=target.partition,
            error_code=error,
            high_watermark=-1,
            aborted_transactions=[] if error is ErrorCode.TOPIC_AUTHORIZATION_FAILED else None,
            records=NOTHING,
        )
        if self._parameters.version >= 16 and error in LEADER_HINT_ERRORS and target.topic is not None:
            known = self._replicas.known_leader(target.topic, target.partition)
            if known is not None:
                leader, epoch = known
                answer.current_leader = FetchResponse.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        return answer


def size_of(answer: PartitionData | None) -> int:
    """Bytes of records in what is to be sent of a partition."""
    return len(answer.records) if answer is not None and answer.records else 0


UNKNOWN_TOPIC_ERRORS = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
LEADER_HINT_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""Errors after which the client is told who leads now (KIP-951)."""
