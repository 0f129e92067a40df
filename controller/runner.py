"""The controller as a part of its broker: one queue, one loop task.

Every broker runs for controller whenever /controller is gone. The one that wins reads the cluster, and from then on
feeds the machine: watches, answers and callers only put jobs into the queue; the loop takes one at a time, reads what
is new, hands it to the machine and carries the instructions out, until that procedure has ended.

    watch fires ─┐
    broker answers ├─▶ queue ─▶ read ─▶ machine.handle(event) ─▶ carry out ─▶ handle(result) ─▶ … ─▶ next job
    handler asks ─┘

A term ends when the session expires, when a fenced write fails, when /controller names another, or with `stop`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator

from kbroker.controller import events, znodes
from kbroker.controller.api_calls import ApiCalls
from kbroker.controller.controller_config import ControllerConfig
from kbroker.controller.controller_store import ElectedController
from kbroker.controller.event_times import EventTimes
from kbroker.controller.machine import Machine
from kbroker.controller.orders import Orders
from kbroker.controller.ports import BrokerChannels
from kbroker.controller.state import ControllerState
from kbroker.controller.znode_operations import ControllerMoved, SessionExpired, ZooKeeperError
from kbroker.controller.zookeeper import ZooKeeper

log = logging.getLogger(__name__)

Job = Callable[[], Awaitable[None]]

_FIRST_REBALANCE_AFTER_S = 5.0
_RETRY_ELECTION_AFTER_S = 1.0
TOPICS_AT_ONCE = 1000
"""New topics that are made before whatever else waits has its turn: a broker that dies, or wants to stop."""


_STORIES: dict[type[object], str] = {
    events.ControllerElected: "took over",
    events.BrokersListed: "the brokers' change was handled",
    events.ControlledShutdownCalled: "its partitions were moved",
}
"""Events whose duration people want to know: all that is left then is what brokers do with their orders."""


class _TermOver(Exception):
    """The term ended while one of its jobs was under way."""


class ControllerRunner:
    """Runs for controller, and while it is one, feeds the machine and carries its instructions out.

    Handlers ask through `calls` (or the same names here); while we are not the controller the answers say so.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        broker_id: int,
        channels: BrokerChannels,
        config: ControllerConfig,
        new_topic_id: Callable[[], bytes] | None = None,
    ) -> None:
        self._zookeeper = zookeeper
        self._broker_id = broker_id
        self._channels = channels
        self._config = config
        self._machine = Machine(broker_id, config, new_topic_id or _random_topic_id)
        self.times = EventTimes()
        self._queue: asyncio.PriorityQueue[tuple[bool, int, float, Job]] = asyncio.PriorityQueue()
        """In order, but for what goes first; with the time when each came."""
        self._numbers = itertools.count()
        self._pending: set[object] = set()
        """Readings already in the queue: one is enough, since it happens at its turn."""
        self._topics_changed: set[str] = set()
        self._new_topics: list[str] = []
        """Listed, and to be made when it is their turn."""
        self._term: ElectedController | None = None
        self._orders: Orders | None = None
        self._is_registered = False
        self._loop_task: asyncio.Task[None] | None = None
        self._rebalance_task: asyncio.Task[None] | None = None
        self._seen: tuple[int, int] | None = None
        self._lamented = ""
        """The node that cannot be read, as it was told last."""
        self.on_new_controller: list[Callable[[], None]] = []
        """Called when /controller names another one than before, us included."""
        self._readers: dict[str, Job] = {
            znodes.BROKER_IDS: self._read_brokers,
            znodes.TOPICS: self._read_topic_names,
            znodes.DELETE_TOPICS: self._read_deletions,
            znodes.LOG_DIR_EVENTS: self._read_log_dir_events,
            znodes.ISR_CHANGES: self._read_isr_changes,
            znodes.REASSIGN_PARTITIONS: self._read_reassignments,
            znodes.PREFERRED_ELECTION: self._read_preferred_elections,
        }
        self.calls = ApiCalls(self._machine, zookeeper, lambda: self.is_active, self._tell)
        self.allocate_producer_ids = self.calls.allocate_producer_ids
        self.alter_partition = self.calls.alter_partition
        self.controlled_shutdown = self.calls.controlled_shutdown
        self.elect_leaders = self.calls.elect_leaders
        self.alter_reassignments = self.calls.alter_reassignments
        self.list_reassignments = self.calls.list_reassignments
        self.update_features = self.calls.update_features

    # --- life ---

    async def start(self) -> None:
        """Run for controller. To be called after the broker is registered; returns when the first election is over.

        After that `on_registered` is to be called whenever the broker has registered again (a new session).
        """
        self._zookeeper.on_session_expired.append(self._session_expired)
        self._zookeeper.watch(znodes.CONTROLLER, lambda _path: self._enqueue_once(self._run_for_controller))
        self._is_registered = True
        decided = asyncio.get_running_loop().create_future()

        async def first_election() -> None:
            try:
                await self._run_for_controller()
            finally:
                if not decided.done():
                    decided.set_result(None)

        self._put(first_election)
        self._loop_task = asyncio.create_task(self._loop(), name="controller")
        await decided

    async def stop(self, *, resign: bool = True) -> None:
        """Stop, before the ZooKeeper session is closed: a controller resigns, or leaves that to the session's end."""
        if self._loop_task is None:
            return
        self._zookeeper.unwatch(znodes.CONTROLLER)
        if self._session_expired in self._zookeeper.on_session_expired:
            self._zookeeper.on_session_expired.remove(self._session_expired)
        self._loop_task.cancel()
        await asyncio.gather(self._loop_task, return_exceptions=True)
        self._loop_task = None
        term = self._term
        self._end_term()
        if resign and term is not None and self._zookeeper.is_connected:
            try:
                await self._zookeeper.resign(term)
            except SessionExpired:
                return

    def on_registered(self) -> None:
        """The broker is registered again after an expired session: run for controller again."""
        self._is_registered = True
        self._enqueue_once(self._run_for_controller)

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._term is not None

    @property
    def controller_epoch(self) -> int:
        """Epoch of our term, 0 when we are not the controller."""
        return self._term.epoch if self._term is not None else 0

    @property
    def state(self) -> ControllerState:
        """What the machine knows: to be read, never changed. Empty while we are not the controller."""
        return self._machine.state

    @property
    def unclean_elections(self) -> int:
        """How many leaders this broker, as the controller, has made of replicas that were not in sync."""
        return self._machine.unclean_elections

    @property
    def waiting_jobs(self) -> int:
        """How much waits for its turn."""
        return self._queue.qsize()

    def waiting_orders(self) -> dict[int, int]:
        """Broker id -> requests that wait to be sent to it."""
        return self._channels.waiting()

    def unclean_election_enabled(self, topic: str) -> None:
        """A dynamic change turned unclean.leader.election.enable on for a topic."""
        self._tell(events.UncleanElectionEnabled(topic))

    def set_unclean_default(self, is_enabled: bool) -> None:
        """A dynamic change of unclean.leader.election.enable for all topics without a word of their own."""
        was_enabled, self._config.unclean_leader_election_enable = (
            self._config.unclean_leader_election_enable,
            is_enabled,
        )
        if is_enabled and not was_enabled:
            self._tell(events.UncleanElectionEnabled())

    # --- the loop ---

    async def _loop(self) -> None:
        while True:
            _, _, since, job = await self._queue.get()
            self.times.waited.add((time.monotonic() - since) * 1000)
            try:
                await self._do(job)
            except (SessionExpired, _TermOver):
                self._end_term()
            await asyncio.sleep(0)  # hundreds may wait: the answers of all brokers to what they were just told

    async def _do(self, job: Job) -> None:
        try:
            await job()
        except ControllerMoved as error:
            log.warning("no longer the controller: %s", error)
            self._end_term()
            self._enqueue_once(self._run_for_controller)
        except (SessionExpired, _TermOver):
            raise
        except znodes.MalformedZnode as error:
            if str(error) != self._lamented:
                self._lamented = str(error)
                log.error("there is no controller until this node is mended: %s", error)
            await self._give_up()
        except Exception:
            log.exception("the controller failed; it resigns, so that what is half done is taken up anew")
            await self._give_up()

    def _enqueue_once(self, job: Job) -> None:
        if job in self._pending:
            return
        self._pending.add(job)

        async def run() -> None:
            self._pending.discard(job)
            await job()

        self._put(run)

    def _put(self, job: Job, *, goes_first: bool = False) -> None:
        self._queue.put_nowait((not goes_first, next(self._numbers), time.monotonic(), job))

    def _tell(self, event: events.Event) -> None:
        """Queue an event for the machine; without effect while we are not the controller.

        A broker that wants to stop goes by itself before long, and takes its leaderships along: that goes first.
        """
        term = self._term

        async def process() -> None:
            if term is self._term:
                await self._process(event)

        if term is not None:
            self._put(process, goes_first=isinstance(event, events.ControlledShutdownCalled))

    async def _process(self, event: events.Event) -> None:
        """One event and all that follows from it. Whoever asked for it is told when it fails."""
        begun = time.monotonic()
        try:
            has_work = await self._play(event)
        except (ControllerMoved, SessionExpired, _TermOver):
            raise
        except Exception:
            self.calls.fail(getattr(event, "call", None))
            raise
        seconds = time.monotonic() - begun
        self.times.add(event, seconds)
        story = _STORIES.get(type(event))
        if story is not None and has_work:
            log.info("%s in %.0f ms", story, seconds * 1000)

    async def _play(self, event: events.Event) -> bool:
        """Carry out what the machine makes of an event; whether there was anything."""
        term, orders = self._term, self._orders
        if term is None or orders is None:
            return False
        orders.begin()
        instructions = self._machine.handle(event)
        has_work = bool(instructions)
        while instructions:
            result = None
            for instruction in instructions:
                result = await orders.carry_out(instruction)
            if term is not self._term:
                raise _TermOver
            if result is None:
                break
            instructions = self._machine.handle(result)
        return has_work

    async def _give_up(self) -> None:
        """Resign after a failure that nobody expects; run again a little later, when another broker has had the chance.

        What the machine knows may be half of the truth by now: only a new term reads all of it anew.
        """
        term = self._term
        self._end_term()
        while term is not None:
            try:
                await self._zookeeper.resign(term)
                term = None
            except SessionExpired:
                raise
            except ZooKeeperError as error:  # while the node names us there would be no controller at all
                log.error("resigning failed and is tried again: %s", error)
                await asyncio.sleep(_RETRY_ELECTION_AFTER_S)
        await asyncio.sleep(_RETRY_ELECTION_AFTER_S)
        self._enqueue_once(self._run_for_controller)

    # --- terms ---

    def _session_expired(self) -> None:
        self._is_registered = False
        self._end_term()

    def _end_term(self) -> None:
        if self._term is None:
            return
        log.info("controller term %d is over", self._term.epoch)
        self._term = None
        if self._orders is not None:
            self._orders.end()
            self._orders = None
        if self._rebalance_task is not None:
            self._rebalance_task.cancel()
            self._rebalance_task = None
        for path in self._readers:
            self._zookeeper.unwatch(path)
        for broker_id in self._machine.state.brokers:
            self._zookeeper.unwatch(znodes.broker_path(broker_id))
        known = self._machine.state
        self._machine.handle(events.TermEnded())
        self._forget(known.forget())
        self._topics_changed.clear()
        self._new_topics = []
        self.calls.end()

    def _forget(self, portions: Iterator[None]) -> None:
        """One portion in this turn of the loop, the others in the next ones."""
        for _ in portions:
            asyncio.get_running_loop().call_soon(self._forget, portions)
            return

    async def _run_for_controller(self) -> None:
        """Look who is the controller; if nobody is, try to be."""
        node = await self._zookeeper.read_controller(watch=True)
        if node is not None:
            self._see(node.broker_id, node.timestamp_ms)
            if node.broker_id != self._broker_id:
                self._end_term()
            elif self._term is None and (won := await self._zookeeper.won_before(self._broker_id)) is not None:
                await self._take_over(won)  # nobody else would, as long as the node names us
            return
        self._end_term()
        if not self._is_registered:
            return
        now_ms = int(time.time() * 1000)
        elected = await self._zookeeper.elect_controller(self._broker_id, now_ms)
        if elected is None:
            self._enqueue_once(self._run_for_controller)  # sets the watch on whoever was faster
            return
        self._lamented = ""
        self._see(self._broker_id, now_ms)
        await self._take_over(elected)

    def _see(self, broker_id: int, timestamp_ms: int) -> None:
        if self._seen != (broker_id, timestamp_ms):
            self._seen = (broker_id, timestamp_ms)
            for callback in self.on_new_controller:
                callback()

    async def _take_over(self, term: ElectedController) -> None:
        log.info("broker %d is the controller, epoch %d", self._broker_id, term.epoch)
        self._term = term  # before anything can fail: the node names us, and whoever has a term resigns it
        self._orders = Orders(self._zookeeper, self._channels, term, self._tell, self._topic_changed, self.calls.answer)
        await self._zookeeper.read_controller(watch=True)
        await self._zookeeper.ensure_feature(term, self._config.new_cluster_levels)
        snapshot = await self._read_snapshot(term, self._orders)
        await self._process(events.ControllerElected(term.epoch, snapshot))
        if self._config.auto_leader_rebalance_enable:
            self._rebalance_task = asyncio.create_task(self._rebalance_now_and_then(), name="controller-rebalance")

    async def _rebalance_now_and_then(self) -> None:
        await asyncio.sleep(_FIRST_REBALANCE_AFTER_S)
        while True:
            self._tell(events.RebalanceDue())
            await asyncio.sleep(self._config.leader_imbalance_check_interval_seconds)

    async def _read_snapshot(self, term: ElectedController, orders: Orders) -> events.Snapshot:
        """The whole cluster, every part watched from now on; notifications of earlier terms are removed."""
        zookeeper = self._zookeeper
        for path, reader in self._readers.items():
            zookeeper.watch(path, lambda _path, reader=reader: self._enqueue_once(reader))  # type: ignore[misc]
        for parent in (znodes.LOG_DIR_EVENTS, znodes.ISR_CHANGES):
            await zookeeper.delete_nodes(term, await zookeeper.read_notifications(parent))
        brokers = await self._watched_brokers()
        topics = await orders.read_topics(await zookeeper.topic_names(watch=True))
        partitions = (znodes.TopicPartition(name, each) for name, topic in topics.items() for each in topic.partitions)
        return events.Snapshot(
            brokers=brokers,
            topics=topics,
            partition_states=await orders.read_states(partitions),
            topics_to_delete=frozenset(await zookeeper.topics_to_delete(watch=True)),
            reassignments=await self._legacy_reassignments() or {},
            preferred_elections=await self._legacy_elections() or (),
        )

    # --- readings ---

    async def _watched_brokers(self) -> dict[int, znodes.BrokerRegistration]:
        brokers = await self._zookeeper.brokers(watch=True)
        for broker_id in brokers:
            self._zookeeper.watch(znodes.broker_path(broker_id), lambda _path: self._enqueue_once(self._read_brokers))
        for broker_id in set(self._machine.state.brokers) - set(brokers):
            self._zookeeper.unwatch(znodes.broker_path(broker_id))
        return brokers

    async def _read_brokers(self) -> None:
        if self._term is not None:
            await self._process(events.BrokersListed(await self._watched_brokers()))

    async def _read_topic_names(self) -> None:
        if self._term is None:
            return
        names = set(await self._zookeeper.topic_names(watch=True))
        if self._term is not None:  # it may have ended meanwhile
            known = self._machine.state.assignments.keys()
            self._new_topics = sorted(names - known)
            await self._take_topics(names & known)

    async def _take_more_topics(self) -> None:
        if self._term is not None:
            await self._take_topics(self._machine.state.assignments)

    async def _take_topics(self, known: Iterable[str]) -> None:
        """Those known that are still there, and some of the new ones; the others wait behind what came meanwhile."""
        portion, self._new_topics = self._new_topics[:TOPICS_AT_ONCE], self._new_topics[TOPICS_AT_ONCE:]
        if self._new_topics:
            self._enqueue_once(self._take_more_topics)
        await self._process(events.TopicsListed(frozenset(known).union(portion)))

    async def _read_deletions(self) -> None:
        if self._new_topics:  # one that is not known yet has nothing to be deleted: its mark would be taken away
            self._enqueue_once(self._read_deletions)
        elif self._term is not None:
            names = frozenset(await self._zookeeper.topics_to_delete(watch=True))
            await self._process(events.TopicDeletionsListed(names))

    def _topic_changed(self, name: str) -> None:
        self._topics_changed.add(name)
        self._enqueue_once(self._read_changed_topics)

    async def _read_changed_topics(self) -> None:
        if self._orders is not None:
            changed, known = self._topics_changed, set(self._machine.state.assignments)
            names = sorted(changed & known)
            if changed - known:  # one that could not be read may be mended now
                self._enqueue_once(self._read_topic_names)
            self._topics_changed = set()
            await self._process(events.TopicsModified(await self._orders.read_topics(names)))

    async def _read_log_dir_events(self) -> None:
        if self._term is None:
            return
        found = await self._zookeeper.read_notifications(znodes.LOG_DIR_EVENTS)
        broker_ids = set()
        for path, data in found.items():
            try:
                broker_ids.add(znodes.decode_log_dir_event(data, path))
            except znodes.MalformedZnode as error:
                log.error("log directory event skipped: %s", error)
        failed = frozenset(each for each in broker_ids if each is not None)
        if found:
            await self._process(events.LogDirsFailed(failed, tuple(found)))

    async def _read_isr_changes(self) -> None:
        if self._term is None:
            return
        found = await self._zookeeper.read_notifications(znodes.ISR_CHANGES)
        partitions: list[znodes.TopicPartition] = []
        for path, data in found.items():
            try:
                partitions += znodes.decode_partition_list(data, path)
            except znodes.MalformedZnode as error:
                log.error("ISR change skipped: %s", error)
        if found:
            await self._process(events.IsrChangesNotified(tuple(dict.fromkeys(partitions)), tuple(found)))

    async def _legacy_reassignments(self) -> dict[znodes.TopicPartition, tuple[int, ...]] | None:
        """None when there is no such node; empty when it holds nothing that can be understood."""
        data = await self._zookeeper.read_admin_node(znodes.REASSIGN_PARTITIONS)
        if data is None:
            return None
        try:
            return znodes.decode_reassignments(data)
        except znodes.MalformedZnode as error:
            log.error("reassignment ignored: %s", error)
            return {}

    async def _read_reassignments(self) -> None:
        if self._term is not None and (targets := await self._legacy_reassignments()) is not None:
            await self._process(events.LegacyReassignmentsFound(targets))

    async def _legacy_elections(self) -> tuple[znodes.TopicPartition, ...] | None:
        data = await self._zookeeper.read_admin_node(znodes.PREFERRED_ELECTION)
        if data is None:
            return None
        try:
            return tuple(znodes.decode_partition_list(data, znodes.PREFERRED_ELECTION))
        except znodes.MalformedZnode as error:
            log.error("preferred elections ignored: %s", error)
            return ()

    async def _read_preferred_elections(self) -> None:
        if self._term is not None and (partitions := await self._legacy_elections()) is not None:
            await self._process(events.LegacyElectionsFound(partitions))


def _random_topic_id() -> bytes:
    """A random version 4 UUID, neither of Kafka's two reserved ones."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    if raw[0] >> 2 == 62:  # the text would start with "-"
        raw[0] ^= 0x80
    return bytes(raw)
