"""All partitions this broker hosts: appends, reads, leadership, and the chores that go with them.

One event loop owns everything here. A partition's decisions are in partition.py (pure), its bytes in `segment`, what
waits for it in delayed.py; appending.py, fetching.py and leadership.py are the three ways in.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Generator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from kbroker.cluster.metadata_cache import MetadataCache, in_portions
from kbroker.cluster.setup_timeout import ConnectionSetup
from kbroker.cluster.transaction_verifier import Errors, Transaction
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.grouping import Key
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.replication import (
    STOP_REPLICA_VERSION,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from kbroker.replica.appending import Appender
from kbroker.replica.clocks import now_ms, steady_ms
from kbroker.replica.delayed import DelayedFetch
from kbroker.replica.fetch_sessions import FetchContext, FetchSessions, Wanted, targets_of
from kbroker.replica.fetching import Builder, FetchParameters, PartitionFetch
from kbroker.replica.hosted import HostedPartition
from kbroker.replica.leadership import Leadership
from kbroker.replica.log_dir_moves import LogDirMoves
from kbroker.replica.partition import AssignLeaderEpoch, HighWatermarkMoved, Instruction, Partition, StopFetching
from kbroker.replica.read_ahead import ReadAhead
from kbroker.replica.replica_selection import replica_selector
from kbroker.replica.strays import stop_gone_topics, stop_moved_replicas
from kbroker.replica.throttles import replication_throttles
from kbroker.replica.traffic import Totals, Traffic
from kbroker.replica.turns import PORTION, finished
from kbroker.replica.verification import ProducedTransaction, Verifier
from kbroker.replica.workers import Workers
from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_manager import LogManager
from kbroker.segment.producer_state import NOT_ASKED_FOR, Verification

if TYPE_CHECKING:
    from kbroker.config.broker_config import BrokerConfig
    from kbroker.replica.log_care import LogCare
    from kbroker.replica.replication import Followed

log = logging.getLogger(__name__)

LAST_APPENDS_S = 30.0
"""How long a stop waits for appends that threads make, or prepare."""
LONGEST_PAUSE_S = 60.0
SHORTEST_PAUSE_S = 0.2
STOOD_STILL_PAUSE_S = 1.0
FOLLOWERS_EXPECTED_MS = 200
NO_SEQUENCE = -1
EXPECTED_FOLLOWER_WAIT_MS = 10
"""So long after an election followers are given no longer to wait: what they wait for is not all they need."""


class LeadershipListener(Protocol):
    """Who wants to know when this broker starts or stops leading partitions (the coordinators)."""

    def __call__(self, elected: Sequence[Key], resigned: Sequence[Key]) -> None:
        """Hear which partitions this broker began and ceased to lead."""


class ReplicationPort(Protocol):
    """What carries out the instructions that reach beyond this broker: the fetchers and the ISR changes."""

    def carry_out(self, hosted: HostedPartition, instruction: Instruction) -> None:
        """StartFetching, StopFetching or ProposeIsr."""

    async def release(self, partitions: Iterable[HostedPartition]) -> None:
        """Stop fetching these; return when no worker thread changes their logs any more."""

    def followed(self) -> list[Followed]:
        """Return what is known of each replica here that follows; may be called by any thread."""

    async def redistribute(self) -> None:
        """Take over a changed `num.replica.fetchers`."""

    async def close(self) -> None:
        """End all; return when no log is changed any more."""


class ReplicaManager:
    """The partitions hosted here.

        manager = ReplicaManager(config, logs, metadata, broker_id=1, broker_epoch=lambda: epoch, topic_config=f)
        await manager.start()
        ...
        await manager.shutdown()

    `topic_config(topic)` gives the LogConfig of a topic whose log is about to be created. `on_log_dir_failure()` is
    called (once per directory) after a directory went offline: the broker then writes the log dir event notification.
    """

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        metadata: MetadataCache,
        broker_id: int,
        broker_epoch: Callable[[], int],
        topic_config: Callable[[str], LogConfig],
        on_log_dir_failure: Callable[[], None] = lambda: None,
        on_leadership_change: LeadershipListener = lambda elected, resigned: None,
        clock: Callable[[], int] = now_ms,
        steady: Callable[[], int] = steady_ms,
        workers: Workers | None = None,
        connections: ConnectionSetup | None = None,
    ) -> None:
        self.config = config
        self.connections = connections or ConnectionSetup()
        """To the leaders that are followed."""
        self.logs = logs
        self.metadata = metadata
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.topic_config = topic_config
        self.on_log_dir_failure = on_log_dir_failure
        self.on_leadership_change = on_leadership_change
        self.on_partitions_removed: Callable[[Sequence[Key]], None] = lambda removed: None
        """Called with the partitions that the controller has deleted from the cluster."""
        self.is_leadership_unproven: Callable[[], bool] = lambda: False
        """Whether others may lead in this broker's place without its knowing: then it takes no writes."""
        self.verifier: Verifier | None = None
        """Asks the coordinators of transactions; without it nothing is verified."""
        self.clock = clock
        self.steady = steady
        self.workers = workers or Workers()
        self.replica_selector = replica_selector(config.replica_selector_class, metadata)
        throttles = replication_throttles(broker_id, lambda: self.config, topic_config)
        self.leader_throttle, self.follower_throttle, self.log_dirs_throttle = throttles
        self.care: LogCare | None = None
        """What is done to the logs in the background, once the broker serves."""
        self.replication: ReplicationPort | None = None
        """Fetchers and ISR changes; a broker that is alone needs none."""
        self.sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots, lambda: random.randrange(1, 1 << 31)
        )
        self._hosted: dict[Key, HostedPartition] = {}
        self.traffic: dict[str, Traffic] = {}
        """What was counted, by topic."""
        self.totals = Totals()
        self._waiting_followers: dict[DelayedFetch, None] = {}
        self._followers_expected_until_ms = 0
        self._read_ahead = ReadAhead(self.workers)
        self._appender = Appender(metadata, self.find, self.workers, clock, steady)
        self._appender.is_leadership_unproven = lambda: self.is_leadership_unproven()
        self.append = self._appender.append
        self.append_then = self._appender.append_then
        self.append_batch = self._appender.append_batch
        self.flusher = self._appender.flusher
        self._leadership = Leadership(self)
        self._moves = LogDirMoves(self)
        self._own_orders: set[asyncio.Future[StopReplicaResponse]] = set()
        self._chores: list[asyncio.Task[None]] = []
        """One of each log directory, so that a disk that hangs keeps no other from its checkpoints."""
        self._isr_timer: asyncio.TimerHandle | None = None

    # --- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the chores: checkpoints, retention, timed flushes. The caller has loaded the logs."""
        loop = asyncio.get_running_loop()
        before = self.logs.table.on_offline_dir

        def offline(log_dir: str, error: Exception) -> None:
            if before is not None:
                before(log_dir, error)
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._log_dir_failed, log_dir)

        self.logs.table.on_offline_dir = offline
        self._chores = [
            asyncio.create_task(self._do_chores(log_dir), name=f"chores of {log_dir}")
            for log_dir in self.logs.directories
        ]
        self._schedule_isr_check()

    async def shutdown(self) -> None:
        """Answer everything that waits and stop the chores. Does not close the LogManager."""
        if self._isr_timer is not None:
            self._isr_timer.cancel()
        if self.replication is not None:
            await self.replication.close()
        await self._moves.close()
        if appends := [hosted.tail for hosted in self._hosted.values() if hosted.tail is not None]:
            await asyncio.wait(appends, timeout=LAST_APPENDS_S)  # what comes after them finds its log closed
        await self.flusher.finish()
        for hosted in self._hosted.values():
            hosted.fail_acks(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for chores in self._chores:
            chores.cancel()
        if self._chores:
            await asyncio.wait(self._chores)

    async def _do_chores(self, log_dir: str) -> None:
        loop = asyncio.get_running_loop()
        while True:
            pause = LONGEST_PAUSE_S
            try:
                tending = self.workers.tending(log_dir)
                running = loop.run_in_executor(tending, self.logs.run_due, self.steady(), log_dir)
                try:
                    due = await asyncio.shield(running)
                except asyncio.CancelledError:
                    await asyncio.wait([running])  # never leave it running beside the LogManager's shutdown
                    raise
                pause = (due - self.steady()) / 1000
            except Exception:
                log.exception("the regular work on the logs failed; it goes on")
            for hosted in self._hosted.values():
                if hosted.log_start_offset != hosted.log.log_start_offset:
                    hosted.changed()
            await asyncio.sleep(min(max(pause, SHORTEST_PAUSE_S), LONGEST_PAUSE_S))

    def _schedule_isr_check(self) -> None:
        loop = asyncio.get_running_loop()
        interval_s = self.config.replica_lag_time_max_ms / 2000
        self._isr_timer = loop.call_later(interval_s, self._check_isr, loop.time() + interval_s)

    def _check_isr(self, due_s: float) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - due_s > self.config.replica_lag_time_max_ms / 4000:
            # This process stood still, not its followers: their fetches wait in the sockets and are served first. Put
            # off once: a loop that is always late would never drop a member that is dead.
            self._isr_timer = loop.call_later(STOOD_STILL_PAUSE_S, self._judge_followers)
        else:
            self._judge_followers()

    def _judge_followers(self) -> None:
        now = self.steady()
        for hosted in self._hosted.values():
            if hosted.state.remotes:
                self.carry_out(hosted, hosted.state.check_isr(now, hosted.log.log_end_offset))
        self._schedule_isr_check()

    # --- replicas ---------------------------------------------------------------------------------------------

    @property
    def hosted(self) -> dict[Key, HostedPartition]:
        """All partitions hosted here, to be read only."""
        return self._hosted

    def replica(self, topic: str, partition: int) -> HostedPartition | None:
        """Return the hosted partition: `.state` (Partition), `.log` (Log)."""
        return self._hosted.get((topic, partition))

    def find(self, topic: str, partition: int) -> HostedPartition | ErrorCode:
        """Return the hosted partition, or why there is none: not in the cluster 3, disk offline 56, elsewhere 6."""
        known = self.metadata.topics.get(topic)
        if known is None or partition not in known.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        hosted = self._hosted.get((topic, partition))
        if hosted is not None:
            return hosted
        if self.logs.is_offline(topic, partition):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def leader_replica(self, topic: str, partition: int) -> HostedPartition | ErrorCode:
        """Return the hosted partition if this broker leads it, else the error to answer (3, 56 or 6)."""
        found = self.find(topic, partition)
        if isinstance(found, HostedPartition) and not found.state.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return found

    def host(self, topic: str, partition: int, partition_log: Log) -> HostedPartition:
        """Begin to host a partition whose log exists."""
        state = Partition(
            topic,
            partition,
            self.broker_id,
            partition_log.log_end_offset,
            partition_log.high_watermark,
            partition_log.config.min_insync_replicas,
            self.config.replica_lag_time_max_ms,
        )
        traffic = self.traffic.setdefault(topic, Traffic())
        hosted = self._hosted[topic, partition] = HostedPartition(state, partition_log, traffic)
        self._moves.resume(hosted)
        return hosted

    def known_leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Leader and leader epoch, for a client that asked the wrong broker: the orders to us may be ahead of the
        metadata, which come last.
        """
        told = self.metadata.partition(topic, partition)
        hosted = self._hosted.get((topic, partition))
        known = [] if told is None else [(told.leader_epoch, told.leader)]
        if hosted is not None and hosted.state.leader is not None:
            known.append((hosted.state.leader_epoch, hosted.state.leader))
        if not known:
            return None
        leader_epoch, leader = max(known)
        return leader, leader_epoch

    def drop(self, key: Key, error: ErrorCode) -> None:
        """Host a partition no more; what waits for it is answered with the error. Its log stays."""
        hosted = self._hosted.pop(key)
        self.carry_out(hosted, [StopFetching()])
        self._moves.stop(key)
        hosted.settle_traffic()
        hosted.state.stop()
        hosted.fail_acks(error)
        hosted.changed()

    def forget_traffic(self, topics: Iterable[str]) -> None:
        """Count topics as gone of which no partition is left."""
        present = {topic for topic, _ in self._hosted}
        for topic in topics:
            if topic not in present and topic in self.traffic:
                self.totals.gone.add(self.traffic.pop(topic))

    def carry_out(self, hosted: HostedPartition, instructions: Sequence[Instruction]) -> None:
        """Do what a partition's state asks for."""
        for instruction in instructions:
            if isinstance(instruction, HighWatermarkMoved):
                hosted.high_watermark_moved()
            elif isinstance(instruction, AssignLeaderEpoch):
                hosted.log.assign_leader_epoch(instruction.leader_epoch, instruction.start_offset)
            elif self.replication is not None:
                self.replication.carry_out(hosted, instruction)

    def _log_dir_failed(self, log_dir: str) -> None:
        """A directory went offline: its partitions are hosted no more."""
        resigned = []
        for key, hosted in list(self._hosted.items()):
            if self.logs.is_offline(*key):
                if hosted.state.is_leader:
                    resigned.append(key)
                self.drop(key, ErrorCode.KAFKA_STORAGE_ERROR)
                log.error("%s is offline with %s", hosted, log_dir)
        if resigned:
            self.on_leadership_change([], resigned)
        self.on_log_dir_failure()

    @asynccontextmanager
    async def quiet(self, keys: Iterable[Key]) -> AsyncIterator[None]:
        """Fetch these partitions no more, they are about to change their role; no thread appends to them meanwhile."""
        partitions = [self._hosted[key] for key in keys if key in self._hosted]
        over = asyncio.get_running_loop().create_future()
        for hosted in partitions:
            hosted.changing = over
        try:
            writes = [hosted.write for hosted in partitions if hosted.write is not None]
            if writes:
                await asyncio.wait(writes)
            if self.replication is not None:
                await self.replication.release(partitions)
            yield
        finally:
            for hosted in partitions:
                hosted.changing = None
            over.set_result(None)

    # --- transactions -----------------------------------------------------------------------------------------

    def produced_transaction(
        self, transaction: Transaction, knows_abortable: bool, adds: bool
    ) -> ProducedTransaction | None:
        """Return what verifies, or adds, the partitions of a Produce request; None where nothing is verified."""
        if self.verifier is None or not (adds or self.config.transaction_partition_verification_enable):
            return None
        return ProducedTransaction(self.verifier, transaction, knows_abortable, adds)

    async def verify(self, topic: str, partition: int, transaction: Transaction, adds: bool) -> Verification | None:
        """Return what a coordinator's append of a transaction's batch has to bring.

        `adds`: the partition takes part in the transaction by that. Raises KafkaError where it does not.
        """
        if self.verifier is None or not (adds or self.config.transaction_partition_verification_enable):
            return NOT_ASKED_FOR
        hosted = self.leader_replica(topic, partition)
        if not isinstance(hosted, HostedPartition):
            raise KafkaError(hosted)
        verification = self._appender.verification(hosted, transaction, NO_SEQUENCE, adds)
        if verification is None:
            return None
        answered: asyncio.Future[Errors] = asyncio.get_running_loop().create_future()
        self.verifier.verify(
            transaction,
            [(topic, partition)],
            lambda errors: None if answered.done() else answered.set_result(errors),
            adds,
        )
        error = (await answered).get((topic, partition), ErrorCode.NONE)
        if error is not ErrorCode.NONE:
            raise KafkaError(error)
        return verification

    # --- data path --------------------------------------------------------------------------------------------

    def fetch(
        self,
        context: FetchContext,
        parameters: FetchParameters,
        builder: Builder,
    ) -> Any | Awaitable[Any]:
        """Return the response, made by `builder` from what was read, or an awaitable of it when there is too little yet
        or much to be read.
        """
        fetch = PartitionFetch(self, context, parameters, builder)
        answer = fetch.attempt(final=parameters.max_wait_ms <= 0)
        if hasattr(answer, "__await__"):
            return self._fetched_later(fetch, parameters, answer)
        return self._fetched(fetch, parameters, answer)

    async def _fetched_later(self, fetch: PartitionFetch, parameters: FetchParameters, answer: Awaitable[Any]) -> Any:
        answer = await answer
        return await finished(self._fetched(fetch, parameters, answer, fetch.changed_meanwhile()))

    def _fetched(
        self, fetch: PartitionFetch, parameters: FetchParameters, answer: Any, changed: Iterable[HostedPartition] = ()
    ) -> Any | Awaitable[Any]:
        if answer is not None:
            if fetch.cold:
                self._read_ahead(fetch.cold)
            return answer
        patience_ms = fetch.patience_ms
        if parameters.is_follower and self.steady() < self._followers_expected_until_ms:
            patience_ms = min(patience_ms, EXPECTED_FOLLOWER_WAIT_MS)
        delayed = DelayedFetch(fetch, fetch.hosted, patience_ms, self._read_ahead)
        for hosted in changed:
            delayed.touch(hosted)
        if parameters.is_follower:
            self._waiting_followers[delayed] = None
            delayed.reply.add_done_callback(lambda _: self._waiting_followers.pop(delayed, None))
        return delayed.reply

    def expect_followers(self) -> None:
        """This broker leads more partitions: followers that wait for others are to come back soon and ask for these."""
        self._followers_expected_until_ms = self.steady() + FOLLOWERS_EXPECTED_MS
        for delayed in list(self._waiting_followers):
            delayed.end_soon()

    def wanted(self, request: FetchRequest, version: int) -> Generator[None, None, Wanted]:
        """Gather what a request for very many partitions names, in turns: for `open_session`."""
        wanted: Wanted = {}
        for target in targets_of(request, version, self.metadata):
            wanted[target.key] = target
            yield
        return wanted

    def open_session(self, request: FetchRequest, version: int, now: int, wanted: Wanted | None = None) -> FetchContext:
        """Return the request seen through its fetch session; raises KafkaError 70, 71 or 106."""
        replica_id = request.replica_state.replica_id if version >= 15 else request.replica_id
        follower = replica_id if self.metadata.is_alive(replica_id) else None
        return self.sessions.open(request, version, follower, now, self.metadata, wanted)

    def max_batch_bytes(self, topic: str, partition: int) -> int:
        """Size of the largest batch that a partition takes; what is led elsewhere refuses any."""
        hosted = self._hosted.get((topic, partition))
        return 0 if hosted is None else hosted.log.config.max_message_bytes

    # --- orders of the controller (broker epoch and controller epoch are checked inside) ----------------------

    @property
    def ordered_epoch(self) -> int:
        """The broker epoch for which the controller last said what to lead and follow; -1 before it has."""
        return self._leadership.ordered_epoch

    async def become_leader_or_follower(self, request: LeaderAndIsrRequest, version: int = 7) -> LeaderAndIsrResponse:
        """Carry out a LeaderAndIsr request: create logs, become leader or follower."""
        return await self._leadership.become_leader_or_follower(request, version)

    async def stop_replicas(self, request: StopReplicaRequest, version: int = 4) -> StopReplicaResponse:
        """Carry out a StopReplica request: stop, and delete where asked."""
        return await self._leadership.stop_replicas(request, version)

    def update_metadata_in_turns(self, request: UpdateMetadataRequest) -> Generator[None, None, UpdateMetadataResponse]:
        """Merge what is said about very many partitions; a newer controller may come in between, and ends it."""
        for portion, is_last in in_portions(request, PORTION):
            response = self.update_metadata(portion, is_last)
            if response.error_code is not ErrorCode.NONE:
                break
            yield
        return response

    def update_metadata(self, request: UpdateMetadataRequest, is_last: bool = True) -> UpdateMetadataResponse:
        """Merge what the controller says about the cluster into the metadata cache."""
        error = self._leadership.check_controller(request.controller_epoch, request.broker_epoch)
        if error is ErrorCode.NONE:
            brokers = self.metadata.brokers.keys()
            removed = self.metadata.update(request, is_last)
            if removed:
                self.on_partitions_removed(removed)
            moved = stop_moved_replicas(request, self.broker_id, lambda *key: self.logs.get(*key) is not None)
            if moved is not None:
                self._obey(moved)
            if not brokers <= self.metadata.brokers.keys():
                self._brokers_gone()
        return UpdateMetadataResponse(error_code=error)

    def _brokers_gone(self) -> None:
        now, alive = self.steady(), self.metadata.brokers
        for hosted in self._hosted.values():
            if hosted.state.remotes:
                self.carry_out(hosted, hosted.state.alive_changed(now, alive))

    def forget_topics(self, names: Collection[str]) -> None:
        """Topics that are gone from ZooKeeper, of which no controller told us: host and name them no more."""
        removed = self.metadata.forget(names)
        if removed:
            log.warning("deleted while this broker was away: %s", ", ".join(sorted(names)))
            self.on_partitions_removed(removed)
        hosted = [key for key in self._hosted if key[0] in names]
        if hosted:
            self._obey(stop_gone_topics(self.metadata.controller_id or 0, self._leadership.controller_epoch, hosted))

    def _obey(self, order: StopReplicaRequest) -> None:
        """Carry an order out that the controller would have sent."""
        task = asyncio.ensure_future(self._leadership.stop_replicas(order, STOP_REPLICA_VERSION))
        self._own_orders.add(task)
        task.add_done_callback(self._own_orders.discard)

    # --- configuration, directories ---------------------------------------------------------------------------

    def apply_topic_config(self, topic: str, config: LogConfig) -> None:
        """A topic's configuration changed: apply it to its logs here at once."""
        self.logs.update_config(topic, config)
        known = self.metadata.topics.get(topic)
        for partition in () if known is None else known.partitions:
            hosted = self._hosted.get((topic, partition))
            if hosted is not None:
                self.apply_config_of(hosted)

    def apply_config_of(self, hosted: HostedPartition) -> None:
        """Take over a partition's configuration. What is to be flushed from now on is flushed as far as it is there:
        after a loss of power such a log is believed to be whole (`LogManager.is_whole`).
        """
        hosted.apply_config()
        if hosted.needs_flush():
            self.flusher.add_idle(hosted)

    async def alter_log_dir(self, topic: str, partition: int, log_dir: str) -> ErrorCode:
        """Begin to move a replica into another log directory of this broker."""
        async with self._leadership.lock:
            return await self._moves.alter(topic, partition, log_dir)
