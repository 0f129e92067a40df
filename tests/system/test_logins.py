"""Three brokers that log in at each other by SCRAM, and clients of others that log in by each mechanism."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import kbroker
from kbroker.client.errors import LoginFailed
from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.free_ports import free_ports
from kbroker.security.tokens import unsecured_token
from tests.fixtures.brokers import MakeBroker, kill_and_expire
from tests.fixtures.java import JavaTool
from tests.fixtures.zookeeper import ZooKeeperAddress
from tests.kbroker.cli.commands import succeed

pytestmark = pytest.mark.slow

WAIT_S = 60.0
PASSWORD = "pass-of-alice"
BROKERS_PASSWORD = "pass-of-brokers"
SECRETS = (PASSWORD, BROKERS_PASSWORD)
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
PREFIX = "listener.name.sasl_plaintext"


def properties(port: int) -> dict[str, str]:
    own = f'username="broker" password="{BROKERS_PASSWORD}"'
    return {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,OAUTHBEARER",
        f"{PREFIX}.scram-sha-512.sasl.jaas.config": f"{SCRAM} {own};",
        f"{PREFIX}.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
        f"{PREFIX}.plain.sasl.jaas.config": f'{PLAIN} user_alice="{PASSWORD}";',
        f"{PREFIX}.oauthbearer.sasl.jaas.config": f"{BEARER};",
        "connections.max.reauth.ms": "4000",
    }


@pytest.fixture
def brokers(make_broker: MakeBroker, zookeeper: ZooKeeperAddress) -> Iterator[list[BrokerProcess]]:
    there = ("--zookeeper", zookeeper.connect_string)
    succeed("user", "add", "broker", "-m", "SCRAM-SHA-512", *there, given=f"{BROKERS_PASSWORD}\n".encode())
    succeed("user", "add", "alice", *there, given=f"{PASSWORD}\n".encode())
    ports = free_ports(3)
    made = [make_broker(number + 1, properties=properties(ports[number]), port=ports[number]) for number in range(3)]
    yield made
    logs = "".join(broker.log_file.read_text() for broker in made)
    assert not any(secret in logs for secret in SECRETS)


def bootstrap(brokers: list[BrokerProcess]) -> str:
    return ",".join(broker.bootstrap for broker in brokers)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def token() -> str:
    now = int(time.time())
    return unsecured_token({"sub": "alice", "iat": now - 1, "exp": now + 600})


def librdkafka(brokers: list[BrokerProcess], mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap(brokers),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "log_level": 0,
    }
    if mechanism == "OAUTHBEARER":
        return {**settings, "oauth_cb": lambda config: (token(), time.time() + 600)}
    return {**settings, "sasl.username": "alice", "sasl.password": password}


def create(brokers: list[BrokerProcess], topic: str) -> AdminClient:
    admin = AdminClient(librdkafka(brokers, "SCRAM-SHA-512"))
    (future,) = admin.create_topics([NewTopic(topic, 3, 3, config={"min.insync.replicas": "3"})]).values()
    future.result(WAIT_S)
    return admin


def there_and_back(brokers: list[BrokerProcess], mechanism: str, topic: str) -> None:
    """Produce and consume by librdkafka."""
    failures: list[Any] = []
    producer = Producer({**librdkafka(brokers, mechanism), "acks": "all"})
    producer.produce(topic, mechanism, on_delivery=lambda error, message: failures.append(error))
    assert producer.flush(WAIT_S) == 0
    assert failures == [None]
    consumer = Consumer(
        {**librdkafka(brokers, mechanism), "group.id": f"{topic}-{mechanism}", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        found: list[Any] = []

        def read() -> bool:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message.value())
            return mechanism.encode() in found

        until(read)
    finally:
        consumer.close()


def test_brokers_replicate_and_clients_of_each_kind_log_in(brokers: list[BrokerProcess], topic_name: str) -> None:
    admin = create(brokers, topic_name)
    for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"):
        there_and_back(brokers, mechanism, topic_name)
    own_clients(brokers, topic_name)
    kafka_python(brokers, topic_name)
    asyncio.run(aiokafka_clients(brokers, topic_name))
    wrong = Producer({**librdkafka(brokers, "SCRAM-SHA-512", "wrong"), "error_cb": lambda error: errors.append(error)})
    errors: list[KafkaError] = []
    until(lambda: bool(wrong.poll(0.1) or errors))
    assert any(error.code() == KafkaError._AUTHENTICATION for error in errors)
    kill_and_expire(brokers[0])
    until(lambda: all(each.leader in (2, 3) for each in partitions(admin, topic_name)))
    brokers[0].start().wait_until_ready(WAIT_S)
    until(lambda: all(len(each.isrs) == 3 for each in partitions(admin, topic_name)))


def partitions(admin: AdminClient, topic: str) -> list[Any]:
    try:
        return list(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions.values())
    except KafkaException:
        return []


def own_clients(brokers: list[BrokerProcess], topic: str) -> None:
    """Those of this package, long enough to log in again several times on the same connections."""
    login: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}
    alice = {**login, "sasl_username": "alice", "sasl_password": PASSWORD}
    count = 0
    with (
        kbroker.Producer(bootstrap(brokers), **alice) as producer,
        kbroker.Consumer(bootstrap(brokers), auto_offset_reset="latest", **alice) as consumer,
    ):
        consumer.assign([(topic, number) for number in range(3)])
        consumer.poll(0)
        begun = time.monotonic()
        while time.monotonic() < begun + 5:
            producer.send(topic, b"own-%d" % count).result(WAIT_S)
            count += 1
            time.sleep(0.05)
        found: set[bytes] = set()
        until(lambda: bool(found.update(each.value or b"" for each in consumer.poll(200))) or len(found) >= 1)
    begun = time.monotonic()
    with pytest.raises(LoginFailed, match="alice"):
        with kbroker.Producer(bootstrap(brokers), **{**alice, "sasl_password": "wrong"}) as refused:
            refused.send(topic, b"x").result(WAIT_S)
    assert time.monotonic() - begun < WAIT_S / 2


def kafka_python(brokers: list[BrokerProcess], topic: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kafka

        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            producer = kafka.KafkaProducer(
                bootstrap_servers=bootstrap(brokers),
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism=mechanism,
                sasl_plain_username="alice",
                sasl_plain_password=PASSWORD,
            )
            assert producer.send(topic, b"kafka-python").get(WAIT_S).offset >= 0
            producer.close(timeout=WAIT_S)


async def aiokafka_clients(brokers: list[BrokerProcess], topic: str) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap(brokers),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=PASSWORD,
        )
        await producer.start()
        try:
            sent = await asyncio.wait_for(producer.send_and_wait(topic, b"aiokafka"), WAIT_S)
            assert sent.offset >= 0
        finally:
            await producer.stop()


def test_javas_tools_make_users_and_log_in(
    make_broker: MakeBroker, zookeeper: ZooKeeperAddress, java_tool: JavaTool, topic_name: str, tmp_path: Path
) -> None:
    succeed("user", "add", "broker", "--zookeeper", zookeeper.connect_string, given=f"{BROKERS_PASSWORD}\n".encode())
    (port,) = free_ports(1)
    broker = make_broker(properties=properties(port), port=port)
    common = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={SCRAM}"
    (tmp_path / "broker").write_text(f'{common} username="broker" password="{BROKERS_PASSWORD}";\n')
    (tmp_path / "carol").write_text(f'{common} username="carol" password="{PASSWORD}";\n')
    server = ("--bootstrap-server", broker.bootstrap)
    chosen = ("--entity-type", "users", "--entity-name", "carol", "--command-config", str(tmp_path / "broker"))
    java_tool(
        "kafka.admin.ConfigCommand", *server, *chosen, "--alter", "--add-config", f"SCRAM-SHA-512=[password={PASSWORD}]"
    )
    as_broker = ("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=SCRAM-SHA-512")
    secret = ("-X", "sasl.username=broker", "-X", f"sasl.password={BROKERS_PASSWORD}")
    assert "carol" in succeed("user", "list", "-b", broker.bootstrap, *as_broker, *secret)
    login = str(tmp_path / "carol")
    java_tool(
        "kafka.tools.ConsoleProducer", *server, "--topic", topic_name, "--producer.config", login, given="by carol\n"
    )
    read = java_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *server,
        *("--topic", topic_name, "--from-beginning", "--max-messages", "1", "--consumer.config", login),
    )
    assert read == "by carol\n"


def test_javas_tools_make_renew_and_end_tokens(
    make_broker: MakeBroker, zookeeper: ZooKeeperAddress, java_tool: JavaTool, topic_name: str, tmp_path: Path
) -> None:
    succeed("user", "add", "broker", "--zookeeper", zookeeper.connect_string, given=f"{BROKERS_PASSWORD}\n".encode())
    (port,) = free_ports(1)
    broker = make_broker(properties={**properties(port), "delegation.token.secret.key": "key"}, port=port)
    common = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={SCRAM}"
    (tmp_path / "broker").write_text(f'{common} username="broker" password="{BROKERS_PASSWORD}";\n')
    command = "org.apache.kafka.tools.DelegationTokenCommand"
    chosen = ("--bootstrap-server", broker.bootstrap, "--command-config", str(tmp_path / "broker"))
    made = java_tool(command, *chosen, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:carol")
    token_id, secret = re.findall(r"^([\w-]{22})\s+(\S+)", made, re.MULTILINE)[0]
    (tmp_path / "token").write_text(f'{common} username="{token_id}" password="{secret}" tokenauth="true";\n')
    java_tool(
        *("kafka.tools.ConsoleProducer", "--bootstrap-server", broker.bootstrap, "--topic", topic_name),
        *("--producer.config", str(tmp_path / "token")),
        given="by token\n",
    )
    java_tool(command, *chosen, "--renew", "--renew-time-period", "-1", "--hmac", secret)
    assert token_id in java_tool(command, *chosen, "--describe", "--owner-principal", "User:broker")
    java_tool(command, *chosen, "--expire", "--expiry-time-period", "-1", "--hmac", secret)
    assert token_id not in java_tool(command, *chosen, "--describe", "--owner-principal", "User:broker")
    assert secret not in broker.log_file.read_text()


def test_kafkas_tool_gives_a_running_broker_a_listener_with_its_users_and_takes_it_away(
    make_broker: MakeBroker, java_tool: JavaTool, zookeeper: ZooKeeperAddress
) -> None:
    broker = make_broker(properties={"password.encoder.secret": "of the broker"})
    key = "listener.name.clients.plain.sasl.jaas.config"
    change = ("--bootstrap-server", broker.bootstrap, "--entity-type", "brokers", "--entity-name", "1", "--alter")
    mechanisms = "listener.name.clients.sasl.enabled.mechanisms"
    java_tool("kafka.admin.ConfigCommand", *change, "--add-config", f"{mechanisms}=PLAIN")
    java_tool("kafka.admin.ConfigCommand", *change, "--add-config", "log.cleaner.threads=2")
    assert f"{mechanisms}=PLAIN" in java_tool("kafka.admin.ConfigCommand", *change[:-1], "--describe")
    java_tool("kafka.admin.ConfigCommand", *change, "--delete-config", mechanisms)
    assert mechanisms not in java_tool("kafka.admin.ConfigCommand", *change[:-1], "--describe")
    java_tool("kafka.admin.ConfigCommand", *change, "--add-config", f'{key}=[{PLAIN} user_alice="{PASSWORD}";]')
    (port,) = free_ports(1)
    addresses = f"PLAINTEXT://127.0.0.1:{broker.port},CLIENTS://127.0.0.1:{port}"
    java_tool(
        *("kafka.admin.ConfigCommand", *change, "--add-config"),
        f"{mechanisms}=PLAIN,listener.security.protocol.map=[PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT],"
        f'listeners=[{addresses}],{key}=[{PLAIN} user_alice="{PASSWORD}";]',
    )
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "alice"}
    with kbroker.Admin(f"127.0.0.1:{port}", **login, sasl_password=PASSWORD) as admin:
        until(lambda: bool(admin.describe_cluster().brokers))  # the controller tells of the address, as in Kafka
        (config,) = admin.describe_configs("broker", [1]).values()
        assert PASSWORD not in str(config)
        with pytest.raises(kbroker.InvalidRequestError, match="for existing listener CLIENTS"):
            admin.alter_configs("broker", "1", {key: f'{PLAIN} user_alice="other";'})
    broker.stop()
    broker.start().wait_until_ready(WAIT_S)
    with kbroker.Admin(f"127.0.0.1:{port}", **login, sasl_password=PASSWORD) as admin:
        assert admin.describe_cluster().brokers
    java_tool("kafka.admin.ConfigCommand", *change, "--delete-config", f"listeners,{key}")
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", port), WAIT_S):
        pass
    assert PASSWORD not in broker.log_file.read_text()


@contextmanager
def writing(bootstrap: str, topic: str) -> Iterator[list[Any]]:
    """A producer of librdkafka that goes on until the end, and then has had all of its records acknowledged."""
    producer, done = Producer({"bootstrap.servers": bootstrap, "acks": "all"}), threading.Event()
    delivered: list[Any] = []

    def write() -> None:
        while not done.wait(0.01):
            producer.produce(topic, b"old", on_delivery=lambda error, message: delivered.append(error))
            producer.poll(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield delivered
    finally:
        done.set()
        thread.join(WAIT_S)
        left = producer.flush(WAIT_S)
    assert left == 0
    assert set(delivered) == {None}


def test_clients_log_in_on_listeners_that_come_while_those_on_the_old_ones_go_on(
    make_broker: MakeBroker, topic_name: str
) -> None:
    secret = {"password.encoder.secret": "of the brokers"}
    brokers = [make_broker(number, properties=secret) for number in (1, 2)]
    ports = free_ports(2)
    with kbroker.Admin(bootstrap(brokers)) as admin, writing(bootstrap(brokers), topic_name) as delivered:
        for number, broker, port in zip((1, 2), brokers, ports, strict=True):
            own = f"PLAINTEXT://127.0.0.1:{broker.port}"
            more = {
                "sasl.enabled.mechanisms": "PLAIN",  # also for all listeners: one that comes has it, as in Kafka
                "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN} user_alice="{PASSWORD}";',
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
            }
            with socket.create_server(("127.0.0.1", 0)) as taken:
                for wrong, said in ((brokers[-number].port, "live broker"), (taken.getsockname()[1], "port is in use")):
                    with pytest.raises(kbroker.InvalidRequestError, match=said):
                        admin.alter_configs(
                            "broker", number, {**more, "listeners": f"{own},CLIENTS://127.0.0.1:{wrong}"}
                        )
            admin.alter_configs("broker", number, {**more, "listeners": f"{own},CLIENTS://127.0.0.1:{port}"})
            socket.create_connection(("127.0.0.1", port), WAIT_S).close()
        login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "alice"}
        new = ",".join(f"127.0.0.1:{port}" for port in ports)
        with kbroker.Admin(new, **login, sasl_password=PASSWORD) as other:
            until(lambda: {each.port for each in other.describe_cluster().brokers} == set(ports))
        settings = {"bootstrap.servers": new, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        producer = Producer({**settings, "sasl.username": "alice", "sasl.password": PASSWORD, "acks": "all"})
        failures: list[Any] = []
        producer.produce(topic_name, b"new", on_delivery=lambda error, message: failures.append(error))
        assert producer.flush(WAIT_S) == 0
        assert failures == [None]
        for number, port in zip((1, 2), ports, strict=True):
            admin.alter_configs("broker", number, {"listeners": None})
            with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", port), WAIT_S):
                pass
        count = len(delivered)
        until(lambda: len(delivered) > count)
    assert PASSWORD not in "".join(broker.log_file.read_text() for broker in brokers)
