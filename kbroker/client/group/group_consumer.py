"""What a consumer does because it belongs to a group: subscription, rebalances inside poll, commits."""

from __future__ import annotations

import asyncio
import base64
import logging
import math
import re
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from kbroker.client.callbacks import callback_raised
from kbroker.client.client_config import ConsumerConfig
from kbroker.client.cluster import Cluster
from kbroker.client.consumer_statistics import seconds_ago
from kbroker.client.errors import BrokerError, ConfigurationError, IllegalState, TimedOut, error_for
from kbroker.client.fetcher import Fetcher
from kbroker.client.group.assignors import ASSIGNORS
from kbroker.client.group.classic_member import ClassicMember
from kbroker.client.group.commits import Commits, checked_offsets
from kbroker.client.group.consumer_member import ConsumerMember
from kbroker.client.group.coordinator import Coordinator
from kbroker.client.group.driver import Driver
from kbroker.client.group.events import GiveUp, Identity, MemberSettings, Work
from kbroker.client.group.listener import Audience
from kbroker.client.partition_state import COMMITTED, UNKNOWN_EPOCH
from kbroker.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from kbroker.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

OnCommit = Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], None]
Change = Callable[[], Coroutine[Any, Any, None]]
Store = Callable[[Mapping[TopicPartition, OffsetAndMetadata]], Coroutine[Any, Any, None]]
MISSING_TOPIC_S = 1.0
"""How often a topic is looked for that does not exist yet, or that no broker could be asked about."""
LEAVE_S, SHORTEST_LEAVE_S = 5.0, 0.1
"""How long is tried to have the group hear that a member leaves, at most and at least; its session ends, too."""


class Progress(NamedTuple):
    """How far a member of a group is."""

    offsets: dict[TopicPartition, OffsetAndMetadata]
    group: GroupMetadata
    lost_after: float | None
    """Partitions were given up after this time (of the monotonic clock), at which it had given records last."""


class GroupConsumer:
    """The group's side of a consumer; made when it has a group_id."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        fetcher: Fetcher,
    ) -> None:
        assert config.group_id is not None
        self.config = config
        self.group_id = config.group_id
        self.topics: tuple[str, ...] = ()
        self.pattern: re.Pattern[str] | None = None
        self.driver: Driver | None = None
        self._cluster = cluster
        self._assignment = fetcher.assignment
        self._background = fetcher.background
        self._audience = Audience()
        self._asked: deque[Change] = deque()
        """Changes that the listener wants, for when it has returned."""
        self._parting = asyncio.Lock()
        self._coordinator = Coordinator(cluster, self.group_id)
        self._commits = Commits(
            self._coordinator, config.group_instance_id, self._identity, self._refused, self._reader
        )
        self._loop = asyncio.get_running_loop()
        self._watching: asyncio.Task[None] | None = None
        self._committing: set[asyncio.Task[None]] = set()
        self._commit_timer: asyncio.TimerHandle | None = None
        self._is_commit_due = False
        self._is_closing = self._is_closed = False
        self._rebalances = self._commit_count = 0
        self._rebalanced_at: float | None = None
        self._look_in: asyncio.TimerHandle | None = None
        self._gave_at: float | None = None
        """When a call last gave records."""
        self._lost_after: float | None = None
        """The same, at the time when partitions were given up last."""
        fetcher.places.committed = self.committed
        cluster.refreshed.append(self._see_metadata)

    # --- subscription -----------------------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        """Whether the group gives the partitions out."""
        return bool(self.topics) or self.pattern is not None

    @property
    def in_listener(self) -> bool:
        """Whether it is its own listener that calls."""
        return self._audience.speaks

    async def change(self, change: Change) -> None:
        """Change what is subscribed to: now, or where the listener wants it, who would wait for itself, behind that."""
        if self.in_listener:
            self._asked.append(change)
            return
        try:
            await change()
        finally:
            await self.make_changes()

    async def make_changes(self) -> None:
        """Do what the listener has asked for; where one thing fails, those behind it are not done, as in a program."""
        try:
            while self._asked and not self._is_closing:
                await self._asked.popleft()()
        finally:
            self._asked.clear()

    async def subscribe(self, topics: Sequence[str], pattern: re.Pattern[str] | None, listener: Any) -> None:
        """Begin, or change, the membership; poll brings it about. Where no broker answers now, one is asked later."""
        is_known = True
        try:
            await self._cluster.refresh(None if pattern is not None else topics)
        except OSError as error:
            self._cluster.note_failure(error)
            is_known = False
        self.pattern, self._audience.listener = pattern, listener
        self.topics = tuple(topics) if pattern is None else self._matching()
        if self.driver is None:
            self.driver = Driver(self._make_member(), self._cluster, self._coordinator, self)
        if self._watching is not None:
            self._watching.cancel()
        self._watching = self._loop.create_task(self._watch(is_known), name="kbroker-consumer-metadata")
        self.driver.handle(self.driver.member.subscribe(self.topics, self.driver.now))
        self.driver.look_at_metadata()

    def _make_member(self) -> ClassicMember | ConsumerMember:
        config = self.config
        settings = MemberSettings(
            group_id=self.group_id,
            instance_id=config.group_instance_id,
            rack=config.client_rack,
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            server_assignor=config.group_remote_assignor,
        )
        if config.group_protocol == "consumer":
            member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
            return ConsumerMember(settings, member_id)
        return ClassicMember(settings, [ASSIGNORS[name] for name in config.assignors])

    def _matching(self) -> tuple[str, ...]:
        assert self.pattern is not None
        topics = self._cluster.metadata.topics.values()
        return tuple(sorted(t.name for t in topics if not t.is_internal and self.pattern.match(t.name)))

    def _see_metadata(self) -> None:
        """The metadata is new: topics may match the pattern now, or have more partitions."""
        if self.driver is None or not self.is_subscribed:
            return
        if self.pattern is not None:
            matching = self._matching()
            if matching != self.topics:
                self.topics = matching
                self.driver.handle(self.driver.member.subscribe(matching, self.driver.now))
        self.driver.look_at_metadata()

    async def _watch(self, is_known: bool) -> None:
        """Keep the metadata young: a member without partitions has nobody else who does.

        `is_known`: whether they were had when they were wanted last.
        """
        age = self.config.metadata_max_age_ms / 1000
        due = self._loop.time() + age
        while True:
            await asyncio.sleep(min(MISSING_TOPIC_S, age))
            if is_known and not self._lacks_topics and self._loop.time() < due:
                continue
            due = self._loop.time() + age
            try:
                await self._cluster.refresh(None if self.pattern is not None else self.topics)
                is_known = True
            except (OSError, KafkaError) as error:
                log.info("no new metadata: %s", error)
                is_known = False

    @property
    def _lacks_topics(self) -> bool:
        """Whether a topic is not known that is subscribed to, or assigned: it may be there any moment, or again."""
        member = self.driver.member if self.driver else None
        is_one_unknown = isinstance(member, ConsumerMember) and member.unknown_topics
        return is_one_unknown or any(topic not in self._cluster.metadata.topics for topic in self.topics)

    async def unsubscribe(self) -> None:
        """Leave the group, as close does, but for the commits under way."""
        if self.driver is None:
            return
        try:
            await self.driver.finish_work()
        finally:
            async with self._parting:
                if self.is_subscribed:
                    try:
                        await self._let_go_of_all(self.driver.member)
                    finally:
                        self.topics, self.pattern = (), None
                        await self.driver.leave("the consumer unsubscribed", LEAVE_S)

    def statistics(self, now: float) -> dict[str, Any]:
        """Return what consumer_statistics.py names of a group."""
        state = self.driver.member.state.value if self.driver is not None and self.is_subscribed else "out"
        return {
            "group_state": state,
            "rebalance_total": self._rebalances,
            "last_rebalance_seconds_ago": seconds_ago(self._rebalanced_at, now),
            "commit_total": self._commit_count,
        }

    # --- inside poll ------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have poll look after the group."""
        self._background.wants_poll = True
        self._background.arrived.set()

    def polling(self, is_polling: bool) -> None:
        """The application has called poll, or comes back from it."""
        if self.driver is not None and self.is_subscribed:
            self.driver.handle(self.driver.member.polling(is_polling, self.driver.now))
        if self._look_in is not None:
            self._look_in.cancel()
            self._look_in = None
        if not is_polling and self._assignment.has_given:
            self._gave_at = self._loop.time()
        if not is_polling and not self._is_closed:
            self._look_in = self._loop.call_later(self.config.heartbeat_interval_ms / 1000, self.wake)

    async def attend(self, deadline: float | None) -> bool:
        """Do what has to happen inside poll; False when the time is over before the application may read on."""
        self._background.wants_poll = False
        if self.driver is not None:
            if self.driver.has_work:
                await self.driver.work(deadline)
            if self.driver.error is not None:
                raise self.driver.error
            if self.driver.has_work:
                return False
        if self.config.enable_auto_commit:
            self._commit_if_due()
        return True

    @property
    def may_give(self) -> bool:
        """Whether the application may have records: not while partitions are given up, their positions committed."""
        return self.driver is None or not self.driver.is_working

    def _commit_if_due(self) -> None:
        if self._is_commit_due:
            self._is_commit_due = False
            store = partial(self._commits.commit_by_newest_epoch, check_owned=self._check_owned)
            self._commit_soon(self._offsets_to_keep(), _log_failure, store)
        if self._commit_timer is None:
            self._commit_timer = self._loop.call_later(self.config.auto_commit_interval_ms / 1000, self._commit_due)

    def _commit_due(self) -> None:
        self._is_commit_due, self._commit_timer = True, None
        self.wake()

    async def do(self, work: Work) -> None:
        """Go along with the group: let go of partitions, begin with others; raises what the listener raised."""
        if isinstance(work, GiveUp):
            await self._let_go(work.partitions, work.lost)
            return
        self._rebalances += 1
        self._rebalanced_at = self._loop.time()
        problem: Exception | None = None
        try:
            await self._let_go(work.revoked, lost=False)
        except Exception as error:
            problem = error
        for key in work.added:
            self._assignment.begin(key, COMMITTED)
        problem = await self._audience.tell("on_assigned", work.added) or problem
        self._background.wake()
        if problem is not None:
            raise problem

    async def _let_go(self, partitions: Sequence[TopicPartition], lost: bool) -> None:
        if not partitions:
            return
        self._lost_after = self._gave_at
        if self.config.enable_auto_commit and not lost:
            await self._commit_quietly()
        problem = await self._audience.tell("on_lost" if lost else "on_revoked", partitions)
        self._assignment.drop(partitions)
        if problem is not None:
            raise problem

    # --- commits ----------------------------------------------------------------------------------------------

    def _identity(self) -> Identity:
        if self.driver is None or not self.is_subscribed:
            return Identity()
        member = self.driver.member
        if member.identity.generation < 0:
            raise self._why_outside(member)
        return member.identity

    def _why_outside(self, member: ClassicMember | ConsumerMember) -> BrokerError:
        """Say why nothing can be committed now, and what to do."""
        work = member.work
        if member.is_stale:
            why = f"poll was not called for max_poll_interval_ms={self.config.max_poll_interval_ms}"
            advice = "poll oftener, take less at a time (max_records) or raise max_poll_interval_ms"
        elif isinstance(work, GiveUp) and work.lost and work.partitions:
            why, advice = "the group has gone on without this member", "was it away for session_timeout_ms?"
        else:
            return error_for(ErrorCode.REBALANCE_IN_PROGRESS, f"not a member of group {self.group_id} now: poll first")
        text = (
            f"{why}: its partitions go to others, who begin at the last commit. What was polled since is not committed"
        )
        return error_for(ErrorCode.UNKNOWN_MEMBER_ID, f"{text}; go on with what poll gives from now on. {advice}")

    def _reader(self) -> Identity:
        """Return as which member to ask for offsets: in a classic group nobody need say that."""
        member = None if self.driver is None or not self.is_subscribed else self.driver.member
        return member.identity if isinstance(member, ConsumerMember) else Identity()

    def _refused(self, code: ErrorCode, identity: Identity) -> None:
        if self.driver is not None and self.is_subscribed:
            self.driver.commit_refused(code, identity)

    def metadata(self) -> GroupMetadata:
        """Return who this consumer is in its group now."""
        identity = self.driver.member.identity if self.driver and self.is_subscribed else Identity()
        return GroupMetadata(self.group_id, identity.generation, identity.member_id, self.config.group_instance_id)

    def offsets(self, given: Mapping[Any, Any] | None) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what to commit: what is given, checked, or the positions."""
        if given is None:
            positions = {key: offset for key, offset in self._assignment.positions().items() if offset >= 0}
            return {key: OffsetAndMetadata(offset, "", self._epoch(key, offset)) for key, offset in positions.items()}
        return checked_offsets(given)

    def _offsets_to_keep(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what is committed unasked: nothing of a topic that is gone, or it counts for the next of its name."""
        known = self._cluster.metadata.topics
        return {key: one for key, one in self.offsets(None).items() if key.topic in known}

    def progress(self) -> Progress:
        """Return what a transaction stores; raises where it is not this consumer's to commit."""
        if self.config.enable_auto_commit:
            text = "enable_auto_commit=False is needed: else the positions are committed outside of the transaction too"
            raise ConfigurationError(text)
        self._identity()
        return Progress(self.offsets(None), self.metadata(), self._lost_after)

    def _epoch(self, key: TopicPartition, offset: int) -> int:
        """Return the leader epoch of what was read before: who goes on here can see whether the log was truncated."""
        state = self._assignment.states.get(key)
        return UNKNOWN_EPOCH if state is None else state.epoch_before(offset)

    def _check_owned(self, offsets: Iterable[TopicPartition]) -> None:
        """Raise for a partition that the group has given to another: whose commit would be overwritten."""
        for key in offsets:
            if self.is_subscribed and key not in self._assignment.states:
                text = "the group has given this partition to another member: it is not this one's to commit"
                raise error_for(ErrorCode.ILLEGAL_GENERATION, text, topic=key.topic, partition=key.partition)

    def _is_done(self, given: Mapping[Any, Any] | None, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """What the application commits it has done."""
        if given is None:
            self._assignment.done()
        for key, one in offsets.items():
            self._assignment.done_before(key, one.offset)

    async def commit(self, given: Mapping[Any, Any] | None, timeout_ms: int | None = None) -> None:
        """Commit behind all commits that are under way."""
        offsets = self.offsets(given)
        self._is_done(given, offsets)
        limit_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        ends = self._loop.time() + limit_ms / 1000
        if self._committing and (await asyncio.wait(self._committing, timeout=limit_ms / 1000))[1]:
            raise TimedOut(f"group {self.group_id}: commits before this one are still under way after {limit_ms} ms")
        if offsets:
            self._identity()
            self._check_owned(offsets)
            await self._commits.commit(offsets, max(1, round(1000 * (ends - self._loop.time()))))
            self._commit_count += 1

    def commit_async(self, given: Mapping[Any, Any] | None, on_commit: OnCommit | None) -> None:
        """Commit without waiting; once, without trying again: the next commit says more."""
        self._commit_soon(
            given, on_commit, lambda offsets: self._commits.commit_once(offsets, self.config.request_timeout_ms)
        )

    def _commit_soon(self, given: Mapping[Any, Any] | None, on_commit: OnCommit | None, store: Store) -> None:
        offsets = self.offsets(given)
        self._is_done(given, offsets)
        before = list(self._committing)
        task = self._loop.create_task(self._commit_once(offsets, before, on_commit, store))
        self._committing.add(task)
        task.add_done_callback(self._committing.discard)

    async def _commit_once(
        self,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        before: list[asyncio.Task[None]],
        on_commit: OnCommit | None,
        store: Store,
    ) -> None:
        problem: Exception | None = None
        if before:
            await asyncio.wait(before)
        try:
            if offsets:
                self._identity()
                self._check_owned(offsets)
                await store(offsets)
                self._commit_count += 1
        except (OSError, BrokerError) as error:
            problem = error
        if on_commit is not None:
            try:
                on_commit(offsets, problem)
            except BaseException as error:
                callback_raised(error, "a commit callback")

    async def committed(
        self, partitions: Iterable[TopicPartition] | None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets."""
        return await self._commits.committed(partitions, timeout_ms)

    async def _commit_quietly(self) -> None:
        """Commit the positions before they are given up; what goes wrong is logged, as nobody can help it.

        Who leaves between its JoinGroup and the leader's SyncGroup keeps what it has: its commit is taken behind that.
        """
        problem: Exception | None = None
        async for _ in self._cluster.attempts(self.config.request_timeout_ms):
            try:
                await self.commit(self._offsets_to_keep())
                return
            except (OSError, BrokerError) as error:
                problem = error
            is_rebalancing = isinstance(problem, BrokerError) and problem.code is ErrorCode.REBALANCE_IN_PROGRESS
            if not is_rebalancing or self.metadata().generation_id < 0:
                break
        log.warning("the positions in group %s are not committed: %s", self.group_id, problem)

    def enforce_rebalance(self, reason: str) -> None:
        """Join again."""
        if self.driver is None or not self.is_subscribed:
            raise IllegalState("only a member of a group has it rebalance: subscribe first")
        if not isinstance(self.driver.member, ClassicMember):
            raise IllegalState('a group with group_protocol="consumer" is balanced by its coordinator')
        self.driver.handle(self.driver.member.request_rejoin(reason, self.driver.now))

    # --- the end ----------------------------------------------------------------------------------------------

    async def _let_go_of_all(self, member: ClassicMember | ConsumerMember) -> None:
        """Commit and tell the listener before leaving."""
        await self._let_go(member.owned, lost=member.identity.generation < 0)

    async def close(self, timeout: float | None) -> None:
        """Commit, tell the listener, leave the group, within `timeout` s; raises what the listener raised."""
        self._is_closing = True
        now = asyncio.get_running_loop().time
        ends = math.inf if timeout is None else now() + timeout
        try:
            async with asyncio.timeout(timeout):
                if self.driver is not None:
                    await self.driver.finish_work()
                async with self._parting:
                    if self.driver is not None and self.is_subscribed:
                        await self._let_go_of_all(self.driver.member)
                    elif self.config.enable_auto_commit:
                        await self._commit_quietly()
                if self._committing:
                    await asyncio.wait(self._committing)
        except TimeoutError:
            log.warning("the consumer was closed before its positions were committed")
        finally:
            await self._stop(min(max(ends - now(), SHORTEST_LEAVE_S), LEAVE_S))

    async def _stop(self, leave_s: float) -> None:
        self._is_closed = True
        if self.driver is not None:
            await self.driver.leave("the consumer is being closed", leave_s)
            await self.driver.close()
        for timer in (self._commit_timer, self._look_in):
            if timer is not None:
                timer.cancel()
        tasks = [*self._committing, *([self._watching] if self._watching else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _log_failure(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
    if error is not None:
        log.warning("an automatic commit failed: %s", error)
