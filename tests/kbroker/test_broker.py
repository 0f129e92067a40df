"""The broker as a process: how it starts, what keeps it from starting, how it stops; and its place in ZooKeeper."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.client import KazooClient

from kbroker import broker as broker_module
from kbroker.broker import Broker
from kbroker.config.broker_config import read_broker_config, resolve_broker_config
from kbroker.controller.znode_operations import ZooKeeperError
from kbroker.controller.znodes import BrokerRegistration
from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper
from kbroker.handlers import metadata as metadata_module
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.metadata import MetadataRequest
from tests.controller.conftest import until
from tests.controller.sessions import expire
from tests.fixtures.brokers import MakeBroker, kill_and_expire
from tests.fixtures.zookeeper import ZooKeeperAddress, expire_session
from tests.kbroker.asking import asking
from tests.kbroker.handlers.test_topics import create, describe, replicas, topic


def run_to_its_end(tmp_path: Path, timeout: float = 30, **properties: str) -> subprocess.CompletedProcess[str]:
    """Run a broker that is expected to end by itself."""
    file = tmp_path / "server.properties"
    settings = {"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")}
    settings.update({key.replace("__", "."): value for key, value in properties.items()})
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = [sys.executable, "-m", "kbroker.process", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def last_line(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr.strip().splitlines()[-1]


# -- what keeps a broker from starting ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_port_in_use_is_named(zookeeper: ZooKeeperAddress, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run_to_its_end(
            tmp_path, zookeeper__connect=zookeeper.connect_string, listeners=f"PLAINTEXT://127.0.0.1:{port}"
        )
    assert f"cannot listen on PLAINTEXT://127.0.0.1:{port}: the port is in use" in last_line(result)


def test_a_directory_locked_by_a_running_broker_is_named(
    own_broker: BrokerProcess, zookeeper: ZooKeeperAddress, tmp_path: Path
) -> None:
    result = run_to_its_end(tmp_path, zookeeper__connect=zookeeper.connect_string, log__dirs=str(own_broker.log_dir))
    line = last_line(result)
    assert str(own_broker.log_dir) in line
    assert "lock" in line


def test_a_directory_of_another_broker_is_refused(
    make_broker: MakeBroker, zookeeper: ZooKeeperAddress, tmp_path: Path
) -> None:
    first = make_broker(1)
    first.stop()
    result = run_to_its_end(
        tmp_path, zookeeper__connect=zookeeper.connect_string, broker__id="2", log__dirs=str(first.log_dir)
    )
    assert "belong to broker 1, but broker.id is 2" in last_line(result)


def test_a_directory_of_another_cluster_is_refused(
    make_broker: MakeBroker, zookeeper: ZooKeeperAddress, tmp_path: Path
) -> None:
    first = make_broker(1)
    first.stop()
    result = run_to_its_end(
        tmp_path, zookeeper__connect=f"{zookeeper.connect_string}/other", log__dirs=str(first.log_dir)
    )
    assert "belong to cluster" in last_line(result)


def test_an_id_that_a_live_broker_has_is_refused(
    own_broker: BrokerProcess, zookeeper: ZooKeeperAddress, tmp_path: Path
) -> None:
    assert "broker id 1 is in use" in last_line(
        run_to_its_end(tmp_path, zookeeper__connect=zookeeper.connect_string, zookeeper__session__timeout__ms="2000")
    )


@pytest.mark.slow
def test_an_unreachable_zookeeper_is_named_after_the_connection_timeout(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        begun = time.monotonic()
        result = run_to_its_end(tmp_path, zookeeper__connect=address, zookeeper__connection__timeout__ms="2000")
    assert time.monotonic() - begun > 1.9
    assert address in last_line(result)
    assert "retrying" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({}, "zookeeper.connect is missing"),
        ({"zookeeper__connect": "x:1", "num__partitions": "many"}, "num.partitions"),
        (
            {"zookeeper__connect": "x:1", "authorizer__class__name": "a.B"},
            "authorizer.class.name=a.B is not known here",
        ),
        (
            {"zookeeper__connect": "x:1", "listeners": "SSL://127.0.0.1:1"},
            "inter-broker listener PLAINTEXT is not among",
        ),
    ],
)
def test_a_bad_configuration_is_one_clear_line(tmp_path: Path, properties: dict[str, str], said: str) -> None:
    result = run_to_its_end(tmp_path, **cast(dict[str, Any], properties))
    assert said in last_line(result)
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_missing_properties_file_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kbroker.process", str(tmp_path / "none.properties")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == 1
    assert "none.properties" in result.stderr


# -- a running broker -----------------------------------------------------------------------------------------------


def zookeeper_node(zookeeper: ZooKeeperAddress, path: str) -> bytes:
    client = KazooClient(zookeeper.connect_string)
    client.start(timeout=60)
    try:
        data: bytes = client.get(path)[0]
        return data
    finally:
        client.stop()
        client.close()


def test_it_registers_as_kafka_does(own_broker: BrokerProcess, zookeeper: ZooKeeperAddress) -> None:
    node = json.loads(zookeeper_node(zookeeper, "/brokers/ids/1"))
    assert node["version"] == 5
    assert (node["host"], node["port"], node["jmx_port"]) == ("127.0.0.1", own_broker.port, -1)
    assert node["endpoints"] == [f"PLAINTEXT://127.0.0.1:{own_broker.port}"]
    assert node["listener_security_protocol_map"]["PLAINTEXT"] == "PLAINTEXT"
    assert node["features"] == {"transaction.version": {"min_version": 0, "max_version": 2}}
    assert isinstance(node["timestamp"], str)
    assert json.loads(zookeeper_node(zookeeper, "/controller"))["brokerid"] == 1


def test_the_ready_file_says_where_it_serves(own_broker: BrokerProcess) -> None:
    ready = own_broker.ready_info()
    assert (ready["id"], ready["port"], ready["pid"]) == (1, own_broker.port, own_broker.pid)
    assert ready["log_dirs"] == [str(own_broker.log_dir)]


def test_sigterm_stops_it_in_order(own_broker: BrokerProcess) -> None:
    assert own_broker.stop() == 0
    assert (own_broker.log_dir / ".kafka_cleanshutdown").exists()


async def test_it_stops_without_waiting_for_what_the_cluster_will_not_do(own_broker: BrokerProcess) -> None:
    async with asking(own_broker) as ask:
        led_by_nobody = topic("t", -1, -1, assignments=[replicas(0, 99)])
        waiting = asyncio.create_task(create(ask, led_by_nobody, timeout_ms=60_000))
        await until(lambda: "1 new topic" in own_broker.log_tail(100))
        assert await asyncio.to_thread(own_broker.stop, 20) == 0
        (created,) = await asyncio.wait_for(waiting, 20)
        assert created.error_code is ErrorCode.REQUEST_TIMED_OUT


def test_it_finds_its_topics_again_after_a_stop_and_after_a_kill(own_broker: BrokerProcess) -> None:
    async def names() -> list[str]:
        async with asking(own_broker) as ask:
            answer = await ask(MetadataRequest(topics=None), 12)
            assert all(p.leader_id == 1 for each in answer.topics for p in each.partitions)
            return sorted(each.name for each in answer.topics)

    async def create_some() -> None:
        async with asking(own_broker) as ask:
            await create(ask, topic("a", 2), topic("b"))

    asyncio.run(create_some())
    own_broker.stop()
    own_broker.start().wait_until_ready()
    assert asyncio.run(names()) == ["a", "b"]
    kill_and_expire(own_broker)
    own_broker.start().wait_until_ready(40)
    assert asyncio.run(names()) == ["a", "b"]


def test_killed_and_started_again_it_does_not_wait_until_its_former_session_expires(own_broker: BrokerProcess) -> None:
    own_broker.kill()
    own_broker.start().wait_until_ready(40)
    assert "/brokers/ids/1 is of a process that is dead" in own_broker.log_tail(1000)
    assert "wait for its session to expire" not in own_broker.log_tail(1000)


def test_once_registered_it_notes_which_life_of_the_machine_it_is(own_broker: BrokerProcess) -> None:
    """A loss of power is known by it at the next start."""
    noted = own_broker.log_dir / "kbroker-boot-id"
    assert noted.read_text() == Path("/proc/sys/kernel/random/boot_id").read_text()
    kill_and_expire(own_broker)
    noted.write_text("an earlier one")
    own_broker.start().wait_until_ready(40)
    assert noted.read_text() == Path("/proc/sys/kernel/random/boot_id").read_text()


def test_a_generated_id_is_kept(make_broker: MakeBroker) -> None:
    process = make_broker(1, properties={"broker.id": "-1"})
    assert process.ready_info()["id"] == 1001
    process.stop()
    process.start().wait_until_ready()
    assert process.ready_info()["id"] == 1001


async def test_several_listeners_are_told_apart(make_broker: MakeBroker) -> None:
    process = make_broker(
        1,
        properties={
            "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://localhost:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        },
    )
    process.port = int(process.ready_info()["port"])
    async with asking(process) as ask:
        answer = await ask(MetadataRequest(topics=[]), 12)
        assert [(b.host, b.port) for b in answer.brokers] == [("127.0.0.1", process.port)]


async def test_a_short_loss_of_zookeeper_changes_nothing_for_clients(
    make_broker: MakeBroker, make_zookeeper: Callable[[], EmbeddedZooKeeper]
) -> None:
    own = make_zookeeper()
    process = make_broker(zookeeper_connect=own.connect_string)
    async with asking(process) as ask:
        await create(ask, topic("before"))
        pid = own.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(2)
            assert (await describe(ask, "before")).error_code is ErrorCode.NONE
        finally:
            os.kill(pid, signal.SIGCONT)
        (created,) = await create(ask, topic("after"))
        assert created.error_code is ErrorCode.NONE


async def test_an_expired_session_is_followed_by_a_new_registration(
    make_broker: MakeBroker, zookeeper: ZooKeeperAddress
) -> None:
    process = make_broker()
    async with asking(process) as ask:
        await create(ask, topic("before"))
        await asyncio.to_thread(expire_session, zookeeper.connect_string, "/brokers/ids/1")
        async with asyncio.timeout(20):
            while "registered again as broker 1" not in process.log_tail(200):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        for _ in range(100):
            (created,) = await create(ask, topic("after"))
            if created.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                break
            await asyncio.sleep(0.1)
        assert (await describe(ask, "after")).partitions[0].leader_id == 1
    assert process.stop() == 0


async def test_addresses_that_change_while_a_broker_registers_again_are_told_then_though_a_disk_hangs() -> None:
    config = resolve_broker_config({"listeners": "PLAINTEXT://old:1", "zookeeper.connect": "z:1"})
    broker = Broker(config)
    told: list[Any] = []

    async def register(registration: BrokerRegistration) -> int:
        broker.config = resolve_broker_config({"listeners": "PLAINTEXT://new:1", "zookeeper.connect": "z:1"})
        return 7

    async def update(registration: BrokerRegistration) -> None:
        told.extend(each.host for each in registration.endpoints)

    async def nothing() -> list[str]:
        return []

    nowhere: Any = SimpleNamespace(
        register_broker=register, update_broker=update, topic_names=nothing, sync=nothing, session_id=1
    )
    parts: Any = SimpleNamespace(ports={}, on_registered=list, forget_topics=list, metadata=SimpleNamespace(topics=()))
    written = threading.Event()
    parts.note_session, parts.live_dirs = lambda session, path: written.wait(30), ["/a"]
    broker.zookeeper, broker.server, broker.services, broker.logs = nowhere, parts, parts, parts
    broker._controller, broker._replicas, broker._registered = parts, parts, True
    try:
        await asyncio.wait_for(broker._register_again(), 20)
        assert broker.broker_epoch == 7
    finally:
        written.set()
        await asyncio.gather(*broker._tasks)
    assert told == ["new"]


async def test_a_topic_that_the_server_one_asks_has_not_heard_of_yet_does_not_count_as_gone() -> None:
    listed, forgotten = ["old"], set[str]()

    async def sync() -> None:
        listed.append("new")

    async def names() -> list[str]:
        return list(listed)

    broker = Broker(resolve_broker_config({"listeners": "PLAINTEXT://old:1", "zookeeper.connect": "z:1"}))
    parts: Any = SimpleNamespace(topic_names=names, sync=sync, forget_topics=forgotten.update)
    parts.metadata = SimpleNamespace(topics=dict.fromkeys(("old", "new", "gone")))
    broker.zookeeper = broker.services = broker._replicas = parts
    await broker._forget_gone_topics()
    assert forgotten == {"gone"}


async def test_a_directory_that_hangs_keeps_neither_the_broker_nor_the_others_from_noting_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_module, "NOTE_S", 0.01)
    broker = Broker(resolve_broker_config({"listeners": "PLAINTEXT://old:1", "zookeeper.connect": "z:1"}))
    goes_on, noted = threading.Event(), []

    def note(session: int, path: str) -> None:
        assert path != "/hangs" or goes_on.wait(30)
        noted.append((path, session))

    logs: Any = SimpleNamespace(live_dirs=["/hangs", "/well"], note_session=note)
    broker.logs = logs
    try:
        for session in (1, 2):
            zookeeper: Any = SimpleNamespace(session_id=session)
            broker.zookeeper = zookeeper
            await asyncio.wait_for(broker._note_session(), 20)
        await until(lambda: noted == [("/well", 1), ("/well", 2)])
    finally:
        goes_on.set()
        broker._workers.close()
    assert noted[2:] in ([("/hangs", 1), ("/hangs", 2)], [("/hangs", 1)])


async def test_a_broker_without_any_directory_left_has_none_to_note_its_session_in() -> None:
    broker = Broker(resolve_broker_config({"listeners": "PLAINTEXT://old:1", "zookeeper.connect": "z:1"}))
    noted: list[str] = []
    logs: Any = SimpleNamespace(live_dirs=[], note_session=lambda session, path: noted.append(path))
    zookeeper: Any = SimpleNamespace(session_id=1)
    broker.logs, broker.zookeeper = logs, zookeeper
    await broker._note_session()
    assert not noted


async def test_a_registration_that_fails_after_an_expired_session_is_tried_until_it_succeeds(
    zookeeper: ZooKeeperAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "REGISTER_PAUSE_S", 0.01)
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), "broker.id": "1"}
    properties["zookeeper.session.timeout.ms"] = "4000"  # also how long an attempt to connect may take
    broker = Broker(read_broker_config({**properties, "zookeeper.connect": zookeeper.connect_string}))
    await broker.start()
    try:
        first, register, tries = broker.broker_epoch, broker.zookeeper.register_broker, 0

        async def register_at_the_second_try(registration: BrokerRegistration, wait_ms: int = 0) -> int:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise ZooKeeperError("not now")
            return await register(registration, wait_ms=wait_ms)

        monkeypatch.setattr(broker.zookeeper, "register_broker", register_at_the_second_try)
        await expire(broker.zookeeper)
        await until(lambda: broker.broker_epoch > first)
    finally:
        await broker.stop(controlled=False)


async def test_a_broker_that_has_not_heard_of_topics_does_not_say_that_there_are_none(
    zookeeper: ZooKeeperAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients would believe it: librdkafka gives up what it has to send."""
    monkeypatch.setattr(broker_module, "FIRST_TOPICS_S", 0.01)
    monkeypatch.setattr(metadata_module, "INTRODUCTION_S", 0.01)
    client = KazooClient(zookeeper.hosts)
    client.start()
    try:
        led_by_nobody = json.dumps({"version": 1, "partitions": {"0": [2]}}).encode()
        client.create(f"{zookeeper.chroot}/brokers/topics/old", led_by_nobody, makepath=True)
    finally:
        client.stop()
        client.close()
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), "broker.id": "1"}
    broker = Broker(read_broker_config({**properties, "zookeeper.connect": zookeeper.connect_string}))
    await broker.start()
    try:
        port = int(broker.endpoints[0].rpartition(":")[2])
        async with asking(SimpleNamespace(port=port)) as ask:
            assert (await describe(ask, "old")).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            await create(ask, topic("new"))
            assert (await describe(ask, "new")).error_code is ErrorCode.NONE
            assert (await describe(ask, "old")).error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    finally:
        await broker.stop(controlled=False)


def test_a_broker_process_loads_no_heavy_library(own_broker: BrokerProcess) -> None:
    maps = Path(f"/proc/{own_broker.pid}/maps").read_text()
    assert not [name for name in ("pyarrow", "numpy", "pandas", "confluent") if name in maps]
