"""OffsetCommit requests from many connections, sent by a bare loop over sockets, so that it is not what is measured.

Each connection commits for a group of its own, one partition per request, as a consumer without members does.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque

from bench.peers import framed
from bench.systems import Measured
from kbroker.protocol.messages.groups import OffsetCommitRequest

CONNECTIONS = 100
VERSION = 7
"""The last one before compact encodings: an answer ends with the error code."""
LIMIT_S = 30.0
"""How long answers may come late."""
Figures = dict[str, float]


def commit_frame(group_id: str, topic: str, partition: int) -> bytes:
    """Return one request for one partition."""
    committed = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=1_000_000, committed_metadata=""
    )
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[committed])]
    request = OffsetCommitRequest(group_id=group_id, member_id="", topics=topics)
    return framed(request, VERSION)


class Committer:
    """One connection; `sent_at` of what is not answered, the oldest first."""

    def __init__(self, port: int, number: int, topic: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frame = commit_frame(f"committing-{number}", topic, number)
        self.sent_at: deque[float] = deque()
        self._received = b""

    def send(self, now: float) -> None:
        """Send a commit."""
        self.sent_at.append(now)
        self.socket.sendall(self.frame)

    def receive(self) -> int:
        """Return how many answers came; raises RuntimeError for a commit that was refused."""
        data = self._received + self.socket.recv(65_536)
        at = count = 0
        while len(data) - at >= 4 and len(data) - at - 4 >= (size := int.from_bytes(data[at : at + 4], "big")):
            at += 4 + size
            error = int.from_bytes(data[at - 2 : at], "big", signed=True)
            if error:
                raise RuntimeError(f"a commit was refused with error {error}")
            count += 1
        self._received = data[at:]
        return count


class CommitLoad:
    """The connections; a context manager."""

    def __init__(self, system: Measured, port: int, topic: str, connections: int = CONNECTIONS) -> None:
        self._system = system
        self._committers = [Committer(port, number, topic) for number in range(connections)]
        self._selector = selectors.DefaultSelector()
        for committer in self._committers:
            self._selector.register(committer.socket, selectors.EVENT_READ, committer)

    def __enter__(self) -> CommitLoad:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for committer in self._committers:
            committer.socket.close()

    def hold(self, rate: int, seconds: float) -> Figures:
        """Send so many commits a second, whether answers come or not; rate of the answers, time until they came."""
        total, sent = int(rate * seconds), 0
        waits: list[float] = []
        before, began = self._system.cpu_seconds(), time.monotonic()
        while len(waits) < total:
            now = time.monotonic()
            if now - began > seconds + LIMIT_S:
                break
            due = min(total, int((now - began) * rate) + 1)
            for number in range(sent, due):
                self._committers[number % len(self._committers)].send(now)
            sent = due
            wait_s = began + sent / rate - time.monotonic() if sent < total else LIMIT_S
            for committer, answers in self._answers(max(wait_s, 0)):
                now = time.monotonic()
                waits += [now - committer.sent_at.popleft() for _ in range(answers)]
        elapsed, cpu = time.monotonic() - began, self._system.cpu_seconds() - before
        waits.sort()
        return {
            "commits/s": len(waits) / elapsed,
            "CPU-s per 10,000": 1e4 * cpu / max(len(waits), 1),
            "median ms": 1e3 * waits[len(waits) // 2],
            "p99 ms": 1e3 * waits[len(waits) * 99 // 100],
        }

    def saturate(self, seconds: float) -> Figures:
        """Send the next commit of each connection as soon as the last one is answered."""
        before, began = self._system.cpu_seconds(), time.monotonic()
        for committer in self._committers:
            committer.send(began)
        count = waiting = 0
        while (elapsed := time.monotonic() - began) < seconds or waiting < len(self._committers):
            if elapsed > seconds + LIMIT_S:
                break
            for committer, answers in self._answers(1):
                count += answers
                committer.sent_at.clear()
                if elapsed < seconds:
                    committer.send(0)
                else:
                    waiting += 1
        elapsed, cpu = time.monotonic() - began, self._system.cpu_seconds() - before
        return {"commits/s": count / elapsed, "CPU-s per 10,000": 1e4 * cpu / max(count, 1)}

    def _answers(self, wait_s: float) -> list[tuple[Committer, int]]:
        return [(key.data, key.data.receive()) for key, _ in self._selector.select(wait_s)]
