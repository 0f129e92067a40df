"""ZooKeeper away for a while, for longer than the session lasts, at the start and at the stop: who notices what."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper
from kbroker.dev.free_ports import free_ports
from tests.fixtures.brokers import MakeBroker
from tests.fixtures.zookeeper import ZooKeeperAddress, expire_session
from tests.system.wire import Peer, bystander, create_topic, fetch, leaders, one_batch, produce
from tests.system.writers import ConfluentWriter, OurWriter, Writer

pytestmark = pytest.mark.slow

SESSION_MS = 8000
BROKER_NODE = "/brokers/ids/1"


@pytest.fixture
def own(make_zookeeper: Callable[[], EmbeddedZooKeeper]) -> EmbeddedZooKeeper:
    return make_zookeeper()


@contextlib.contextmanager
def kazoo(connect_string: str) -> Iterator[KazooClient]:
    client = KazooClient(connect_string)
    client.start(timeout=20)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def created(connect_string: str, path: str) -> int:
    """czxid of a node, -1 when there is none."""
    with kazoo(connect_string) as client:
        stat = client.exists(path)
        return -1 if stat is None else int(stat.czxid)


def wait_until(condition: Callable[[], bool], timeout: float, what: str) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def until_both_go_on(ours: Writer, confluent: Writer, more: int = 50) -> None:
    """Wait until so many more records of each writer are acknowledged."""
    least = len(ours.acknowledged) + more, len(confluent.acknowledged) + more
    wait_until(
        lambda: len(ours.acknowledged) >= least[0] and len(confluent.acknowledged) >= least[1], 60, "writers go on"
    )


def can_create(broker: BrokerProcess) -> bool:
    topic = f"after-{time.time_ns()}"  # one that was asked for in vain may be there all the same, later
    try:
        create_topic(broker, topic)
    except AssertionError:
        return False
    return leaders(broker, topic).get(0) == (0, 1)


@pytest.mark.parametrize("how", ["paused", "killed and started again"])
def test_zookeeper_away_for_less_than_the_session_is_noticed_by_no_client(
    make_broker: MakeBroker, own: EmbeddedZooKeeper, topic_name: str, how: str
) -> None:
    broker = make_broker(zookeeper_connect=own.connect_string, properties={"zookeeper.session.timeout.ms": "12000"})
    create_topic(broker, topic_name, 2)
    epoch = created(own.connect_string, BROKER_NODE)
    with (
        bystander(broker, topic_name),
        OurWriter(broker, topic_name, 2) as ours,
        ConfluentWriter(broker, topic_name, 2) as confluent,
    ):
        until_both_go_on(ours, confluent, 1)  # their ids come from ZooKeeper
        if how == "paused":
            own.pause()
            time.sleep(2.5)
            until_both_go_on(ours, confluent)
            own.resume()
        else:
            own.kill()
            time.sleep(0.5)
            until_both_go_on(ours, confluent)
            own.start()
        until_both_go_on(ours, confluent)
        for writer in (ours, confluent):
            writer.finish(60)
            assert not writer.errors
            assert len(writer.acknowledged) == writer.sent
    wait_until(lambda: can_create(broker), 30, "topics can be created again")
    assert created(own.connect_string, BROKER_NODE) == epoch
    assert "registered again" not in broker.log_tail(1000)


@pytest.mark.parametrize("who", ["broker", "ZooKeeper"])
def test_an_expired_session_ends_in_a_new_registration_and_clients_go_on(
    make_broker: MakeBroker, own: EmbeddedZooKeeper, topic_name: str, who: str
) -> None:
    """A broker that hangs has lost its session when it is back; a ZooKeeper that was away long enough, too."""
    broker = make_broker(
        zookeeper_connect=own.connect_string, properties={"zookeeper.session.timeout.ms": str(SESSION_MS)}
    )
    create_topic(broker, topic_name, 2)
    epoch, controller = created(own.connect_string, BROKER_NODE), created(own.connect_string, "/controller")
    with OurWriter(broker, topic_name, 2) as ours, ConfluentWriter(broker, topic_name, 2) as confluent:
        if who == "broker":
            broker.pause()
            expire_session(own.connect_string, BROKER_NODE)
            broker.resume()
        else:
            with bystander(broker, topic_name):
                own.kill()
                time.sleep(SESSION_MS / 1000 + 1)
            own.start()
            # A restarted ZooKeeper gives every session its full time again.
            expire_session(own.connect_string, BROKER_NODE)
        wait_until(lambda: created(own.connect_string, BROKER_NODE) > epoch, 30, "it registers again")
        wait_until(lambda: created(own.connect_string, "/controller") > controller, 30, "it is the controller again")
        wait_until(lambda: can_create(broker), 30, "topics can be created")
        until_both_go_on(ours, confluent, 1)
        for writer in (ours, confluent):
            writer.finish(60)
            assert not writer.errors
            assert len(writer.acknowledged) == writer.sent
    with kazoo(own.connect_string) as client:
        assert client.get("/controller_epoch")[0] == b"2"
    assert "Traceback" not in broker.log_tail(1000)
    assert broker.stop() == 0


def test_a_stop_leaves_no_ephemeral_node_and_the_next_start_recovers_nothing(
    make_broker: MakeBroker, zookeeper: ZooKeeperAddress, topic_name: str
) -> None:
    broker = make_broker()
    create_topic(broker, topic_name, 3)
    with Peer(broker) as peer:
        for partition in range(3):
            assert not produce(peer, topic_name, one_batch(), partition).error_code
    assert created(zookeeper.connect_string, BROKER_NODE) > 0
    assert broker.stop() == 0
    with kazoo(zookeeper.connect_string) as client:
        assert client.get_children("/brokers/ids") == []
        assert client.exists("/controller") is None
    assert (broker.log_dir / ".kafka_cleanshutdown").exists()
    broker.start().wait_until_ready()
    assert "is in use" not in broker.log_tail(1000), "it waits for no session of its own"
    assert not (broker.log_dir / ".kafka_cleanshutdown").exists()
    with Peer(broker) as peer:
        assert produce(peer, topic_name, one_batch()).base_offset == 1
        assert fetch(peer, topic_name).high_watermark == 2


def test_a_broker_whose_zookeeper_is_gone_still_serves_and_still_stops(
    make_broker: MakeBroker, own: EmbeddedZooKeeper, topic_name: str
) -> None:
    broker = make_broker(
        zookeeper_connect=own.connect_string, properties={"zookeeper.session.timeout.ms": str(SESSION_MS)}
    )
    create_topic(broker, topic_name)
    with bystander(broker, topic_name):
        own.kill()
        time.sleep(SESSION_MS / 1000 + 1)
    assert broker.stop() == 0
    assert (broker.log_dir / ".kafka_cleanshutdown").exists()
    assert "Traceback" not in broker.log_tail(1000)


def test_a_zookeeper_that_comes_late_is_waited_for(make_broker: MakeBroker, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    broker = make_broker(
        zookeeper_connect=f"127.0.0.1:{port}",
        properties={"zookeeper.connection.timeout.ms": "30000"},
        wait=False,
    )
    wait_until(lambda: "does not answer yet, retrying for up to 30 s" in broker.log_tail(1000), 30, "it says so")
    with EmbeddedZooKeeper(tmp_path / "late", port):
        broker.wait_until_ready()
        assert broker.stop() == 0


@pytest.mark.parametrize("address", ["nobody.invalid:2181", "127.0.0.1:{silent}", "127.0.0.1:{closed}/chroot"])
def test_a_zookeeper_that_never_answers_ends_the_start_with_one_line(make_broker: MakeBroker, address: str) -> None:
    """No such host; a port that accepts and says nothing; a port that refuses."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (closed,) = free_ports(1)
        connect = address.format(silent=silent.getsockname()[1], closed=closed)
        broker = make_broker(
            zookeeper_connect=connect, properties={"zookeeper.connection.timeout.ms": "2500"}, wait=False
        )
        begun = time.monotonic()
        assert broker.wait(30) == 1
        assert time.monotonic() - begun > 2.4
    lines = broker.log_tail(1000).splitlines()
    assert lines[-1].startswith("kbroker: ")
    assert connect.partition("/")[0] in lines[-1]
    assert "zookeeper.connect" in lines[-1]
    assert "retrying for up to 2.5 s" in "\n".join(lines)
    assert not [line for line in lines if "Traceback" in line]
