"""Brokers whose listeners speak TLS, among each other too, and clients of all kinds."""

import asyncio
import contextlib
import socket
import ssl
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from cryptography import x509
from kazoo.client import KazooClient

import kbroker
from kbroker.client.plain_cluster import PlainCluster
from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.free_ports import free_ports
from kbroker.protocol.messages.offsets import EARLIEST
from tests.fixtures.brokers import MakeBroker, kill_and_expire
from tests.fixtures.certificates import PASSWORD, Authority, Identity
from tests.fixtures.java import JavaTool
from tests.fixtures.zookeeper import ZooKeeperAddress
from tests.kbroker.security.store_files import STORE_PASSWORD, jks_files, pkcs12_file

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of its own imports
    import kafka

pytestmark = pytest.mark.slow
ENOUGH_S = 60.0


def store_properties(identity: Identity, authority: Authority) -> dict[str, str]:
    """Of a broker whose stores are files in PEM form."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(identity.file),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
    }


def start_encrypted(
    make_broker: MakeBroker,
    identity: Identity,
    authority: Authority,
    broker_id: int = 1,
    more: Mapping[str, str] | None = None,
) -> BrokerProcess:
    """A broker that speaks nothing but TLS."""
    (port,) = free_ports(1)
    properties = {
        "listeners": f"SSL://127.0.0.1:{port}",
        "security.inter.broker.protocol": "SSL",
        **store_properties(identity, authority),
        **(more or {}),
    }
    return make_broker(broker_id, port=port, properties=properties)


def until(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + ENOUGH_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)


def log_lines(broker: BrokerProcess, text: str) -> list[str]:
    return [line for line in broker.log_file.read_text().splitlines() if text in line]


def tls(authority: Authority, identity: Identity | None = None) -> dict[str, Any]:
    """Settings of our clients."""
    own = {} if identity is None else {"ssl_certfile": str(identity.file)}
    return {"security_protocol": "SSL", "ssl_cafile": str(authority.file), **own}


def test_clients_of_all_kinds_write_and_read_over_tls(
    make_broker: MakeBroker,
    authority: Authority,
    broker_identity: Identity,
    client_identity: Identity,
    topic_name: str,
) -> None:
    broker = start_encrypted(make_broker, broker_identity, authority, more={"ssl.client.auth": "required"})
    settings = tls(authority, client_identity)
    big = b"x" * 700_000
    with kbroker.Producer(broker.bootstrap, **settings) as producer:
        producer.send(topic_name, b"ours").result(ENOUGH_S)
        producer.send(topic_name, big).result(ENOUGH_S)
    theirs = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.file),
        "ssl.certificate.location": str(client_identity.certificate_file),
        "ssl.key.location": str(client_identity.key_file),
    }
    librdkafka = confluent_kafka.Producer(theirs)
    librdkafka.produce(topic_name, b"librdkafka")
    assert librdkafka.flush(ENOUGH_S) == 0
    with kbroker.Consumer(broker.bootstrap, group_id="g", auto_offset_reset="earliest", **settings) as consumer:
        consumer.subscribe([topic_name])
        found: list[Any] = []
        until(lambda: found.extend(each.value for each in consumer.poll(0.2)) or len(found) >= 3, "reading")
        assert found == [b"ours", big, b"librdkafka"]
    with PlainCluster(broker.bootstrap, settings) as cluster:
        assert cluster.offsets([(topic_name, 0)], EARLIEST) == {(topic_name, 0): 0}
    reader = confluent_kafka.Consumer({**theirs, "group.id": "h", "auto.offset.reset": "earliest"})
    with contextlib.closing(reader):
        reader.subscribe([topic_name])
        seen: list[bytes | None] = []

        def read() -> bool:
            message = reader.poll(0.2)
            if message is not None and message.error() is None:
                seen.append(message.value())
            return len(seen) == 3

        until(read, "librdkafka's reading")
        assert seen == [b"ours", big, b"librdkafka"]


def test_what_wants_no_answers_arrives_over_tls_too_though_its_producer_is_closed(
    make_broker: MakeBroker, authority: Authority, broker_identity: Identity, topic_name: str
) -> None:
    broker = start_encrypted(make_broker, broker_identity, authority)
    key, settings = kbroker.TopicPartition(topic_name, 0), tls(authority)
    with kbroker.Admin(broker.bootstrap, **settings) as admin:
        admin.create_topic(topic_name, partitions=1)
        with kbroker.Producer(broker.bootstrap, acks=0, **settings) as producer:
            for _ in range(2000):
                producer.send(topic_name, b"x" * 10_000)
            producer.flush(ENOUGH_S)
        until(lambda: admin.list_offsets([key])[key].offset == 2000, "the arrival of all")


async def test_clients_in_python_of_others_speak_tls(
    make_broker: MakeBroker, authority: Authority, broker_identity: Identity, topic_name: str
) -> None:
    broker = await asyncio.to_thread(start_encrypted, make_broker, broker_identity, authority)

    def with_kafka_python() -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=broker.bootstrap, security_protocol="SSL", ssl_cafile=str(authority.file)
        )
        producer.send(topic_name, b"kafka-python").get(ENOUGH_S)
        producer.close()

    await asyncio.to_thread(with_kafka_python)
    consumer = aiokafka.AIOKafkaConsumer(
        topic_name,
        bootstrap_servers=broker.bootstrap,
        security_protocol="SSL",
        ssl_context=ssl.create_default_context(cafile=str(authority.file)),
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        async with asyncio.timeout(ENOUGH_S):
            assert (await consumer.getone()).value == b"kafka-python"
    finally:
        await consumer.stop()


def test_a_cluster_whose_brokers_reach_each_other_over_tls_replicates(
    make_broker: MakeBroker, authority: Authority, broker_identity: Identity, topic_name: str
) -> None:
    more = {"ssl.client.auth": "required", "offsets.topic.replication.factor": "1"}
    brokers = [start_encrypted(make_broker, broker_identity, authority, number, more) for number in (1, 2, 3)]
    settings = tls(authority, broker_identity)
    bootstrap = ",".join(each.bootstrap for each in brokers)
    with kbroker.Admin(bootstrap, **settings) as admin:
        admin.create_topic(topic_name, partitions=3, replication_factor=3, configs={"min.insync.replicas": "3"})
        with kbroker.Producer(bootstrap, **settings) as producer:
            for number in range(3):
                for _ in range(5):
                    producer.send(topic_name, b"x" * 1000, partition=number).result(ENOUGH_S)
        leaders = {each.leader for each in admin.describe_topics([topic_name])[topic_name].partitions}
        assert len(leaders) > 1
        kill_and_expire(brokers[0])  # whoever is the controller now tells the others over TLS

        def is_led_on() -> bool:
            with contextlib.suppress(kbroker.ClientError):
                described = admin.describe_topics([topic_name])[topic_name].partitions
                return all(each.leader in (2, 3) for each in described)
            return False

        until(is_led_on, "an election")


def test_what_is_no_tls_gets_one_line_and_holds_up_nobody(
    make_broker: MakeBroker, authority: Authority, broker_identity: Identity, topic_name: str
) -> None:
    broker = start_encrypted(make_broker, broker_identity, authority)

    def peer(data: bytes) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", broker.port))
        with contextlib.suppress(OSError):
            sock.sendall(data)
        return sock

    half = [peer(bytes.fromhex("16030100ff010000fb0303")) for _ in range(20)]  # begins, and says no more
    plain = peer(bytes.fromhex("0000001a 0012 0003 00000001 0004 74657374 00 07 6b62726f6b65 02 31 00"))
    until(lambda: log_lines(broker, "it does not speak TLS, but this listener does"), "the line on plain text")
    http = peer(b"GET / HTTP/1.1\r\n\r\n")
    until(lambda: log_lines(broker, "it speaks HTTP"), "the line on HTTP")
    garbage = peer(b"\x16\x03\x01\x3f\xff" + b"\x01\x00\x3f\xfb" + bytes(10_000_000))
    until(lambda: log_lines(broker, f"{garbage.getsockname()[1]} on SSL: TLS handshake failed"), "the line on garbage")
    with kbroker.Producer(broker.bootstrap, **tls(authority)) as producer:
        producer.send(topic_name, b"served").result(ENOUGH_S)
    for sock in (plain, http, garbage, *half):
        sock.close()
    assert len(log_lines(broker, "it does not speak TLS")) == 1
    assert not log_lines(broker, "Traceback")


def test_a_certificate_is_wanted_where_the_listener_says_so_and_names_the_client(
    make_broker: MakeBroker, authority: Authority, broker_identity: Identity, client_identity: Identity, tmp_path: Path
) -> None:
    broker = start_encrypted(make_broker, broker_identity, authority, more={"ssl.client.auth": "required"})
    with (
        pytest.raises(kbroker.LoginFailed, match="certificate required"),
        kbroker.Admin(broker.bootstrap, **tls(authority)) as admin,
    ):
        admin.list_topics()
    stranger = Authority(tmp_path / "others", "others").issue("stranger")
    with pytest.raises(kbroker.ClientError), kbroker.Admin(broker.bootstrap, **tls(authority, stranger)) as admin:
        admin.list_topics()
    until(lambda: log_lines(broker, "client's certificate is refused"), "the line on the certificate")
    with kbroker.Admin(broker.bootstrap, **tls(authority, client_identity)) as admin:
        assert admin.list_topics() is not None


def test_a_password_is_said_under_tls_and_a_broker_logs_in_so_too(
    make_broker: MakeBroker, authority: Authority, broker_identity: Identity, topic_name: str
) -> None:
    (port,) = free_ports(1)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties = {
        "listeners": f"SASL_SSL://127.0.0.1:{port}",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{module} username="admin" password="s1" user_admin="s1";',
        **store_properties(broker_identity, authority),
    }
    broker = make_broker(port=port, properties=properties)
    settings = {**tls(authority), "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "admin"}
    with kbroker.Producer(broker.bootstrap, **settings, sasl_password="s1") as producer:
        producer.send(topic_name, b"let in").result(ENOUGH_S)
    with pytest.raises(kbroker.LoginFailed), kbroker.Admin(broker.bootstrap, **settings, sasl_password="s2") as admin:
        admin.list_topics()


def shown_certificate(broker: BrokerProcess) -> bytes | None:
    """What a client that comes now is shown (DER)."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", broker.port)) as sock, context.wrap_socket(sock) as wrapped:
        return wrapped.getpeercert(binary_form=True)


def test_certificates_are_renewed_without_a_restart_and_strangers_are_refused(
    make_broker: MakeBroker, authority: Authority, broker_identity: Identity, tmp_path: Path
) -> None:
    own = tmp_path / "own.pem"
    own.write_bytes(broker_identity.file.read_bytes())
    broker = start_encrypted(make_broker, broker_identity, authority, more={"ssl.keystore.location": str(own)})
    named_alike = [(x509.NameOID.COMMON_NAME, "broker")]
    second, third = (authority.issue(name, subject=named_alike) for name in ("second", "third"))
    key = "listener.name.ssl.ssl.keystore.location"
    with kbroker.Admin(broker.bootstrap, **tls(authority)) as admin:
        admin.alter_configs("broker", "1", {key: str(second.file)})
        until(lambda: shown_certificate(broker) == der(second), "the second certificate")
        admin.alter_configs("broker", "1", {key: str(own)})
        until(lambda: shown_certificate(broker) == der(broker_identity), "the first certificate again")
        own.write_bytes(third.file.read_bytes())  # the same file has other contents
        assert shown_certificate(broker) == der(broker_identity)
        admin.alter_configs("broker", "1", {key: str(own)})
        until(lambda: shown_certificate(broker) == der(third), "the third certificate")
        with pytest.raises(kbroker.InvalidRequestError, match="distinguished name would change"):
            admin.alter_configs("broker", "1", {key: str(authority.issue("somebody else").file)})
        with pytest.raises(kbroker.InvalidRequestError, match=r"with listener\.name\."):
            admin.alter_configs("broker", "1", {"ssl.keystore.location": str(own)})
        with pytest.raises(kbroker.InvalidRequestError, match=r"listener SSL: ssl\.enabled\.protocols=TLSv9"):
            admin.alter_configs("broker", "1", {key: str(own), "ssl.enabled.protocols": "TLSv9"})
        assert shown_certificate(broker) == der(third)
        admin.alter_configs("broker", "1", {"ssl.client.auth": "required"})  # from the next start for this listener
        admin.alter_configs("broker", "1", {key: str(second.file)})
        until(lambda: shown_certificate(broker) == der(second), "the second certificate again")
        with kbroker.Admin(broker.bootstrap, **tls(authority)) as without_certificate:
            assert without_certificate.describe_cluster().brokers
    broker.stop()
    broker.start().wait_until_ready(ENOUGH_S)
    with pytest.raises(kbroker.KafkaError), kbroker.Admin(broker.bootstrap, **tls(authority)) as refused:
        refused.describe_cluster()


def test_a_new_store_comes_with_its_password_which_nobody_can_read(
    make_broker: MakeBroker,
    authority: Authority,
    broker_identity: Identity,
    tmp_path: Path,
    zookeeper: ZooKeeperAddress,
) -> None:
    broker = start_encrypted(make_broker, broker_identity, authority, more={"password.encoder.secret": "first"})
    second = authority.issue("second", subject=[(x509.NameOID.COMMON_NAME, "broker")])
    own = tmp_path / "encrypted.pem"
    own.write_bytes(second.encrypted_key_file.read_bytes() + second.certificate_file.read_bytes())
    prefix = "listener.name.ssl.ssl"
    changes = {f"{prefix}.keystore.location": str(own), f"{prefix}.key.password": PASSWORD}
    with kbroker.Admin(broker.bootstrap, **tls(authority)) as admin:
        with pytest.raises(kbroker.InvalidRequestError):
            admin.alter_configs("broker", "1", {**changes, f"{prefix}.key.password": "wrong"})
        admin.alter_configs("broker", "1", changes)
        until(lambda: shown_certificate(broker) == der(second), "the second certificate")
        assert PASSWORD not in str(admin.describe_configs("broker", [1]))
    client = KazooClient(zookeeper.connect_string)
    client.start(timeout=ENOUGH_S)
    stored = client.get("/config/brokers/1")[0].decode()
    client.stop()
    client.close()
    assert str(own) in stored
    assert PASSWORD not in stored
    assert broker.stop() is not None
    broker.properties.update({"password.encoder.secret": "second", "password.encoder.old.secret": "first"})
    broker.start().wait_until_ready(ENOUGH_S)
    assert shown_certificate(broker) == der(second)
    assert PASSWORD not in broker.log_file.read_text()


def der(identity: Identity) -> bytes:
    return ssl.PEM_cert_to_DER_cert(identity.certificate_file.read_text())


def test_javas_tools_show_their_stores_to_a_broker_with_javas_stores(
    make_broker: MakeBroker,
    authority: Authority,
    broker_identity: Identity,
    client_identity: Identity,
    topic_name: str,
    java_tool: JavaTool,
    tmp_path: Path,
) -> None:
    """The broker has JKS stores, the tool a PKCS12 one."""
    key, trust = jks_files(tmp_path, broker_identity, authority)
    stores = {
        "ssl.keystore.type": "JKS",
        "ssl.keystore.location": str(key),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": PASSWORD,
        "ssl.truststore.type": "JKS",
        "ssl.truststore.location": str(trust),
        "ssl.truststore.password": STORE_PASSWORD,
        "ssl.client.auth": "required",
    }
    broker = start_encrypted(make_broker, broker_identity, authority, more=stores)
    settings = {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(pkcs12_file(tmp_path, client_identity, authority)),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": STORE_PASSWORD,
        "ssl.truststore.location": str(trust),
        "ssl.truststore.password": STORE_PASSWORD,
    }
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    server = ("--bootstrap-server", broker.bootstrap)
    java_tool(
        "kafka.tools.ConsoleProducer", *server, "--topic", topic_name, "--producer.config", str(file), given="by Java\n"
    )
    with kbroker.Consumer(broker.bootstrap, auto_offset_reset="earliest", **settings_of_ours(settings)) as consumer:
        consumer.assign([(topic_name, 0)])
        found: list[Any] = []
        until(lambda: found.extend(each.value for each in consumer.poll(0.2)) or found, "reading")
    assert found == [b"by Java"]


def settings_of_ours(settings: Mapping[str, str]) -> dict[str, Any]:
    """Java's settings as arguments."""
    return {name.replace(".", "_"): value for name, value in settings.items() if name != "ssl.key.password"}
