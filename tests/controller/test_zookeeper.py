"""The adapter against a real ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import pytest

from kbroker.controller import multi_codec
from kbroker.controller.znode_operations import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    RolledBack,
    SessionExpired,
    SetData,
    Stat,
    TooLarge,
    ZooKeeperError,
    ZooKeeperUnreachable,
)
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper
from tests.controller.conftest import Connect, until
from tests.controller.sessions import drop_connection, expire
from tests.fixtures.streams import stream_server
from tests.fixtures.zookeeper import ZooKeeperAddress


async def test_the_chroot_is_made_with_null_data(connect: Connect, zookeeper: ZooKeeperAddress) -> None:
    await connect()
    outside = ZooKeeper(zookeeper.hosts)
    await outside.connect()
    try:
        data, _ = await outside.get("/" + zookeeper.chroot.strip("/"))
        assert data is None
    finally:
        await outside.close()


async def test_null_data_and_empty_data_are_kept_apart(connect: Connect) -> None:
    session = await connect()
    await session.create("/null", None)
    await session.create("/empty", b"")
    assert (await session.get("/null"))[0] is None
    assert (await session.get("/empty"))[0] == b""
    found = await session.get_many(["/null", "/empty", "/missing"])
    assert [node[0] if node else "missing" for node in found] == [None, b"", "missing"]
    await session.set("/empty", None)
    assert (await session.get("/empty"))[0] is None


async def test_refusals_are_told_by_their_kind_and_name_the_path(connect: Connect) -> None:
    session = await connect()
    await session.create("/a", b"1")
    with pytest.raises(NodeExists, match="/a"):
        await session.create("/a", b"2")
    with pytest.raises(NoNode):
        await session.get("/b")
    with pytest.raises(BadVersion):
        await session.set("/a", b"2", 7)
    with pytest.raises(NodeExists):
        await session.create_recursive("/a", None)


async def test_a_multi_happens_all_or_not_at_all(connect: Connect) -> None:
    session = await connect()
    outcomes = await session.multi([Create("/a"), SetData("/a", b"1", 0), Check("/a", 1), Delete("/missing")])
    assert isinstance(outcomes[0], RolledBack)
    assert isinstance(outcomes[3], NoNode)
    assert await session.exists("/a") is None
    path, stat, nothing = await session.multi([Create("/a"), SetData("/a", b"1", 0), Check("/a", 1)])
    assert path == "/a"
    assert isinstance(stat, Stat)
    assert stat.version == 1
    assert nothing is None


async def test_a_sequential_node_is_numbered(connect: Connect) -> None:
    session = await connect()
    paths = [await session.create("/n_", b"", sequential=True) for _ in range(2)]
    numbers = [int(path.removeprefix("/n_")) for path in paths]
    assert all(len(path) == len("/n_") + 10 for path in paths)
    assert numbers[1] == numbers[0] + 1


async def test_many_nodes_are_read_in_few_requests(connect: Connect) -> None:
    session = await connect()
    await session.multi([Create("/many"), *(Create(f"/many/{each}", str(each).encode()) for each in range(1200))])
    paths = [f"/many/{each}" for each in range(1200)]
    found = await session.get_many(paths)
    assert [node[0] for node in found if node] == [str(each).encode() for each in range(1200)]
    children = await session.children_of_many(["/many", "/many/1", "/missing"])
    assert [len(names) for names in children] == [1200, 0, 0]


async def test_a_zookeeper_that_cannot_read_many_nodes_at_once_is_asked_for_each(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = await connect()
    await session.multi([Create("/many"), *(Create(f"/many/{number}", b"%d" % number) for number in range(3))])
    monkeypatch.setattr(multi_codec.ReadData, "type", 99)  # as unknown to this server as 22 is to one before 3.6
    for _ in range(2):
        found = await asyncio.wait_for(session.get_many(["/many/2", "/missing", "/many/0"]), 20)
        assert [node and node[0] for node in found] == [b"2", None, b"0"]
        assert await session.children_of_many(["/many", "/missing"]) == [["0", "1", "2"], []]
    assert [each.getMessage() for each in caplog.records if "3.6" in each.getMessage()] == [
        "this ZooKeeper is older than 3.6: nodes are read one by one, and taking over a large cluster takes longer"
    ]


@pytest.mark.parametrize(("wanted", "at_once"), [(3, 3), (None, 50)])
async def test_only_so_many_reads_are_under_way_at_once(
    zookeeper: ZooKeeperAddress, monkeypatch: pytest.MonkeyPatch, wanted: int | None, at_once: int
) -> None:
    session = ZooKeeper(zookeeper.connect_string, reads_in_flight=wanted)
    await session.connect()
    get, under_way, most = session.get, 0, 0

    async def counted(path: str, *, watch: bool = False) -> tuple[bytes | None, Stat]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await get(path, watch=watch)
        finally:
            under_way -= 1

    monkeypatch.setattr(session, "get", counted)
    assert await session.get_many([f"/missing/{each}" for each in range(120)], watch=True) == [None] * 120
    assert most == at_once
    await session.close()


async def test_after_a_sync_a_session_reads_what_another_has_written(connect: Connect) -> None:
    writer, reader = await connect(), await connect()
    for number in range(20):
        await writer.create(f"/written{number}", b"")
        await asyncio.wait_for(reader.sync(), 20)
        assert await reader.exists(f"/written{number}") is not None
    drop_connection(reader)
    await asyncio.wait_for(reader.sync(), 20)


async def test_watches_call_back_once_for_data_children_and_creation(connect: Connect) -> None:
    session = await connect()
    fired: list[str] = []
    await session.create("/a", b"")
    for path in ("/a", "/b", "/brokers/topics"):
        session.watch(path, fired.append)
    await session.get("/a", watch=True)
    await session.exists("/b", watch=True)
    await session.children("/brokers/topics", watch=True)
    await session.set("/a", b"1")
    await session.set("/a", b"2")
    await session.create("/b", b"")
    await session.create("/brokers/topics/t", b"")
    await until(lambda: len(fired) >= 3)
    assert fired == ["/a", "/b", "/brokers/topics"]
    session.unwatch("/a")
    await session.get("/a", watch=True)
    await session.set("/a", b"3")
    await session.get("/a")
    assert len(fired) == 3


async def test_a_lost_connection_is_invisible_but_for_the_watches(connect: Connect) -> None:
    session = await connect()
    fired: list[str] = []
    reconnected = asyncio.Event()
    expired: list[bool] = []
    session.on_reconnected.append(reconnected.set)
    session.on_session_expired.append(lambda: expired.append(True))
    session.watch("/brokers/topics", fired.append)
    await session.children("/brokers/topics", watch=True)
    await session.create("/mine", b"", ephemeral=True)
    before = session.session_id
    drop_connection(session)
    answers = await asyncio.gather(*(session.get("/brokers/topics") for _ in range(50)))
    assert len(answers) == 50
    await asyncio.wait_for(reconnected.wait(), 20)
    assert fired == ["/brokers/topics"]
    assert session.session_id == before
    assert await session.exists("/mine") is not None
    assert not expired


async def test_an_expired_session_is_told_and_followed_by_a_new_one(connect: Connect) -> None:
    session = await connect()
    expired, established = asyncio.Event(), asyncio.Event()
    session.on_session_expired.append(expired.set)
    session.on_session_established.append(established.set)
    await session.create("/mine", b"", ephemeral=True)
    before = session.session_id
    await expire(session)
    await asyncio.wait_for(expired.wait(), 20)
    await asyncio.wait_for(established.wait(), 20)
    assert session.session_id != before
    assert await session.exists("/mine") is None


async def test_nothing_can_be_asked_of_a_closed_session(connect: Connect) -> None:
    session = await connect()
    await session.close()
    with pytest.raises(SessionExpired):
        await session.get("/brokers")


async def test_an_unreachable_zookeeper_is_named_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    session = ZooKeeper("127.0.0.1:1/chroot", connection_timeout_ms=300)
    with caplog.at_level(logging.WARNING), pytest.raises(ZooKeeperUnreachable) as told:
        await asyncio.wait_for(session.connect(), 20)
    assert "127.0.0.1:1" in str(told.value)
    assert "zookeeper.connect" in str(told.value)
    assert not caplog.records


async def test_what_does_not_fit_into_a_packet_is_refused_not_sent_for_ever(connect: Connect) -> None:
    session = await connect()
    with pytest.raises(ZooKeeperError, match=r"large: 60000\d\d bytes .*jute.maxbuffer"):
        await asyncio.wait_for(session.create("/large", bytes(6_000_000)), 20)
    assert await session.exists("/brokers") is not None


@pytest.mark.slow
async def test_a_multi_that_does_not_fit_into_a_packet_is_refused_whatever_its_parts(connect: Connect) -> None:
    session = await connect()
    session._refused_size = 8 << 20  # as if nothing were known of any limit
    losses: list[None] = []
    session.on_disconnected.append(lambda: losses.append(None))
    before = session.session_id
    operations = [Create(f"/part{number}", bytes(360_000)) for number in range(12)]
    for _ in range(2):
        with pytest.raises(TooLarge, match=r"/part0 and 11 more: 432\d{4} bytes .*jute.maxbuffer"):
            await asyncio.wait_for(session.multi(operations), 20)
    assert await session.exists("/part0") is None
    assert session.session_id == before
    assert len(losses) <= 2, "once it is known what the server takes, it is not tried again"


async def test_many_nodes_with_long_names_are_read_in_requests_that_fit(connect: Connect) -> None:
    session = await connect()
    losses: list[None] = []
    session.on_disconnected.append(lambda: losses.append(None))
    paths = [f"/{number:02d}{'#' * 100_000}" for number in range(60)]
    await session.create(paths[0], b"there")
    found = await asyncio.wait_for(session.get_many(paths), 20)
    assert [each and each[0] for each in found] == [b"there", *[None] * 59]
    assert await asyncio.wait_for(session.children_of_many(paths), 20) == [[]] * 60
    with pytest.raises(TooLarge, match=r"jute.maxbuffer"):
        await asyncio.wait_for(session.exists("/" + "#" * 5_000_000), 20)
    assert not losses


async def test_a_zookeeper_that_dies_and_comes_back_in_time_keeps_the_session(own_zookeeper: EmbeddedZooKeeper) -> None:
    session = ZooKeeper(own_zookeeper.connect_string, 60_000)
    await session.connect()
    try:
        await session.create("/mine", b"", ephemeral=True)
        before = session.session_id
        await asyncio.to_thread(own_zookeeper.kill)
        await until(lambda: not session.is_connected)
        waiting = asyncio.create_task(session.create("/later", b""))
        await asyncio.to_thread(own_zookeeper.start)
        assert await asyncio.wait_for(waiting, 50) == "/later"
        assert session.session_id == before
        assert await session.exists("/mine") is not None
    finally:
        await session.close()


class Front:
    """A way to ZooKeeper that passes nothing on for `delay` seconds after it took a connection."""

    def __init__(self, hosts: str) -> None:
        self._host, _, port = hosts.rpartition(":")
        self._port = int(port)
        self.delay = 0.0
        self.taken: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.taken.append(writer)
        opened = [writer]
        try:
            await asyncio.sleep(self.delay)
            upstream, to_upstream = await asyncio.open_connection(self._host, self._port)
            opened.append(to_upstream)
            await asyncio.gather(self._copy(reader, to_upstream), self._copy(upstream, writer))
        finally:
            for each in opened:
                each.transport.abort()
                with contextlib.suppress(OSError):
                    await each.wait_closed()

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65_536):
                sink.write(data)
        sink.close()


@pytest.fixture
async def front(zookeeper: ZooKeeperAddress) -> AsyncIterator[tuple[Front, str]]:
    """It, and a connect string that leads through it."""
    front = Front(zookeeper.hosts)
    async with stream_server(front.serve) as port:
        yield front, f"127.0.0.1:{port}/{zookeeper.chroot.strip('/')}"


@pytest.mark.slow
async def test_a_server_that_takes_a_connection_and_says_nothing_is_left_before_the_session_is_over(
    front: tuple[Front, str],
) -> None:
    """As one that hangs, or is about to serve, does."""
    way, connect_string = front
    session = ZooKeeper(connect_string, 12_000)
    await session.connect()
    before = session.session_id
    way.delay = 60
    way.taken.pop().transport.abort()
    await until(lambda: bool(way.taken))
    way.delay = 0
    try:
        await until(lambda: len(way.taken) > 1, 8)
        assert await asyncio.wait_for(session.create("/later", b""), 30) == "/later"
        assert session.session_id == before
    finally:
        await session.close()


@pytest.mark.slow
async def test_a_server_that_is_slow_is_given_more_time_with_each_attempt(front: tuple[Front, str]) -> None:
    way, connect_string = front
    way.delay = 1.5
    session = ZooKeeper(connect_string, 3_000, 60_000)
    await session.connect()
    attempts = len(way.taken)
    await session.close()
    assert attempts > 1


async def test_closing_does_not_wait_for_a_zookeeper_that_is_gone(own_zookeeper: EmbeddedZooKeeper) -> None:
    session = ZooKeeper(own_zookeeper.connect_string)
    await session.connect()
    await asyncio.to_thread(own_zookeeper.kill)
    await until(lambda: not session.is_connected)
    waiting = asyncio.create_task(session.exists("/brokers"))
    await asyncio.sleep(0.05)
    await asyncio.wait_for(session.close(), 12)
    with pytest.raises(SessionExpired):
        await asyncio.wait_for(waiting, 20)
