"""Brokers that only answer: they register in ZooKeeper, say yes to whatever a controller tells them, and keep count.

python -m bench.stub_brokers HOST:PORT/chroot 100    then one order per line on standard input:

    gone 7      broker 7's registration goes, as when its session has ended
    back 7      it registers anew
    reset       count from nothing
    report      {"LeaderAndIsr": 100, …, "bytes": …, "most_to_one": 3, "first_at": …, "last_at": …}
"""

from __future__ import annotations

import asyncio
import json
import resource
import struct
import sys
import time
from collections import Counter

from bench.large_cluster import registration
from kbroker.controller import znodes
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.protocol.codec import encode
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.replication import LeaderAndIsrResponse, StopReplicaResponse, UpdateMetadataResponse

NAMES = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata"}
ANSWERS = {
    4: encode(LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=[]), 7),
    5: encode(StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=[]), 4),
    6: encode(UpdateMetadataResponse(error_code=ErrorCode.NONE), 8),
}
"""By API key, at the versions that controllers of 3.9 speak."""
VERSIONS = {4: 7, 5: 4, 6: 8}
SESSION_MS = 60_000
HEADER = struct.Struct("!ihhi")
"""Length, API key, version, correlation id."""


class Count:
    """What came since it began."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.per_broker: Counter[int] = Counter()
        self.bytes = 0
        self.first_at = self.last_at = 0.0

    def add(self, broker_id: int, name: str, size: int) -> None:
        """One request came, whole."""
        self.last_at = time.time()
        self.first_at = self.first_at or self.last_at
        self.requests[name] += 1
        self.per_broker[broker_id] += 1
        self.bytes += size

    def __str__(self) -> str:
        """The report."""
        most = max(self.per_broker.values(), default=0)
        times = {"first_at": self.first_at, "last_at": self.last_at}
        return json.dumps({**self.requests, "bytes": self.bytes, "most_to_one": most, **times})


class Stub(asyncio.Protocol):
    """A connection to one of the brokers: frames are counted and forgotten."""

    def __init__(self, broker_id: int, stubs: Stubs) -> None:
        self._broker_id = broker_id
        self._stubs = stubs
        self._head = b""
        self._left = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A controller connects."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        view = memoryview(data)
        while view:
            if self._left == 0:
                missing = HEADER.size - len(self._head)
                self._head += bytes(view[:missing])
                view = view[missing:]
                if len(self._head) < HEADER.size:
                    return
                self._left = 4 + HEADER.unpack(self._head)[0] - HEADER.size
            taken = min(self._left, len(view))
            self._left -= taken
            view = view[taken:]
            if self._left == 0:
                self._answer(*HEADER.unpack(self._head))
                self._head = b""

    def _answer(self, size: int, key: int, version: int, correlation_id: int) -> None:
        if VERSIONS.get(key) != version:
            raise ValueError(f"a controller sends API {key} in version {version}")
        self._stubs.count.add(self._broker_id, NAMES[key], size)
        body = struct.pack("!ix", correlation_id) + ANSWERS[key]
        assert self._transport is not None
        self._transport.write(struct.pack("!i", len(body)) + body)


class Stubs:
    """All of them, in one process and one ZooKeeper session."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._ports: dict[int, int] = {}
        self.count = Count()

    async def start(self, brokers: int) -> None:
        """Listen and register."""
        loop = asyncio.get_running_loop()
        for broker_id in range(1, brokers + 1):
            server = await loop.create_server(lambda broker_id=broker_id: Stub(broker_id, self), "127.0.0.1", 0)  # type: ignore[misc]
            self._ports[broker_id] = server.sockets[0].getsockname()[1]
            await self.back(broker_id)

    async def back(self, broker_id: int) -> None:
        """Register."""
        data = znodes.encode_broker(registration(broker_id, self._ports[broker_id]))
        await self._zookeeper.create(znodes.broker_path(broker_id), data, ephemeral=True)

    async def gone(self, broker_id: int) -> None:
        """Be registered no more."""
        await self._zookeeper.delete(znodes.broker_path(broker_id))


async def main(connect: str, brokers: int) -> None:
    """Do what standard input says until it ends."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    zookeeper = ZooKeeper(connect, SESSION_MS)
    await zookeeper.connect()
    await zookeeper.create_recursive(znodes.BROKER_IDS, None)
    stubs = Stubs(zookeeper)
    await stubs.start(brokers)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        order, _, broker_id = line.strip().partition(" ")
        if order == "report":
            print(stubs.count, flush=True)
            continue
        if order == "reset":
            stubs.count = Count()
        else:
            await (stubs.gone if order == "gone" else stubs.back)(int(broker_id))
        print("done", flush=True)
    await zookeeper.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
