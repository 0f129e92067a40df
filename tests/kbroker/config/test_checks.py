"""Contradicting keys and what the broker refuses to start with."""

import pytest

from kbroker.config.broker_config import read_broker_config
from kbroker.protocol.config_def import ConfigError

MINIMAL = {"zookeeper.connect": "localhost:2181", "broker.id": "1"}


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"broker.id": "-2"}, "broker.id=-2"),
        ({"broker.id": "2000"}, "reserved.broker.max.id"),
        ({"broker.id": "-1", "broker.id.generation.enable": "false"}, "broker.id is missing"),
        ({"zookeeper.connect": ""}, "zookeeper.connect is missing"),
        ({"zookeeper.connect": ":::"}, "zookeeper.connect=::: is not host:port"),
        ({"zookeeper.connect": "a:b"}, "zookeeper.connect=a:b"),
        ({"zookeeper.connect": "a:1,b:70000/kafka"}, "zookeeper.connect=a:1,b:70000/kafka"),
        ({"zookeeper.connect": "/chroot"}, "zookeeper.connect=/chroot"),
        ({"log.dirs": " , "}, "at least one log directory"),
        ({"log.dirs": ""}, "at least one log directory"),
        ({"log.dirs": "/a,/a"}, "twice"),
        ({"listeners": "A://:1"}, "A has no security protocol"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "different name"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "advertised.listeners"),
        ({"metrics.listeners": "HTTPS://127.0.0.1:1"}, "metrics.listeners: HTTPS is not spoken there, HTTP is"),
        ({"metrics.listeners": "9404"}, "configuration metrics.listeners: '9404' is not NAME://host:port"),
        (
            {"listeners": "PLAINTEXT://h:1", "metrics.listeners": "HTTP://h:1"},
            "metrics.listeners=HTTP://h:1: the port is that of one of the listeners",
        ),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "cannot use 0.0.0.0"),
        ({"advertised.listeners": "OTHER://h:1"}, "OTHER is not among"),
        ({"inter.broker.listener.name": "OTHER"}, "inter-broker listener OTHER"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "only one of inter.broker.listener.name",
        ),
        ({"control.plane.listener.name": "PLAINTEXT"}, "must differ"),
        ({"replica.fetch.wait.max.ms": "40000"}, "replica.fetch.wait.max.ms"),
        ({"log.cleaner.dedupe.buffer.size": "100"}, "dedupe"),
        ({"queued.max.request.bytes": "100"}, "queued.max.request.bytes"),
        ({"connections.max.idle.ms": "50"}, "connection.failed.authentication.delay.ms"),
        ({"log.retention.ms": "0"}, "log.retention.ms=0"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "must contain classic"),
        ({"group.consumer.heartbeat.interval.ms": "45000"}, "must be less than group.consumer.session.timeout.ms"),
        ({"max.connections.per.ip.overrides": "a:b"}, "max.connections.per.ip.overrides"),
        ({"max.connections.per.ip.overrides": "127.0.0.1:-1"}, "must not be negative"),
    ],
)
def test_keys_that_contradict_each_other_are_named(properties: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("[", r"\[")) as raised:
        read_broker_config({**MINIMAL, **properties})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("process.roles", "broker"),
        ("zookeeper.metadata.migration.enable", "true"),
        ("remote.log.storage.system.enable", "true"),
        ("authorizer.class.name", "com.example.Mine"),
        ("zookeeper.ssl.crl.enable", "true"),
        ("zookeeper.ssl.ocsp.enable", "true"),
        ("zookeeper.set.acl", "true"),
        ("create.topic.policy.class.name", "a.B"),
        ("alter.config.policy.class.name", "a.B"),
        ("client.quota.callback.class", "a.B"),
        ("principal.builder.class", "a.B"),
        ("listener.name.plaintext.principal.builder.class", "a.B"),
        ("ssl.engine.factory.class", "a.B"),
        ("listener.name.plaintext.ssl.engine.factory.class", "a.B"),
        ("replica.selector.class", "a.B"),
        ("inter.broker.protocol.version", "2.8"),
    ],
)
def test_what_must_not_be_ignored_is_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_broker_config({**MINIMAL, key: value})
    assert key.rpartition(".")[0] in str(raised.value)


def test_nodes_are_protected_only_by_who_logs_in_at_zookeeper() -> None:
    protected = {**MINIMAL, "zookeeper.set.acl": "true"}
    with pytest.raises(ConfigError, match="needs a log-in at ZooKeeper"):
        read_broker_config({**protected, "zookeeper.ssl.keystore.location": "/mine.pem"})  # and no TLS to show it
    read_broker_config({**protected, "kbroker.zookeeper.digest": "kafka:secret"})
    over_tls = {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.keystore.location": "/mine.pem"}
    read_broker_config({**protected, **over_tls})
    with pytest.raises(ConfigError, match="not user:password") as raised:
        read_broker_config({**protected, "kbroker.zookeeper.digest": "secret"})
    assert "secret" not in str(raised.value).replace("not user:password", "")
