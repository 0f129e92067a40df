"""Replicas that move between the log directories of this broker while they serve (KIP-113, AlterReplicaLogDirs).

    alter            checks, makes the `-future` copy in the destination
    a task per move  copies portion by portion in a worker thread, num.replica.alter.log.dirs.threads of them at once,
                     no faster than replica.alter.log.dirs.io.max.bytes.per.second; then the copy takes the log's place,
                     and only for that do appends wait
    resume           a copy found on disk after a restart goes on, once the controller has said what the replica is

Leading, following, truncating: the log does as before, the copy follows (segment/log_move.py). A move ends early with
the replica, or when a directory fails.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.grouping import Key
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.replica.hosted import HostedPartition
from kbroker.segment import names
from kbroker.segment.log import Log
from kbroker.segment.log_move import copy_portion

if TYPE_CHECKING:
    from kbroker.replica.replica_manager import ReplicaManager

log = logging.getLogger(__name__)

PORTION_BYTES = 1 << 20
"""Copied at once; when there was less, the copy may take the log's place."""

Result = TypeVar("Result")


class LogDirMoves:
    """The moves of a replica manager."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self._moves: dict[Key, tuple[Log, asyncio.Task[None]]] = {}
        """The copy and the task that fills it."""
        self._stopped: dict[Key, set[asyncio.Task[None]]] = {}
        """Those that wait for their thread to end."""
        threads = manager.config.num_replica_alter_log_dirs_threads or len(manager.logs.directories)
        self._slots = asyncio.Semaphore(threads)

    async def alter(self, topic: str, partition: int, log_dir: str) -> ErrorCode:
        """Begin to move a replica to a directory; or, where it is there already, give up moving it elsewhere.

        A replica that is not here yet will be made there (code 9 for now). The caller lets nobody make or remove
        replicas meanwhile.
        """
        manager, logs = self._manager, self._manager.logs
        if not names.fits_future_folder(topic, partition):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if log_dir not in logs.directories:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if log_dir in logs.offline_dirs or logs.is_offline(topic, partition):
            return ErrorCode.KAFKA_STORAGE_ERROR
        hosted = manager.replica(topic, partition)
        if hosted is None:
            if manager.metadata.knows(topic, partition) and logs.get(topic, partition) is None:
                logs.prefer(topic, partition, log_dir)
            return ErrorCode.REPLICA_NOT_AVAILABLE
        present = logs.future(topic, partition)
        if present is not None and present.log_dir != log_dir:
            self.stop((topic, partition))
        loop = asyncio.get_running_loop()
        try:
            future = await loop.run_in_executor(manager.workers.upkeep, logs.create_future, topic, partition, log_dir)
        except KafkaError as error:
            log.warning("%s cannot be moved to %s: %s", hosted, log_dir, error.message)
            return error.code
        if future is not None:
            self._begin(hosted, future)
        return ErrorCode.NONE

    def resume(self, hosted: HostedPartition) -> None:
        """Go on with a copy that an earlier life of this broker began."""
        future = self._manager.logs.future(hosted.topic, hosted.partition)
        if future is not None:
            self._begin(hosted, future)

    def stop(self, key: Key) -> None:
        """Stop copying; what is copied stays on disk."""
        move = self._moves.pop(key, None)
        if move is not None:
            self._stopped.setdefault(key, set()).add(move[1])
            move[1].cancel()

    async def close(self) -> None:
        """Stop all moves; when this returns, nothing touches their logs any more."""
        for key in list(self._moves):
            self.stop(key)
        await asyncio.gather(*chain(*self._stopped.values()), return_exceptions=True)

    def _begin(self, hosted: HostedPartition, future: Log) -> None:
        key = (hosted.topic, hosted.partition)
        present = self._moves.get(key)
        if present is None or present[0] is not future:
            before = list(self._stopped.get(key, ()))
            move = asyncio.create_task(self._move(hosted, future, before), name=f"move-{hosted}")
            self._moves[key] = future, move
            move.add_done_callback(lambda done: self._ended(key, future, done))

    def _ended(self, key: Key, future: Log, done: asyncio.Task[None]) -> None:
        if self._moves.get(key) == (future, done):
            del self._moves[key]
        stopped = self._stopped.get(key, set())
        stopped.discard(done)
        if not stopped:
            self._stopped.pop(key, None)
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("moving %s-%d has ended", *key, exc_info=error)

    async def _move(self, hosted: HostedPartition, future: Log, before: list[asyncio.Task[None]]) -> None:
        manager = self._manager
        if before:  # their threads may still copy, or exchange
            await asyncio.wait(before)
        is_of_another_topic = ZERO_UUID not in (future.topic_id, hosted.topic_id) and future.topic_id != hosted.topic_id
        if is_of_another_topic or future.log_dir == hosted.log.log_dir:
            await self._in_thread(manager.logs.drop_future, hosted.topic, hosted.partition)
            return
        async with self._slots:
            source, destination = hosted.log.log_dir, future.log_dir
            log.info("%s: moving from %s to %s, from offset %d on", hosted, source, destination, future.log_end_offset)
            begun = time.monotonic()
            try:
                await self._move_whole(hosted, future)
            except KafkaError as error:
                log.error("%s: not moved to %s: %s", hosted, destination, error.message)
                return
            seconds = time.monotonic() - begun
            log.info("%s: moved to %s, %d bytes in %.1f s", hosted, destination, hosted.log.size, seconds)

    async def _move_whole(self, hosted: HostedPartition, future: Log) -> None:
        """Copy until the copy has taken the log's place."""
        is_flushed = False
        while True:
            try:
                if not await self._copy(hosted, future):
                    continue
                if not is_flushed:  # once: what is appended meanwhile is little, or else no flush would be the last
                    await self._in_thread(future.flush)
                    is_flushed = True
                elif await self._finish(hosted, future):
                    return
            except KafkaError as error:
                if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                    raise
                log.warning("%s: trying again to move it: %s", hosted, error.message)
                await asyncio.sleep(self._manager.config.replica_fetch_backoff_ms / 1000)

    async def _copy(self, hosted: HostedPartition, future: Log) -> bool:
        """Copy a portion, when the rate allows it; True once hardly anything is missing."""
        manager = self._manager
        throttle = manager.log_dirs_throttle
        if throttle.is_exceeded(manager.steady()):
            await asyncio.sleep(throttle.pause_ms(manager.steady()) / 1000)
            return False
        size = await self._in_thread(copy_portion, hosted.log, future, PORTION_BYTES)
        throttle.record(size, manager.steady())
        return size < PORTION_BYTES

    async def _finish(self, hosted: HostedPartition, future: Log) -> bool:
        """Let the copy take the log's place, in its turn among the appends: else these would wait for the disk that it
        moves to, and the event loop with them. False when too much is missing.
        """
        move, before = asyncio.current_task(), hosted.tail
        assert move is not None
        turn = hosted.tail = asyncio.get_running_loop().create_future()
        finishing = self._finish_in_turn(hosted, future, move, before, turn)
        return await self._to_its_end(asyncio.ensure_future(finishing))

    async def _finish_in_turn(
        self,
        hosted: HostedPartition,
        future: Log,
        move: asyncio.Task[Any],
        before: asyncio.Future[Any] | None,
        turn: asyncio.Future[None],
    ) -> bool:
        logs = self._manager.logs
        try:
            if before is not None:
                await asyncio.wait([before])
            if move.cancelling():  # stopped meanwhile: the log stays where it is
                return False
            if not await self._in_thread(logs.finish_move, hosted.topic, hosted.partition, future):
                return False
        finally:
            turn.set_result(None)
            if hosted.tail is turn:
                hosted.tail = None
        await self._in_thread(logs.settle_move, hosted.log)
        return True

    async def _in_thread(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Run in a worker thread."""
        run = asyncio.get_running_loop().run_in_executor
        return await self._to_its_end(run(self._manager.workers.upkeep, function, *arguments))

    async def _to_its_end(self, running: asyncio.Future[Result]) -> Result:
        """Wait for it; whoever is cancelled ends after what runs, for the logs may be closed next."""
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            if not running.cancelled():
                running.exception()
            raise
