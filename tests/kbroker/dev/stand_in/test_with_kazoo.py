"""kazoo and its recipes on the stand-in."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.recipe.queue import Queue
from kazoo.security import make_digest_acl

from kbroker.dev.stand_in_zookeeper import StandInZooKeeper

PATIENCE_S = 30


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StandInZooKeeper]:
    with StandInZooKeeper(tmp_path) as server:
        yield server


@pytest.fixture
def connect(server: StandInZooKeeper) -> Iterator[Callable[..., KazooClient]]:
    """A factory of clients, each with a session of its own."""
    clients: list[KazooClient] = []

    def make(**options: Any) -> KazooClient:
        client = KazooClient(server.connect_string, **options)
        clients.append(client)
        client.start(timeout=PATIENCE_S)
        return client

    yield make
    for client in clients:
        client.stop()
        client.close()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_lock_is_held_by_one_and_passes_on_when_its_session_ends(connect: Callable[..., KazooClient]) -> None:
    ann, bob = connect(), connect()
    first, second = ann.Lock("/lock", "ann"), bob.Lock("/lock", "bob")
    assert first.acquire(timeout=PATIENCE_S)
    assert not second.acquire(blocking=False)
    held = threading.Event()
    waiting = threading.Thread(target=lambda: second.acquire(timeout=PATIENCE_S) and held.set())
    waiting.start()
    until(lambda: second.contenders() == ["ann", "bob"])
    assert not held.is_set()
    ann.stop()
    waiting.join(PATIENCE_S)
    assert held.is_set()
    second.release()


def test_an_election_has_one_leader_at_a_time(connect: Callable[..., KazooClient]) -> None:
    led: list[str] = []

    def run(name: str) -> None:
        connect().Election("/election", name).run(led.append, name)

    candidates = [threading.Thread(target=run, args=(name,)) for name in ("ann", "bob", "carl")]
    for candidate in candidates:
        candidate.start()
    for candidate in candidates:
        candidate.join(PATIENCE_S)
    assert sorted(led) == ["ann", "bob", "carl"]


def test_watching_recipes_see_each_state_last(connect: Callable[..., KazooClient]) -> None:
    watcher, writer = connect(), connect()
    values: list[bytes | None] = []
    children: list[list[str]] = []
    watcher.DataWatch("/node", lambda data, stat: values.append(data))
    writer.create("/node", b"0")
    watcher.ChildrenWatch("/node", lambda names: children.append(sorted(names)))
    for number in range(1, 20):
        writer.set("/node", b"%d" % number)
        writer.create(f"/node/{number:02d}", ephemeral=True)
    until(lambda: values[-1] == b"19" and len(children[-1]) == 19)
    writer.stop()
    until(lambda: children[-1] == [])
    assert values[0] is None
    assert [value for value in values if value] == sorted((value for value in values if value), key=lambda v: int(v))


def test_a_queue_and_a_counter_lose_nothing(connect: Callable[..., KazooClient]) -> None:
    ann, bob = connect(), connect()
    queue = Queue(ann, "/queue")
    for number in range(20):
        queue.put(b"%d" % number)
    assert [Queue(bob, "/queue").get() for _ in range(20)] == [b"%d" % number for number in range(20)]

    def count(client: KazooClient) -> None:
        counter = client.Counter("/counter")
        for _ in range(30):
            counter += 1

    threads = [threading.Thread(target=count, args=(client,)) for client in (ann, bob)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert ann.Counter("/counter").value == 60


def test_credentials_open_what_they_closed_also_after_a_reconnection(
    connect: Callable[..., KazooClient], server: StandInZooKeeper
) -> None:
    ann, bob = connect(auth_data=[("digest", "ann:secret")]), connect()
    ann.create("/mine", b"x", acl=[make_digest_acl("ann", "secret", all=True)])
    with pytest.raises(NoAuthError):
        bob.get("/mine")
    session = ann.client_id
    server.kill()
    server.start()
    assert ann.retry(ann.get, "/mine")[0] == b"x"
    assert ann.client_id == session
    bob.add_auth("digest", "ann:secret")
    assert bob.retry(bob.get, "/mine")[0] == b"x"


def test_a_request_that_is_too_large_is_hung_up_on_and_the_session_goes_on(connect: Callable[..., KazooClient]) -> None:
    client = connect()
    client.create("/large", b"x" * (3 << 20))
    assert len(client.get("/large")[0]) == 3 << 20
    with pytest.raises(Exception):  # noqa: B017, PT011 - kazoo tells it in several ways
        client.create("/larger", b"x" * (5 << 20))
    with pytest.raises(NoNodeError):
        client.retry(client.get, "/larger")
