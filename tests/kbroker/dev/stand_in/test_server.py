"""The sockets: many clients at once, slow readers, an end in order."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.protocol import serialization as zk
from kazoo.security import OPEN_ACL_UNSAFE

from kbroker.dev.stand_in import server as module
from kbroker.dev.stand_in.journal import Journal
from kbroker.dev.stand_in.server import Server, present
from kbroker.dev.stand_in.service import Service
from tests.kbroker.dev.stand_in.wire import INT, Raw, World


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    journal = Journal(str(tmp_path))
    service = Service(journal.open(0), present(), lambda: bytes(16), first_session_id=1)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = Server(service, journal, listener)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop()
        thread.join(20)
        journal.close()
        assert not thread.is_alive()
        assert service.connections == 0


def test_many_clients_are_served_side_by_side(address: str) -> None:
    with World(address) as world:
        clients = [Raw(world, str(number)) for number in range(50)]
        for number, client in enumerate(clients):
            assert client.simple(zk.Create(f"/{number}", b"", OPEN_ACL_UNSAFE, 1))[-1][1] == 0
        assert len(clients[0].simple(zk.GetChildren("/", False))[-1][2]) == 51
        for client in clients[1:]:
            client.close()
        assert clients[0].simple(zk.GetChildren("/", False))[-1][2] == ["0", "zookeeper"]


def test_who_reads_slowly_gets_everything_and_holds_nobody_up(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNSENT_BYTES", 10_000)
    with World(address) as world:
        slow, quick = Raw(world, "slow"), Raw(world, "quick")
        data = b"x" * 500_000
        slow.simple(zk.Create("/a", data, OPEN_ACL_UNSAFE, 0))
        ask = INT.pack(7) + INT.pack(4) + bytes(zk.GetData("/a", False).serialize())
        for _ in range(40):
            slow._send(ask)
        for _ in range(50):
            quick.events()
        for _ in range(40):
            assert data in slow._frame()


def test_a_connection_that_breaks_leaves_its_session(address: str) -> None:
    with World(address) as world:
        client = Raw(world, "ann")
        client.simple(zk.Create("/e", b"", OPEN_ACL_UNSAFE, 1))
        client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.disconnect()
        assert client.connect() == 30_000
        assert client.simple(zk.Exists("/e", False))[-1][1] == 0
