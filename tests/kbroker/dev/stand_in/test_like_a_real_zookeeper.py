"""The same requests to a real ZooKeeper and to the stand-in: the same answers, errors, stats and events in one order.

Histories are drawn; KBROKER_HISTORY=1234 plays one again, KBROKER_HISTORIES=100 plays more.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.protocol import serialization as zk
from kazoo.security import ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id, make_digest_acl_credential

from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper
from kbroker.dev.stand_in_zookeeper import StandInZooKeeper
from tests.fixtures.zookeeper import skip_without_embedded_zookeeper
from tests.kbroker.dev.stand_in.wire import Raw, World

pytestmark = pytest.mark.slow

NAMES = ("ann", "bob")
STEPS = 120
HISTORIES = 1 if "KBROKER_HISTORY" in os.environ else int(os.environ.get("KBROKER_HISTORIES", "8"))
MINE = [ACL(31, Id("auth", ""))]
ANNS = [ACL(31, Id("digest", make_digest_acl_credential("ann", "secret")))]
NOBODYS = [ACL(31, Id("world", "nobody"))]
ACLS = [OPEN_ACL_UNSAFE] * 12 + [READ_ACL_UNSAFE, MINE, ANNS, NOBODYS, []]
Step = Callable[[World, dict[str, Raw]], Any]


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A real one that nobody else uses, and the stand-in."""
    skip_without_embedded_zookeeper()
    folder: Path = tmp_path_factory.mktemp("both")
    with EmbeddedZooKeeper(folder / "real") as real, StandInZooKeeper(folder / "stand-in") as stand_in:
        yield real.connect_string, stand_in.connect_string


class Draw:
    """Draws what the clients do: the same for both servers."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.root = f"/history-{seed}"

    def path(self) -> str:
        names = self.rng.choices("abc", k=self.rng.choice([1, 1, 2, 2, 3]))
        odd = self.rng.choice(["", "/", "/..", "//x", "/\x01"]) if self.rng.random() < 0.02 else ""
        return f"{self.root}/{'/'.join(names)}{odd}"

    def write(self) -> Any:
        rng, path, version = self.rng, self.path(), self.rng.choice([-1, -1, -1, 0, 1, 2])
        data = rng.choice([None, b"", b"x", b"long" * 9])
        flags = rng.choice([0, 0, 0, 1, 2, 3, 5, 9])
        make = rng.choice([zk.Create, zk.Create2])
        return rng.choice(
            [
                make(path, data, rng.choice(ACLS), flags),
                make(path, data, OPEN_ACL_UNSAFE, 0),
                zk.Delete(path, version),
                zk.SetData(path, data, version),
            ]
        )

    def multi(self) -> list[Any]:
        """With odd modes a real one fails over them while it reads the request: these are left out."""
        operations = [self.write() for _ in range(self.rng.randint(0, 4))]
        kept = [each for each in operations if getattr(each, "flags", 0) < 5]
        return [*kept, zk.CheckVersion(self.path(), self.rng.choice([-1, 0]))] if self.rng.random() < 0.5 else kept

    def read(self) -> Any:
        path, watch = self.path(), self.rng.random() < 0.5
        kind = self.rng.choice([zk.Exists, zk.GetData, zk.GetChildren, zk.GetChildren2, zk.GetACL, zk.Sync])
        return kind(path) if kind in (zk.GetACL, zk.Sync) else kind(path, watch)

    def step(self) -> Step:
        rng, name = self.rng, self.rng.choice(NAMES)
        chance, path = rng.random(), self.path()
        if chance < 0.40:
            write = self.write()
            return lambda world, clients: clients[name].simple(write)
        if chance < 0.65:
            read = self.read()
            return lambda world, clients: clients[name].simple(read)
        if chance < 0.80:
            operations = self.multi()
            return lambda world, clients: clients[name].multi(operations)
        if chance < 0.90:
            return self.rare(name, path)
        if chance < 0.95:
            kind, mode = rng.choice([(106, 0), (106, 1), (18, 1), (18, 2), (18, 3), (18, 4), (18, 5), (17, 2), (17, 3)])
            return lambda world, clients: clients[name].about_watches(kind, path, mode)
        return self.life(name)

    def rare(self, name: str, path: str) -> Step:
        set_acl = zk.SetACL(path, self.rng.choice(ACLS), self.rng.choice([-1, 0]))
        reads = [zk.GetData(self.path(), False), zk.GetChildren(self.path(), False), zk.GetData(path, False)]
        root, prefix = self.root, self.rng.choice([self.root, path])
        steps: list[Step] = [
            lambda world, clients: clients[name].simple(set_acl),
            lambda world, clients: clients[name].multi_read(reads),
            lambda world, clients: clients[name].count(root),
            lambda world, clients: clients[name].ephemerals(prefix),
            lambda world, clients: clients[name].auth("digest", f"{name}:secret"),
        ]
        return self.rng.choice(steps)

    def life(self, name: str) -> Step:
        """The session ends and another begins, or it goes on through another connection."""
        lists = [[self.path() for _ in range(self.rng.randint(0, 2))] for _ in range(self.rng.choice([3, 5]))]
        is_over = self.rng.random() < 0.5

        def live(world: World, clients: dict[str, Raw]) -> Any:
            client = clients[name]
            if is_over:
                told = client.close()
                clients[name] = Raw(world, name)
                return told
            client.disconnect()
            return client.connect(), client.set_watches(*lists)

        return live


def play(address: str, seed: int) -> list[Any]:
    """Play a history; what each step told each client."""
    draw = Draw(seed)
    with World(address) as world:
        return history_of(draw, world)


def history_of(draw: Draw, world: World) -> list[Any]:
    clients = {name: Raw(world, name) for name in NAMES}
    clients["ann"].simple(zk.Create(draw.root, b"", OPEN_ACL_UNSAFE, 0))
    world.first_zxid = clients["ann"].last_zxid
    history: list[Any] = []
    for number in range(STEPS):
        told = draw.step()(world, clients)
        # Which of several ephemerals goes first is ZooKeeper's secret.
        news = {name: sorted(client.events()) for name, client in clients.items()}
        history.append((number, told if isinstance(told, tuple) else told[-1], told[:-1], news))
    for client in clients.values():
        client.close()
    return history


@pytest.mark.parametrize("number", range(HISTORIES))
def test_a_drawn_history_is_told_alike_by_both(addresses: tuple[str, str], number: int) -> None:
    """Half of them nobody has played before."""
    drawn = number if number % 2 else random.SystemRandom().randrange(1 << 32)
    seed = int(os.environ.get("KBROKER_HISTORY", drawn))
    real, stand_in = (play(address, seed) for address in addresses)
    for expected, found in zip(real, stand_in, strict=True):
        assert found == expected, f"history {seed}"


def expiry(address: str, *, with_word: bool) -> list[Any]:
    with World(address) as world:
        return told_of_expiry(world, with_word=with_word)


def watched_ephemeral(world: World) -> tuple[Raw, Raw]:
    """Ann watches what ends with Bob's session, which is short: on a busy machine it may be over too soon."""
    timeout_ms = 500
    while True:
        ann, bob = Raw(world, "ann"), Raw(world, "bob", timeout_ms=timeout_ms)
        steps = [(bob, zk.Create("/expiring", b"", OPEN_ACL_UNSAFE, 1))]
        steps += [(ann, zk.GetData("/expiring", True)), (ann, zk.GetChildren("/expiring", True))]
        try:
            told = [client.simple(request) for client, request in steps]
            if all(len(each) == 1 and each[0][1] == 0 for each in told):
                world.first_zxid = ann.last_zxid
                return ann, bob
        except ConnectionError:
            pass
        ann.close()
        bob.disconnect()
        timeout_ms *= 2


def told_of_expiry(world: World, *, with_word: bool) -> list[Any]:
    ann, bob = watched_ephemeral(world)
    told: list[Any] = []
    if with_word:
        bob.disconnect()
    while not (events := ann.events()):
        pass
    told += events
    if with_word:
        told.append(bob.connect())
    else:
        with pytest.raises(ConnectionError):
            bob.events()
    told.append(ann.simple(zk.Exists("/expiring", False)))
    ann.close()
    return told


@pytest.mark.parametrize("with_word", [True, False])
def test_a_session_that_nobody_hears_of_expires_alike(addresses: tuple[str, str], with_word: bool) -> None:
    real, stand_in = (expiry(address, with_word=with_word) for address in addresses)
    assert stand_in == real


def strangers(address: str) -> list[Any]:
    with World(address) as world:
        return told_to_strangers(world)


def told_to_strangers(world: World) -> list[Any]:
    ann = Raw(world, "ann", timeout_ms=40_000)
    told: list[Any] = [ann.timeout_ms]
    password, ann.password = ann.password, b"wrong password!!"
    ann.disconnect()
    told.append(ann.connect())
    ann.password = password
    told.append(ann.connect())
    other = Raw(world, "ann")
    other.session_id, other.password = ann.session_id, ann.password
    told.append(other.connect())
    with pytest.raises(ConnectionError):
        ann.events()
    ahead = Raw(world, "bob")
    ahead.last_zxid += 1 << 40
    with pytest.raises(ConnectionError):
        ahead.connect()
    told.append(other.auth("nothing", "x")[-1][1])
    with pytest.raises(ConnectionError):
        other.events()
    for timeout_ms in (1, 10_000_000):
        told.append(Raw(world, "carl", timeout_ms=timeout_ms).connect())
    return told


def test_sessions_are_given_to_who_knows_their_password_alike(addresses: tuple[str, str]) -> None:
    real, stand_in = (strangers(address) for address in addresses)
    assert stand_in == real
