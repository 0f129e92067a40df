"""Partitions' leaders asked for something: one request per leader, repeated for what is missing where leaders moved."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from kbroker.client.client_config import NEW_TOPIC_S
from kbroker.client.cluster import Cluster
from kbroker.client.errors import BrokerError, error_for
from kbroker.client.types import TopicPartition
from kbroker.protocol.errors import ErrorCode, KafkaError

Wanted = TypeVar("Wanted")
Found = TypeVar("Found")
Refused = Mapping[TopicPartition, BrokerError]
AskLeader = Callable[[int, Mapping[TopicPartition, Wanted], dict[TopicPartition, Found]], Awaitable[Refused]]
"""Asks a leader about some partitions, puts what it answers into the dict, returns its errors; raises OSError."""


async def ask_leaders(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, Wanted],
    ask: AskLeader[Wanted, Found],
    timeout_ms: int | None = None,
) -> dict[TopicPartition, Found]:
    """Return what the partitions' leaders answer.

    Raises the gravest error when it does not go away within the timeout, or never does. That a topic has no such
    partition is believed as soon as that there is no such topic.
    """
    found: dict[TopicPartition, Found] = {}
    missing = dict(wanted)
    problem: Exception | None = None
    limit = cluster.config.request_timeout_ms if timeout_ms is None else timeout_ms
    loop = asyncio.get_running_loop()
    began = loop.time()
    async for attempt in cluster.attempts(limit):
        topics = {topic for topic, _ in missing}
        try:
            if attempt:
                await cluster.refresh(topics)
            if len(unknown := topics.difference(cluster.metadata.topics)) > 1:
                await cluster.refresh(unknown)
            for topic in topics:
                await cluster.topic(topic, limit, auto_create=False)
            if loop.time() - began > NEW_TOPIC_S:
                _check_partitions(cluster, missing)
            problem = await _ask_each(cluster, missing, ask, found)
        except OSError as error:
            problem = error
        missing = {key: value for key, value in missing.items() if key not in found}
        if not missing:
            break
        if isinstance(problem, BrokerError) and not problem.retriable:
            raise problem
    if missing:
        raise problem or error_for(ErrorCode.REQUEST_TIMED_OUT, "the leaders left partitions out")
    return found


def sort_out(
    topics: Iterable[Any], leader: int, found: dict[TopicPartition, Found], value_of: Callable[[Any], Found]
) -> dict[TopicPartition, BrokerError]:
    """Put what a leader answered for each partition of an answer's topics into `found`; returns the errors."""
    refused: dict[TopicPartition, BrokerError] = {}
    for topic in topics:
        for item in topic.partitions:
            key = TopicPartition(topic.name, item.partition_index)
            if item.error_code is ErrorCode.NONE:
                found[key] = value_of(item)
            else:
                message = getattr(item, "error_message", None)
                refused[key] = error_for(item.error_code, message, topic=key[0], partition=key[1], broker=leader)
    return refused


def _check_partitions(cluster: Cluster, wanted: Mapping[TopicPartition, object]) -> None:
    for topic, partition in wanted:
        known = cluster.metadata.topics.get(topic)
        if known is None or partition not in known.partitions:
            cluster.metadata.require(topic, partition)  # says what is missing


async def _ask_each(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, Wanted],
    ask: AskLeader[Wanted, Found],
    found: dict[TopicPartition, Found],
) -> Exception | None:
    """One round; returns an error that was met, the gravest first."""
    per_leader: dict[int, dict[TopicPartition, Wanted]] = defaultdict(dict)
    problems: list[Exception] = []
    for key, value in wanted.items():
        try:
            per_leader[cluster.metadata.require(*key).leader][key] = value
        except KafkaError as error:
            problems.append(error)
    asked = (ask(leader, some, found) for leader, some in per_leader.items())
    for outcome in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(outcome, OSError | KafkaError):
            problems.append(outcome)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            problems += outcome.values()
    problems.sort(key=lambda problem: isinstance(problem, OSError) or bool(getattr(problem, "retriable", True)))
    return problems[0] if problems else None
