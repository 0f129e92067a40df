"""The broker that coordinates a group (or a transactional id): found by asking any, asked until it has moved."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from kbroker.client.cluster import CONTROL, Cluster
from kbroker.client.connection import Connection
from kbroker.client.errors import error_for
from kbroker.client.metadata import Node
from kbroker.protocol.errors import COORDINATOR_MOVED, ErrorCode
from kbroker.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from kbroker.protocol.schema import Message

FIRST_BATCHED = 4
"""The version of FindCoordinator that takes several keys."""
MOVED = COORDINATOR_MOVED | {ErrorCode.REQUEST_TIMED_OUT}
"""Who is asked may not be the coordinator any more."""


class CoordinatorType(IntEnum):
    """What is coordinated."""

    GROUP = 0
    TRANSACTION = 1


class Coordinator:
    """Where requests about one key go."""

    def __init__(self, cluster: Cluster, key: str, kind: CoordinatorType = CoordinatorType.GROUP) -> None:
        self.cluster = cluster
        self.key = key
        self.kind = kind
        self.node_id: int | None = None

    def forget(self) -> None:
        """It has moved, or does not answer."""
        self.node_id = None

    async def find(self, timeout_ms: int | None = None) -> int:
        """Return the coordinator's broker id; raises what the brokers say when it is not found in time."""
        if self.node_id is not None:
            return self.node_id
        limit = self.cluster.config.request_timeout_ms if timeout_ms is None else timeout_ms
        problem: Exception = error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, self.key)
        async for _ in self.cluster.attempts(limit):
            try:
                found = await self._ask()
            except OSError as error:
                problem = error
                continue
            if found.error_code is ErrorCode.NONE:
                self.cluster.metadata.nodes[found.node_id] = self._node(found)
                self.node_id = node_id = int(found.node_id)
                return node_id
            problem = error_for(found.error_code, f"no coordinator for {self.key!r}: {found.error_message or ''}")
            if not found.error_code.retriable:
                break
        raise problem

    def _node(self, found: FindCoordinatorResponse.Coordinator) -> Node:
        known = self.cluster.metadata.nodes.get(found.node_id)
        return Node(found.node_id, found.host, found.port, known.rack if known else None)

    async def _ask(self) -> Any:
        """Return the answer's entry; below version 4 that is the answer itself."""
        connection = await self.cluster.any_connection()
        version = connection.version_for(FindCoordinatorRequest)
        if version < FIRST_BATCHED:
            request = FindCoordinatorRequest(key=self.key, key_type=self.kind)
        else:
            request = FindCoordinatorRequest(key_type=self.kind, coordinator_keys=[self.key])
        answer = await connection.request(request, version, timeout=self.cluster.config.request_timeout_ms / 1000)
        return answer if version < FIRST_BATCHED else answer.coordinators[0]

    async def ask(
        self,
        request: Message,
        timeout_ms: int,
        channel: str = CONTROL,
        version: int | None = None,
        highest: int | None = None,
    ) -> Any:
        """Send one request and return its answer; raises OSError (and forgets the coordinator) when there is none.

        `version` None: the newest that both sides have, at most `highest`.
        """
        connection = await self._connection(channel, timeout_ms)
        if version is None:
            version = connection.version_for(type(request), highest)
        try:
            return await connection.request(request, version, timeout=timeout_ms / 1000)
        except OSError:
            self.forget()
            raise

    async def ask_until_taken(
        self, request: Message, code_of: Callable[[Any], ErrorCode], channel: str = CONTROL
    ) -> Any:
        """Ask, again where the coordinator moved or cannot answer yet; raises `code_of(answer)` where that is final."""
        kind = "group" if self.kind is CoordinatorType.GROUP else "transactional id"
        limit = self.cluster.config.request_timeout_ms
        problem: Exception = error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, self.key)
        async for _ in self.cluster.attempts(limit):
            try:
                answer = await self.ask(request, limit, channel)
            except OSError as error:
                problem = error
                continue
            code = code_of(answer)
            if code is ErrorCode.NONE:
                return answer
            problem = error_for(code, f"{kind} {self.key}")
            if code in MOVED:
                self.forget()
            elif not code.retriable:
                break
        raise problem

    async def version_for(self, request_type: type[Message]) -> int:
        """Return the newest version of a request that both sides have; raises as `ask` does."""
        return (await self._connection(CONTROL)).version_for(request_type)

    async def _connection(self, channel: str, timeout_ms: int | None = None) -> Connection:
        """Return a connection to the coordinator; one that cannot be reached may be none any more, and is forgotten."""
        node_id = await self.find(timeout_ms)
        try:
            return await self.cluster.connection(node_id, channel)
        except OSError:
            self.forget()
            raise
