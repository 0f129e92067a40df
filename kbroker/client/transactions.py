"""A producer's transactions: who it is to the coordinator, what is in the transaction, how it ends.

    READY --begin--> OPEN --commit: all delivered--> COMMITTING --EndTxn answered--> READY
                     OPEN --a delivery or a coordinator refuses--> DOOMED --abort--> ABORTING --> READY
    any  --somebody else has the transactional id--> ENDED

The brokers hear of a transaction with its first partition (AddPartitionsToTxn) or group (AddOffsetsToTxn), so one
without either ends without a word. A doomed transaction sends nothing more; what was on its way is waited for. What may
still reach a broker later, because its answer was lost, carries the epoch that the next transaction has left behind:
before that begins, the coordinator raises it (KIP-360).

Where the cluster has transaction.version 2, each transaction has an epoch of its own (KIP-890): the answer to its end
brings the next one, and the partitions and groups take part in it by what is sent to them. The level may change while
a producer runs: it hears of that with the metadata, and goes by the new rules from its next transaction on, for which
it asks for another epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Protocol

from kbroker.client import transaction_requests as requests
from kbroker.client.client_config import ProducerConfig
from kbroker.client.cluster import Cluster
from kbroker.client.errors import (
    AbortableError,
    BrokerError,
    FencedError,
    IllegalState,
    OutcomeUnknown,
    TransactionTimedOut,
    error_for,
)
from kbroker.client.group.coordinator import Coordinator, CoordinatorType
from kbroker.client.partition_queue import PartitionQueue
from kbroker.client.producer_identity import UNKNOWN, IdAndEpoch
from kbroker.client.transaction_requests import Verdict, verdict_on
from kbroker.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from kbroker.protocol.errors import COORDINATOR_MOVED, ErrorCode, KafkaError
from kbroker.protocol.messages.transactions import DescribeTransactionsRequest, InitProducerIdRequest
from kbroker.protocol.schema import Message

log = logging.getLogger(__name__)

CONCURRENT_PAUSE_S = 0.005
"""The markers of the last transaction are usually written within so long."""


class State(Enum):
    """What a transaction can do now; the values end "the transaction is …"."""

    READY = "not begun"
    OPEN = "open"
    DOOMED = "failed"
    COMMITTING = "being committed"
    ABORTING = "being aborted"
    ENDED = "not this producer's any more"


class Deliveries(Protocol):
    """What is asked of the sender."""

    async def flush(self) -> None:
        """Wait until each record has an outcome."""

    def fail_unsent(self, error: Exception) -> None:
        """Give up all that is not on its way to a broker now."""

    def refuse(self, why: Callable[[], Exception] | None) -> None:
        """Take no records, or take them again."""

    def look(self) -> None:
        """Look at the queues again."""


class Transactions:
    """Lives on its producer's loop; to the sender it is also the producer's identity (see producer_identity.py)."""

    is_wanted = False
    """The sender need not obtain an id: `begin` does."""

    def __init__(self, config: ProducerConfig, cluster: Cluster, deliveries: Deliveries) -> None:
        assert config.transactional_id is not None
        self.transactional_id = config.transactional_id
        self.current: IdAndEpoch = UNKNOWN
        self.problem: Exception | None = None
        """Why partitions are not added yet, or why nothing can be."""
        self.state = State.READY
        self.number = 0
        """Counts the transactions."""
        self.cause: Exception | None = None
        """Why the transaction is doomed."""
        self._config = config
        self._cluster = cluster
        self._deliveries = deliveries
        self._coordinator = Coordinator(cluster, self.transactional_id, CoordinatorType.TRANSACTION)
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        """One of begin, commit, abort, send_offsets at a time."""
        self._added: set[PartitionQueue] = set()
        self._wanted: dict[PartitionQueue, None] = {}
        self._groups: dict[str, Coordinator] = {}
        """Those in the transaction."""
        self._adding: asyncio.Task[None] | None = None
        self._began_at = 0.0
        self._needs_epoch = False
        """Something of this epoch may still reach a broker, or left a gap in the sequences."""
        self._has_epoch_each = False
        """Whether the transaction has an epoch of its own."""
        self._known_since: float | None = None
        """When the coordinator may first have heard of the transaction."""
        self._is_registered = False
        """The coordinator has said that it has."""
        self._is_over = False
        """The coordinator has aborted the transaction by itself."""
        self._is_end_lost = False
        """An EndTxn got no answer: it may have been carried out."""
        cluster.follows_features = True
        deliveries.refuse(self.refusal)

    # --- what the sender asks ---------------------------------------------------------------------------------

    @property
    def is_known(self) -> bool:
        """Whether batches can be stamped."""
        return self.current[0] >= 0

    @property
    def is_doomed(self) -> bool:
        """Whether what comes back from a broker undelivered is given up."""
        return self.state is not State.OPEN

    @property
    def newest_produce(self) -> int | None:
        """The newest version of Produce that may be used, None for any."""
        return None if self._has_epoch_each else requests.NEWEST_PRODUCE

    def raise_epoch(self, seen: IdAndEpoch) -> None:
        """Something that has a sequence was given up; its epoch may have ended with its transaction."""
        self._needs_epoch = self._needs_epoch or not self._has_epoch_each or seen == self.current

    give_up = raise_epoch

    def may_send(self, queue: PartitionQueue) -> bool:
        """Whether a partition is in the transaction; if it is not, it will be soon."""
        if queue in self._added:
            return True
        if self.state is State.OPEN and self._has_epoch_each:
            self._added.add(queue)
            self._is_heard_of()
            return True
        if self.state is State.OPEN:
            self._wanted[queue] = None
            if self._adding is None:
                self._adding = self._loop.create_task(self._add())
        return False

    def doom(self, cause: Exception) -> None:
        """The transaction cannot be committed any more; the first cause stays."""
        if self.state is State.OPEN:
            self._fail(State.DOOMED, cause)

    def fail(self, cause: Exception) -> Exception:
        """Doom the transaction; returns what its owner raises."""
        self.doom(cause)
        return self.refusal()

    def _fail(self, state: State, cause: Exception) -> None:
        self.state, self.cause = state, cause
        self._deliveries.refuse(self.refusal)
        error = AbortableError(f"not sent, as the transaction has failed: {cause}")
        error.__cause__ = cause
        self._deliveries.fail_unsent(error)

    def refusal(self) -> Exception:
        """Return what is raised for a record, or a call, that needs an open transaction."""
        if self.state is State.DOOMED:
            error: Exception = AbortableError(f"abort the transaction, it has failed: {self.cause}")
            error.__cause__ = self.cause
            return error
        if self.state is State.ENDED:
            return self._ended()
        advice = {
            State.READY: "begin() or `with producer.transaction()` comes first",
            State.COMMITTING: "commit() asks again whether it is committed",
            State.ABORTING: "abort() goes on with it",
        }
        return IllegalState(f"the transaction is {self.state.value}: {advice.get(self.state, '')}")

    def _ended(self) -> Exception:
        """Return the reason once more, without the traces of where it was raised before."""
        assert isinstance(self.cause, BrokerError)
        return error_for(self.cause.code, self.cause.message)

    # --- begin ------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Begin a transaction; before the first one others with this transactional id are fenced off."""
        async with self._turn:
            if self.state is State.ABORTING:
                await self._abort()
            if self.state is not State.READY:
                if self.state in (State.OPEN, State.DOOMED):
                    raise IllegalState(f"a transaction is {self.state.value} already: commit() or abort() it first")
                raise self.refusal()
            if not self.is_known or self._needs_epoch or self._has_epoch_each != self._may_have_epoch_each():
                await self._identify(self._config.max_block_ms)
            self._has_epoch_each = self._may_have_epoch_each()
            self.number += 1
            self._began_at = time.monotonic()
            self.cause = self.problem = None
            self.state = State.OPEN
            self._deliveries.refuse(None)

    def _may_have_epoch_each(self) -> bool:
        return self._cluster.feature_level(requests.TRANSACTION_VERSION) >= requests.EPOCH_EACH

    async def _identify(self, timeout_ms: int) -> None:
        """Ask for an id and epoch, or for a newer epoch of the same id."""
        producer_id, epoch = self.current
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._config.transaction_timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        try:
            answer = await self._ask(self._coordinator, request, requests.refused, timeout_ms)
        except BrokerError as error:
            if error.code in requests.FINAL:
                raise self._end_for_good(error) from None
            raise
        self.current = (answer.producer_id, answer.producer_epoch)
        self._needs_epoch = False

    # --- what is in it ----------------------------------------------------------------------------------------

    async def _add(self) -> None:
        """Add the wanted partitions, and those wanted meanwhile."""
        try:
            while self._wanted and self.state is State.OPEN:
                wanted = list(self._wanted)
                keys = [TopicPartition(queue.topic, queue.partition) for queue in wanted]
                request = requests.add_partitions(self.transactional_id, self.current, keys)
                await self._register(request, requests.refused_partitions, requests.NEWEST_ADD_PARTITIONS)
                self._added.update(wanted)
                for queue in wanted:
                    self._wanted.pop(queue, None)
                self._deliveries.look()
        except (OSError, KafkaError) as error:
            self.doom(error)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.exception("the transaction %s failed", self.transactional_id)
            self.doom(error)
        finally:
            self._adding = None

    async def _register(self, request: Message, read: Callable[[Any], BrokerError | None], highest: int | None) -> None:
        """Have the coordinator take note of what is in the transaction."""
        self._is_heard_of()
        try:
            await self._ask(self._coordinator, request, read, self._config.delivery_timeout_ms, highest)
        except BrokerError as error:
            if verdict_on(error.code) is Verdict.ANEW:
                raise await self._fenced(error) from None
            raise
        self._is_registered = True

    def _is_heard_of(self) -> None:
        """From now on the coordinator may know of the transaction."""
        if self._known_since is None:
            self._known_since = time.monotonic()

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        lost_after: float | None = None,
    ) -> None:
        """Commit a group's offsets as part of the transaction; `lost_after` as of Progress in group_consumer.py."""
        async with self._turn:
            if self.state is not State.OPEN:
                raise await self._why_not()
            if lost_after is not None and lost_after >= self._began_at:
                text = f"partitions whose records may be in it were given up to others of group {group.group_id}"
                raise self.fail(error_for(ErrorCode.REBALANCE_IN_PROGRESS, f"{text}: poll once in a transaction"))
            if not offsets:
                return
            try:
                await self._send_offsets(offsets, group)
            except (OSError, BrokerError) as error:
                self.doom(error)
                if isinstance(error, AbortableError | FencedError) or self.cause is not error:
                    raise
                text = f"the offsets of group {group.group_id} are not in the transaction, abort it: {error}"
                raise AbortableError(text) from error
            except asyncio.CancelledError:
                text = (
                    f"send_offsets was given up: whether the offsets of group {group.group_id} are in it is not known"
                )
                self.doom(AbortableError(text))
                raise

    async def _send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        coordinator = self._groups.get(group.group_id)
        if coordinator is None:
            if not self._has_epoch_each:
                request = requests.add_offsets(self.transactional_id, self.current, group.group_id)
                await self._register(request, requests.refused, None)
            self._is_heard_of()
            coordinator = self._groups[group.group_id] = Coordinator(self._cluster, group.group_id)
        commit = requests.offset_commit(self.transactional_id, self.current, group, offsets)
        highest = None if self._has_epoch_each else requests.NEWEST_OFFSET_COMMIT
        try:
            await self._ask(coordinator, commit, requests.refused_partitions, self._config.delivery_timeout_ms, highest)
            self._is_registered = True
        except BrokerError as error:
            if verdict_on(error.code) is Verdict.ANEW:
                raise await self._fenced(error) from None
            raise

    # --- the end ----------------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Commit once everything is delivered; raises AbortableError when something is not.

        Raises OutcomeUnknown when the coordinator does not answer within delivery_timeout_ms: call it again to learn.
        """
        async with self._turn:
            if self.state is State.OPEN:
                await self._deliver()
            if self.state not in (State.OPEN, State.COMMITTING):
                raise await self._why_not()
            if self._known_since is not None:
                self.state = State.COMMITTING
                await self._end(committed=True)
            self._leave()

    async def hand_over(self) -> IdAndEpoch | None:
        """Deliver everything, and leave the end to somebody else; None where there is nothing to end.

        Whoever has the transactional id, producer id and epoch may send EndTxn; before that nothing must begin anew.
        """
        async with self._turn:
            if self.state is State.OPEN:
                await self._deliver()
            if self.state is not State.OPEN:
                raise await self._why_not()
            handed = self.current if self._is_registered or self._added else None
            self._needs_epoch = True
            self._leave()
            return handed

    async def _deliver(self) -> None:
        """Wait for what was sent, and take nothing more; as if nothing had happened where that is interrupted."""
        self._deliveries.refuse(lambda: IllegalState("the transaction is being committed"))
        try:
            await self._deliveries.flush()
        except BaseException:
            if self.state is State.OPEN:
                self._deliveries.refuse(None)
            raise
        finally:
            if self.state is not State.OPEN:
                self._deliveries.refuse(self.refusal)

    async def abort(self) -> None:
        """Abort: what was not sent is given up, what was sent is read by nobody who reads what is committed."""
        async with self._turn:
            if self.state in (State.READY, State.COMMITTING, State.ENDED):
                raise self.refusal()
            await self._abort()

    async def _abort(self) -> None:
        self._deliveries.refuse(self.refusal)
        self.state = State.ABORTING
        await self._come_to_rest()
        if self._known_since is not None and not self._is_over:
            await self._end(committed=False)
        self._leave()

    async def _come_to_rest(self) -> None:
        """Give up what was not sent, and wait for what was: or it might land behind the marker."""
        if self._adding is not None:
            self._adding.cancel()
            await asyncio.gather(self._adding, return_exceptions=True)
            self._adding = None
        self._deliveries.fail_unsent(AbortableError("not sent: the transaction is aborted"))
        await self._deliveries.flush()

    async def _end(self, committed: bool, limit_ms: int | None = None) -> None:
        """Tell the coordinator; returns once its decision is written."""
        request = requests.end(self.transactional_id, self.current, committed)
        highest = None if self._has_epoch_each else requests.NEWEST_END
        limit_ms = self._config.delivery_timeout_ms if limit_ms is None else limit_ms
        try:
            answer = await self._ask(self._coordinator, request, requests.refused, limit_ms, highest)
            if self._has_epoch_each:
                self.current, self._needs_epoch = (answer.producer_id, answer.producer_epoch), False
        except OSError as error:
            raise self._not_known(committed, error) from error
        except BrokerError as error:
            verdict = verdict_on(error.code)
            if verdict is not Verdict.ANEW and error.code is not ErrorCode.TRANSACTION_ABORTABLE:
                raise self._not_known(committed, error) from error
            if not committed and not self._is_registered and error.code is ErrorCode.INVALID_TXN_STATE:
                return  # the coordinator has not heard of it
            if verdict is Verdict.ABORT:
                self._fail(State.DOOMED, error)
                raise self.refusal() from None
            problem = await self._fenced(error)
            if committed or not self._is_over:
                raise problem from None

    def _not_known(self, committed: bool, error: Exception) -> Exception:
        asked = f"its coordinator has not answered within delivery_timeout_ms={self._config.delivery_timeout_ms}"
        how = f"`kbroker transaction describe {self.transactional_id}` shows its state"
        if not committed:
            text = f"the transaction may not be aborted yet, as {asked} ({error}); abort() asks again, {how}"
            return OutcomeUnknown(f"{text}, and it is aborted after transaction_timeout_ms by itself")
        text = f"whether the transaction is committed is not known, as {asked} ({error}): all of it is, or nothing"
        return OutcomeUnknown(f"{text}; commit() asks again, {how}")

    def _leave(self) -> None:
        """The transaction has ended."""
        self.state = State.READY
        self._added.clear()
        self._wanted.clear()
        self._groups.clear()
        self._known_since = None
        self._is_registered = self._is_over = self._is_end_lost = False
        self._deliveries.refuse(self.refusal)

    async def leave(self, number: int, error: BaseException | None) -> None:
        """End what a `with` block began, unless that was done in it: commit, or abort as an exception leads out."""
        if number != self.number or self.state is State.READY:
            return
        if error is None:
            try:
                await self.commit()
            except BaseException:
                if self.state in (State.OPEN, State.DOOMED):
                    await self.abort()
                raise
        elif self.state in (State.OPEN, State.DOOMED, State.ABORTING):
            try:
                await self.abort()
            except (OSError, KafkaError) as problem:
                error.add_note(f"The transaction could not be aborted: {problem}")

    async def close(self) -> None:
        """Abort what is open."""
        if self.state in (State.OPEN, State.DOOMED, State.ABORTING):
            log.warning("the producer %s is closed in a transaction, which is aborted", self.transactional_id)
            try:
                await self.abort()
            except (OSError, KafkaError) as error:
                log.warning("the transaction of %s could not be aborted: %s", self.transactional_id, error)

    # --- refusals ---------------------------------------------------------------------------------------------

    async def _why_not(self) -> Exception:
        """Return what `refusal` does, once it is known whether a leader's refusal was the end of this producer.

        A partition's leader only says that it has seen a newer epoch, which may be one of this producer's own. So the
        end of the transaction is asked for, which its own producer is given only. Who asked for a newer epoch instead
        would have Kafka abort what another producer of this transactional id has open by then.
        """
        cause = self.cause
        is_doomed = self.state is State.DOOMED and not self._is_over
        if is_doomed and isinstance(cause, BrokerError) and cause.code in requests.OF_NEWER_EPOCH:
            self._needs_epoch = True
            await self._come_to_rest()
            with contextlib.suppress(OSError, KafkaError):  # not known: abort() asks again
                await self._end(committed=False, limit_ms=self._config.request_timeout_ms)
                self._is_over = True
        return self.refusal()

    async def _fenced(self, error: BrokerError) -> Exception:
        """Find out whether somebody else has the transactional id now, or only this transaction is over."""
        over = self._over(error)
        return self._end_for_good(error) if over is None else await self._find_out(over)

    async def _find_out(self, over: AbortableError) -> Exception:
        """Ask for a newer epoch: who was shut out by another is not given one. Who waits may be cancelled."""
        self._needs_epoch = True
        is_shut_out = await self._is_open_for_another()
        try:
            if not is_shut_out:
                await self._identify(self._config.request_timeout_ms)
        except (OSError, KafkaError) as problem:
            is_shut_out = isinstance(problem, BrokerError) and problem.code in requests.FINAL
        if is_shut_out:
            text = f"{over}; make a new producer" if isinstance(over, TransactionTimedOut) else None
            return self._end_for_good(error_for(ErrorCode.PRODUCER_FENCED, text))
        self._is_over = True
        self._fail(State.DOOMED, over)
        return over

    async def _is_open_for_another(self) -> bool:
        """Whether a transaction is open that is not this producer's, whose own is over: an epoch would abort it."""
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        try:
            answer = await self._ask(
                self._coordinator,
                request,
                lambda answer: requests.refused(answer.transaction_states[0]),
                self._config.request_timeout_ms,
            )
        except (OSError, KafkaError):  # brokers before Kafka 3.0 do not tell
            return False
        return bool(answer.transaction_states[0].transaction_state == "Ongoing")

    def _over(self, error: BrokerError) -> AbortableError | None:
        """Return what is raised where the transaction is over, and its producer may perhaps go on."""
        lost = ", unless that was done before an answer was lost" if self._is_end_lost else ""
        if error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            text = f"the coordinator of {self.transactional_id} does not know this producer: it has forgotten it, as it"
            text = f"{text} does after transactional.id.expiration.ms of nothing, or another one has begun"
            return AbortableError(f"{text}; nothing of the transaction is committed{lost}")
        open_for = time.monotonic() - (self._known_since or time.monotonic())
        limit = self._config.transaction_timeout_ms
        told_so = requests.FENCING
        if self._has_epoch_each:  # who asks for the end of an aborted transaction is answered as whoever ended it
            told_so |= {ErrorCode.INVALID_TXN_STATE}
        if error.code not in told_so or open_for * 1000 < limit:
            return None
        text = f"the transaction was open for {open_for:.1f} s, its coordinator aborts it"
        text = f"{text} after transaction_timeout_ms={limit}: nothing of it is committed"
        return TransactionTimedOut(f"{text}{lost}")

    def _end_for_good(self, error: BrokerError) -> Exception:
        """Nothing succeeds any more."""
        is_fenced = error.code in requests.FENCING
        text = error.message or ("another producer has begun with this transactional_id" if is_fenced else "")
        if self.state is State.COMMITTING:
            lost = "whether its last transaction is committed is not known, as an answer was lost before"
            text = f"{text}; {lost if self._is_end_lost else 'its last transaction is not committed'}"
        code = ErrorCode.PRODUCER_FENCED if is_fenced else error.code
        error = error_for(code, f"transactional_id {self.transactional_id}: {text}")
        self.problem = error
        self._fail(State.ENDED, error)
        return self._ended()

    async def _ask(
        self,
        coordinator: Coordinator,
        request: Message,
        read: Callable[[Any], BrokerError | None],
        timeout_ms: int,
        highest: int | None = None,
    ) -> Any:
        """Ask until there is an answer that is no reason to ask again; raises the last problem if there is none."""
        deadline = self._loop.time() + timeout_ms / 1000
        backoff, longest = self._config.retry_backoff_ms / 1000, self._config.retry_backoff_max_ms / 1000
        concurrent = CONCURRENT_PAUSE_S
        while True:
            left_ms = max(1, round(1000 * (deadline - self._loop.time())))
            problem: Exception
            try:
                limit = min(left_ms, self._config.request_timeout_ms)
                answer = await coordinator.ask(request, limit, highest=highest)
                refused = read(answer)
                if refused is None:
                    return answer
                problem = refused
            except BrokerError as error:  # the coordinator was not found
                problem = error
            except (OSError, asyncio.CancelledError) as error:
                self._is_end_lost = self._is_end_lost or self.state is State.COMMITTING
                if isinstance(error, asyncio.CancelledError):
                    raise
                problem = error
            if isinstance(problem, BrokerError):
                if verdict_on(problem.code) is not Verdict.AGAIN:
                    raise problem
                if problem.code in COORDINATOR_MOVED:
                    coordinator.forget()
            self.problem = problem
            if isinstance(problem, BrokerError) and problem.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                pause, concurrent = concurrent, min(2 * concurrent, backoff)
            else:
                pause, backoff = backoff, min(2 * backoff, longest)
            if self._loop.time() + pause >= deadline:
                raise problem
            await asyncio.sleep(pause)
