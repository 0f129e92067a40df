"""Ten thousand transactional ids: idle ones, and open ones whose coordinator dies. For bench/transactions.py.

Bare protocol clients begin with the ids, many at a time.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from kazoo.client import KazooClient

from bench.broker import Figures, create_topic
from bench.systems import System, done_with
from kbroker.client.connection import Connection
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.java_hash import partition_for
from kbroker.protocol.messages.groups import FindCoordinatorRequest
from kbroker.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
)

AT_ONCE = 50
LIMIT_S = 180.0
POLL_S = 0.01
TIMEOUT_MS = 900_000
TOPIC = "of-many"
OF_TRANSACTIONS = 1
"""The key type of FindCoordinator."""
PARTITIONS = 2
TWO_BROKERS = {
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "transaction.state.log.num.partitions": str(PARTITIONS),
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "zookeeper.session.timeout.ms": "2000",
}


async def connect(system: System) -> Connection:
    """Return a connection that knows the broker's versions."""
    connection = await Connection.open("127.0.0.1", system.port)
    await connection.negotiate()
    return connection


async def coordinator_of(system: System, transactional_id: str) -> int:
    """Return the id of the broker that coordinates; the topic of transactions is there then."""
    connection = await connect(system)
    async with asyncio.timeout(LIMIT_S):
        while True:
            answer = await connection.request(FindCoordinatorRequest(key=transactional_id, key_type=OF_TRANSACTIONS), 2)
            if answer.error_code is ErrorCode.NONE:
                await connection.close()
                return int(answer.node_id)
            await asyncio.sleep(POLL_S)


async def begin(system: System, ids: Iterable[str], opens: bool) -> None:
    """Begin with all ids, and a transaction of each if it `opens` them."""
    left = iter(ids)

    async def work() -> None:
        connection = await connect(system)
        for transactional_id in left:
            await begin_one(connection, transactional_id, opens)
        await connection.close()

    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))


async def begin_one(connection: Connection, transactional_id: str, opens: bool) -> None:
    """Begin with an id, as often as its coordinator is not there yet."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS)
    while (producer := await connection.request(request, 0)).error_code is not ErrorCode.NONE:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(POLL_S)
    if not opens:
        return
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
    )
    answer = await connection.request(added, 0)
    (partition,) = answer.results_by_topic_v3_and_below[0].results_by_partition
    if partition.partition_error_code is not ErrorCode.NONE:
        raise RuntimeError(f"{transactional_id} is not open: {partition.partition_error_code.name}")


async def until_known(system: System, ids: list[str]) -> None:
    """Ask for all ids until their coordinator knows all of them as open."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            connection = await connect(system)
            answer = await connection.request(DescribeTransactionsRequest(transactional_ids=ids), 0)
            await connection.close()
            if all(each.transaction_state == "Ongoing" for each in answer.transaction_states):
                return
            await asyncio.sleep(POLL_S)


def idle(system: System, count: int) -> Figures:
    """Begin with so many ids and leave them alone."""
    asyncio.run(coordinator_of(system, "idle"))
    before = system.resident_mb()
    began = time.monotonic()
    asyncio.run(begin(system, (f"idle-{number}" for number in range(count)), opens=False))
    seconds = time.monotonic() - began
    return {"begun/s": count / seconds, "resident MB": system.resident_mb(), "MB more": system.resident_mb() - before}


def names(count: int, partition: int) -> Iterator[str]:
    """Name so many ids of one partition of the topic of transactions."""
    number = 0
    while count:
        name = f"open-{number}"
        number += 1
        if partition_for(name, PARTITIONS) == partition:
            count -= 1
            yield name


def failover(kind: type[System], count: int) -> Figures:
    """Open so many ids at one of two brokers, and kill it: how long until the other one knows them all."""
    with kind(TWO_BROKERS) as first:
        second = kind(TWO_BROKERS, broker_id=2, zookeeper=first.zookeeper)
        second.start()
        try:
            create_topic(first, TOPIC, 1)
            leaders = [asyncio.run(coordinator_of(first, next(names(1, partition)))) for partition in range(PARTITIONS)]
            ids = list(names(count, leaders.index(second.broker_id)))
            asyncio.run(begin(second, ids, opens=True))
            cpu = first.cpu_seconds()
        finally:
            second.stop(signal.SIGKILL)
            done_with(second.folder)
        killed = time.monotonic()
        gone = threading.Event()
        with watching(first.zookeeper.connect_string, second.broker_id, gone.set):
            gone.wait(LIMIT_S)
            ended = time.monotonic()
            asyncio.run(until_known(first, ids))
        known = time.monotonic()
        return {
            "seconds": known - killed,
            "seconds from its session's end on": known - ended,
            "CPU-s of who takes over": first.cpu_seconds() - cpu,
        }


@contextmanager
def watching(zookeeper: str, broker_id: int, gone: Callable[[], object]) -> Iterator[None]:
    """Be told when ZooKeeper lets go of a broker: how late that is depends on when it was heard of last."""
    client = KazooClient(f"{zookeeper}/bench")
    client.start()
    path = f"/brokers/ids/{broker_id}"
    try:
        if client.exists(path, watch=lambda event: gone()) is None:
            gone()
        yield
    finally:
        client.stop()
        client.close()
