"""kazoo's connections: whom they wait for and how long, and what they may log."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest

from kbroker.controller.znode_access import ZooKeeperAccess
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.controller.zookeeper_connections import Connections, first_patience
from tests.controller.conftest import until
from tests.controller.sessions import drop_connection
from tests.fixtures.certificates import Authority, Identity
from tests.fixtures.zookeeper import ZooKeeperAddress

Address = tuple[str, int]


@contextlib.contextmanager
def listeners(count: int) -> Iterator[list[socket.socket]]:
    """Servers that take connections, and say nothing by themselves."""
    with contextlib.ExitStack() as opened:
        yield [opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]


def ask(connections: Connections, address: Address) -> bool:
    """Connect and wait as kazoo does; whether there was an answer."""
    with contextlib.suppress(TimeoutError), connections.create_connection(address, "127.0.0.1", 30.0) as connection:
        connection.setblocking(False)
        connections.select([], [connection], [], 30.0)
        if connections.select([connection], [], [], 30.0)[0]:
            connection.recv(1)
            connections.select([], [connection], [], 30.0)
            return True
    return False


@pytest.mark.parametrize(("session_s", "servers", "expected"), [(18, 1, 6), (18, 3, 6), (18, 5, 3.6), (1.5, 5, 1)])
def test_each_of_many_servers_has_its_turn_within_a_session(session_s: float, servers: int, expected: float) -> None:
    assert first_patience(session_s, servers) == pytest.approx(expected)


async def test_the_first_patience_goes_by_the_servers_that_are_named(zookeeper: ZooKeeperAddress) -> None:
    session = ZooKeeper(",".join([zookeeper.hosts] * 5) + zookeeper.chroot, 20_000)
    await session.connect()
    try:
        assert session._kazoo is not None
        assert session._kazoo.handler.patience == pytest.approx(4)
    finally:
        await session.close()


def test_patience_doubles_when_a_silent_server_is_asked_again_not_with_each_server() -> None:
    connections = Connections(0.05, None)
    patience = []
    with listeners(3) as servers:
        first, second, third = (server.getsockname() for server in servers)
        for address in (first, second, third, third, first, second, first):
            assert not ask(connections, address)
            patience.append(round(connections.patience / 0.05))
    assert patience == [1, 1, 1, 2, 2, 2, 4]


def test_patience_is_short_again_after_an_answer() -> None:
    connections = Connections(0.05, None)
    with listeners(2) as (silent, speaking):
        for _ in range(3):
            assert not ask(connections, silent.getsockname())
        assert connections.patience == pytest.approx(0.2)

        def answer() -> None:
            taken, _ = speaking.accept()
            with taken:
                taken.sendall(b"x")
                taken.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        connections.patience = 30.0
        assert ask(connections, speaking.getsockname())
        thread.join()
    assert connections.patience == pytest.approx(0.05)


def test_what_tls_sends_for_itself_is_no_answer(authority: Authority, broker_identity: Identity) -> None:
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_context.load_cert_chain(broker_identity.file)
    context = ssl.create_default_context(cafile=str(authority.file))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    connections = Connections(0.5, context)
    connections.patience = 30.0
    have_shaken = threading.Event()
    with listeners(1) as (server,):

        def shake_hands() -> None:
            taken, _ = server.accept()
            with server_context.wrap_socket(taken, server_side=True) as encrypted, contextlib.suppress(OSError):
                have_shaken.set()  # the tickets are on their way, and nothing else comes until we hang up
                encrypted.recv(1)

        thread = threading.Thread(target=shake_hands)
        thread.start()
        with connections.create_connection(server.getsockname(), "127.0.0.1", 30.0) as connection:
            connection.setblocking(False)
            assert have_shaken.wait(30)
            connections.patience = 0.5
            waits = 0
            while connections.select([connection], [], [], 30.0)[0]:
                waits += 1
                with pytest.raises(ssl.SSLWantReadError):
                    connection.recv(1)
            assert waits > 0, "the tickets came"
            assert connections._silent == {server.getsockname()}
        thread.join()


@pytest.mark.slow
async def test_who_is_not_let_in_again_is_told_of_no_connection_and_the_session_ends(sasl_zookeeper: str) -> None:
    """As when the password is another one on the servers, and not yet here."""
    right = ("kafka", "of-the-brokers")
    session = ZooKeeper(f"{sasl_zookeeper}/again", 6_000, 60_000, access=ZooKeeperAccess(sasl=right))
    await session.connect()
    told: list[str] = []
    try:
        session.on_session_expired.append(lambda: told.append("expired"))
        session.on_session_established.append(lambda: told.append("established"))
        session.on_reconnected.append(lambda: told.append("reconnected"))
        session.watch("/mine", told.append)
        await session.create("/mine", b"", ephemeral=True)
        before = session.session_id
        connection = session._kazoo._connection  # type: ignore[union-attr]
        connection.login = ("kafka", "another")
        told.clear()
        drop_connection(session)
        await until(lambda: "user kafka is not let in" in connection.problem)
        assert session.refused_logins >= 1
        await until(lambda: bool(told))
        assert told == ["expired"]
        connection.login = right
        await until(lambda: "established" in told)
        assert told == ["expired", "/mine", "established"]
        assert session.session_id != before, "nothing keeps the former one alive at the server"
    finally:
        await session.close()


async def test_what_kazoo_logs_of_a_session_has_no_secrets(
    zookeeper: ZooKeeperAddress, caplog: pytest.LogCaptureFixture
) -> None:
    session = ZooKeeper(zookeeper.connect_string, 20_000, access=ZooKeeperAccess(digest="kafka:of-the-digest"))
    with caplog.at_level(1, logger="kazoo"):
        await session.connect()
        try:
            await session.create("/user", b"of-alice")
            await session.set("/user", b"of-alice")
            assert (await session.get("/user"))[0] == b"of-alice"
            assert session._kazoo is not None
            password = session._kazoo._session_passwd
        finally:
            await session.close()
    assert f"SetData {zookeeper.chroot}/user" in caplog.text
    for secret in ("of-the-digest", "of-alice", password.hex(), repr(password)[2:-1]):
        assert secret not in caplog.text
