"""Carries out what a member's state machine decides: requests, timers, metadata, and its work inside poll."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from typing import Any, Protocol

from kbroker.client.cluster import CONTROL, Cluster
from kbroker.client.errors import error_for
from kbroker.client.group.assignors import ASSIGNORS
from kbroker.client.group.classic_member import ClassicMember
from kbroker.client.group.consumer_member import ConsumerMember
from kbroker.client.group.coordinator import Coordinator
from kbroker.client.group.events import NEVER, Fail, FindCoordinator, Identity, Instruction, Send, ShareOut, Work
from kbroker.client.group.subscriptions import encode_assignment
from kbroker.client.group.topic_racks import Topics
from kbroker.protocol.errors import COORDINATOR_MOVED, ErrorCode, KafkaError
from kbroker.protocol.messages.groups import ConsumerGroupHeartbeatRequest, JoinGroupRequest, LeaveGroupRequest
from kbroker.protocol.schema import Message

log = logging.getLogger(__name__)

MEMBER = "member"
"""Its own connection: a broker reads nothing more from one on which a JoinGroup waits."""
JOIN_LAPSE_MS = 5_000
"""A JoinGroup is answered within the rebalance time-out; a little longer, and the broker is taken for dead."""


class Application(Protocol):
    """What the driver asks of the consumer."""

    def wake(self) -> None:
        """Come out of waiting: there is work, or an error."""

    async def do(self, work: Work) -> None:
        """Let go of partitions, begin with others, call the listener."""

    async def make_changes(self) -> None:
        """Do what the listener has asked for meanwhile."""


class Driver:
    """Lives on the loop of its consumer; `close` leaves no task behind."""

    def __init__(
        self, member: ClassicMember | ConsumerMember, cluster: Cluster, coordinator: Coordinator, app: Application
    ) -> None:
        self.member = member
        self.error: Exception | None = None
        """Why the membership has ended."""
        self.assigned_from: Topics | None = None
        """The topics as they were when this member, leading the group, shared them out."""
        self._group_topics: set[str] = set()
        """Those that some member wants, as far as this member leads."""
        self._cluster = cluster
        self._coordinator = coordinator
        self._app = app
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._working: asyncio.Task[None] | None = None
        self._unanswered = 0
        """Requests in a row: brokers may name one for a while that is dead, or that is not the coordinator any more."""

    @property
    def now(self) -> int:
        """The loop's clock in ms."""
        return int(self._loop.time() * 1000)

    @property
    def is_working(self) -> bool:
        """Whether `work` has begun something that nobody has seen the end of."""
        return self._working is not None

    @property
    def has_work(self) -> bool:
        """Whether `work` has something to do."""
        return self._working is not None or self.member.work is not None

    def handle(self, instructions: list[Instruction]) -> None:
        """Carry out what the member says."""
        for instruction in instructions:
            if isinstance(instruction, Send):
                self._spawn(self._send(instruction.request))
            elif isinstance(instruction, FindCoordinator):
                self._spawn(self._find())
            elif isinstance(instruction, ShareOut):
                self._spawn(self._share_out(instruction))
            elif isinstance(instruction, Fail):
                self.error = error_for(instruction.code, instruction.message)
                log.warning("the group membership has ended: %s", self.error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.member.deadline < NEVER:
            self._timer = self._loop.call_at(self.member.deadline / 1000 + 0.001, self._tick)
        if self.error is not None or self.member.work is not None:
            self._app.wake()

    def _tick(self) -> None:
        try:
            self.handle(self.member.tick(self.now))
        except Exception as error:
            self._fail(error)

    def commit_refused(self, code: ErrorCode, identity: Identity) -> None:
        """A commit was answered with an error."""
        self.handle(self.member.commit_refused(code, identity, self.now))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        log.error("the group membership met what it did not expect", exc_info=error)
        self.handle(self.member.fail(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error)))

    async def _send(self, request: Message) -> None:
        is_farewell = _is_farewell(request)
        try:
            answer = await self._coordinator.ask(request, self._patience_ms(request), _channel_of(request))
        except OSError as error:
            log.info("the group's coordinator does not answer: %s", error)
            if not is_farewell:
                self._unanswered += 1
                self._coordinator.forget()
                self.handle(self.member.failed(request, self.now))
        except KafkaError as error:
            if not is_farewell:
                self.handle(self.member.fail(error.code, error.message))
        else:
            self._unanswered = self._unanswered + 1 if answer.error_code in COORDINATOR_MOVED else 0
            self.handle(self.member.answered(request, answer, self.now))

    async def _say_goodbye(self, farewell: Message) -> None:
        """Have the group hear that this member leaves, also while its coordinator is away, or another's now.

        Who does not hear it keeps the partitions from the others until the session is over.
        """
        try:
            channel = _channel_of(farewell)
            await self._coordinator.ask_until_taken(farewell, lambda answer: answer.error_code, channel)
        except (OSError, KafkaError) as error:
            log.info("the group may not have heard that this member leaves: %s", error)

    def _patience_ms(self, request: Message) -> int:
        limit = self._cluster.config.request_timeout_ms
        if isinstance(request, JoinGroupRequest):
            return max(limit, request.rebalance_timeout_ms + JOIN_LAPSE_MS)
        return limit

    async def _find(self) -> None:
        """Find the coordinator, however long that takes; one that is found and does not answer, after a pause."""
        self._coordinator.forget()
        if self._unanswered > 1:
            config = self._cluster.config
            pause_ms = min(config.retry_backoff_ms << min(self._unanswered - 2, 16), config.retry_backoff_max_ms)
            await asyncio.sleep(pause_ms / 1000 * random.uniform(0.8, 1.2))
        while True:
            try:
                await self._coordinator.find()
            except OSError as error:
                log.info("no coordinator yet: %s", error)
            except KafkaError as error:
                if not error.code.retriable:
                    self.handle(self.member.fail(error.code, error.message))
                    return
                log.info("no coordinator yet: %s", error)
            else:
                self.handle(self.member.coordinator_found(self.now))
                return

    async def _share_out(self, order: ShareOut) -> None:
        """Do the leader's duty."""
        member = self.member
        assert isinstance(member, ClassicMember)
        self._group_topics = wanted = {topic for one in order.members.values() for topic in one.topics}
        try:
            await self._cluster.refresh(wanted)
        except (OSError, KafkaError) as error:
            log.info("no metadata to share partitions out by: %s", error)
            self.handle(member.sharing_failed(self.now))
            return
        topics = self.assigned_from = self.topics(wanted)
        shares = ASSIGNORS[order.assignor].assign(topics, order.members)
        blobs = {name: encode_assignment(partitions) for name, partitions in shares.items()}
        self.handle(member.shared_out(blobs, self.now))

    def topics(self, wanted: set[str]) -> Topics:
        """Return what the metadata says of some topics: for each partition the racks of its replicas."""
        nodes = self._cluster.metadata.nodes
        racks = {node.id: node.rack for node in nodes.values() if node.rack}
        return {
            name: [
                frozenset(racks[replica] for replica in partition.replicas if replica in racks)
                for _, partition in sorted(topic.partitions.items())
            ]
            for name, topic in self._cluster.metadata.topics.items()
            if name in wanted
        }

    def look_at_metadata(self) -> None:
        """The metadata is new: a leader shares out again when topics have changed, others learn names."""
        member = self.member
        if isinstance(member, ConsumerMember):
            names = {topic.topic_id: name for name, topic in self._cluster.metadata.topics.items()}
            self.handle(member.learn_topics(names, self.now))
        elif self.assigned_from is not None and member.is_leader:
            if self.topics(self._group_topics) == self.assigned_from:
                return
            self.assigned_from = None
            self.handle(member.request_rejoin("the topics of the group have changed", self.now))

    async def work(self, deadline: float | None) -> None:
        """Let the application go along with the member's work, until `deadline` (the loop's time).

        The work goes on in a task of its own when the time is over, or when whoever waits here is cancelled.
        """
        while self.has_work:
            if self._working is None:
                self._working = self._loop.create_task(self._work(), name="kbroker-consumer-rebalance")
            working = self._working
            left = None if deadline is None else max(0.0, deadline - self._loop.time())
            await asyncio.wait([working], timeout=left)
            if not working.done():
                return
            self._working = None
            working.result()

    async def _work(self) -> None:
        try:
            work = self.member.work
            if work is not None:
                self.member.work_begun(work)
                try:
                    await self._app.do(work)
                finally:
                    self.handle(self.member.work_done(work, self.now))
        finally:
            await self._app.make_changes()

    async def finish_work(self) -> None:
        """Wait for work that has begun, unless it is a change that belongs to it; nothing new begins."""
        working = self._working
        if working is not None and working is not asyncio.current_task():
            await asyncio.wait([working])
            if self._working is working:
                self._working = None
            working.result()

    async def leave(self, reason: str, timeout: float) -> None:
        """Leave the group, and try for a while to have that heard."""
        instructions = self.member.leave(reason, self.now)
        self.handle([])
        farewells = [
            self._loop.create_task(self._say_goodbye(item.request)) for item in instructions if isinstance(item, Send)
        ]
        self._cancel_tasks()
        self.assigned_from = self.error = None
        if farewells:
            try:
                await asyncio.wait(farewells, timeout=timeout)
            finally:  # said later, after this was cancelled, it would end a membership that has begun since
                for task in farewells:
                    task.cancel()
                await asyncio.gather(*farewells, return_exceptions=True)

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Stop all timers and tasks."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = [*self._tasks, *([self._working] if self._working else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_farewell(request: Message) -> bool:
    if isinstance(request, ConsumerGroupHeartbeatRequest):
        return request.member_epoch < 0
    return isinstance(request, LeaveGroupRequest)


def _channel_of(request: Message) -> str:
    """Behind a JoinGroup that waits on the member's connection a LeaveGroup would wait too.

    A farewell of the newer protocol must not overtake the heartbeat that joins.
    """
    return CONTROL if isinstance(request, LeaveGroupRequest) else MEMBER
