"""Overrides over server.properties over defaults, with ZooKeeper's nodes played."""

import logging
import re
import threading
from hashlib import pbkdf2_hmac
from typing import Any

import pytest

from kbroker.config.broker_config import BrokerConfig, read_broker_config
from kbroker.config.description import (
    DEFAULT,
    DYNAMIC_BROKER,
    STATIC_BROKER,
    TOPIC_CONFIG,
    describe_broker,
    describe_topic,
)
from kbroker.config.dynamic_config import DynamicConfig
from kbroker.config.listener_changes import ListenerHost
from kbroker.config.sasl import sasl_listeners
from kbroker.config.shares import tls_settings
from kbroker.controller.znode_operations import ZooKeeperError
from kbroker.protocol.config_def import ConfigError
from kbroker.protocol.errors import KafkaError


class Store:
    """ZooKeeper's configuration nodes."""

    def __init__(self) -> None:
        self.nodes: dict[tuple[str, str], dict[str, str]] = {}

    async def read_config(self, kind: str, entity: str) -> dict[str, str]:
        return dict(self.nodes.get((kind, entity), {}))

    async def watch_config_changes(self, callback: Any) -> None:
        """Nobody tells of anything."""

    async def change_config(self, kind: str, entity: str, change: Any, *, needs_controller: bool = True) -> None:
        assert not needs_controller
        self.nodes[kind, entity] = await change(await self.read_config(kind, entity))

    async def sync(self) -> None:
        """There is one server, which never lags."""

    async def read_configs(self, kind: str, entities: list[str]) -> dict[str, dict[str, str]]:
        return {entity: await self.read_config(kind, entity) for entity in entities}

    async def read_all_configs(self, kind: str) -> dict[str, dict[str, str]]:
        return {entity: config for (each, entity), config in self.nodes.items() if each == kind}


def dynamic(store: Store, **properties: str) -> DynamicConfig:
    given = {key.replace("__", "."): value for key, value in properties.items()}
    config = read_broker_config({"zookeeper.connect": "z:1", "broker.id": "1", **given})
    return DynamicConfig(config, store, 1)  # type: ignore[arg-type]


async def test_a_topics_override_beats_the_brokers_ladder() -> None:
    store = Store()
    store.nodes["topics", "t"] = {"segment.bytes": "5000"}
    store.nodes["brokers", "<default>"] = {"log.segment.bytes": "3000", "log.retention.ms": "9"}
    store.nodes["brokers", "1"] = {"log.segment.bytes": "4000"}
    configs = dynamic(store, log__segment__bytes="2000")
    assert configs.topic_config("t").segment_bytes == 2000
    await configs.load()
    assert configs.topic_config("t").segment_bytes == 5000
    assert configs.topic_config("other").segment_bytes == 4000
    assert configs.topic_config("other").retention_ms == 9


async def test_changes_are_taken_and_told() -> None:
    store = Store()
    configs = dynamic(store)
    told: list[Any] = []
    configs.on_topic_change = told.append
    configs.on_broker_change = lambda before, after: told.append((before.num_io_threads, after.num_io_threads))
    store.nodes["topics", "t"] = {"retention.ms": "7"}
    await configs.refresh("topics", "t")
    store.nodes["brokers", "1"] = {"num.io.threads": "9"}
    await configs.refresh("brokers", "1")
    await configs.refresh("brokers", "2")
    assert told == ["t", (8, 9)]
    assert configs.topic_config("t").retention_ms == 7
    store.nodes.clear()
    await configs.refresh("topics", "t")
    assert configs.topic_config("t").retention_ms == 604_800_000


async def test_what_is_no_longer_valid_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    store.nodes["brokers", "1"] = {"num.io.threads": "many", "broker.rack": "r", "log.segment.bytes": "4000"}
    store.nodes["topics", "t"] = {"retention.ms": "soon", "no.such.key": "1", "segment.ms": "3"}
    configs = dynamic(store)
    await configs.load()
    assert (configs.broker.num_io_threads, configs.broker.broker_rack) == (8, None)
    assert configs.topic_config("t").segment_bytes == 4000
    assert configs.topic_config("t").segment_ms == 3
    assert len(caplog.records) == 4


async def test_topics_without_overrides_share_one_configuration() -> None:
    configs = dynamic(Store())
    assert configs.topic_config("a") is configs.topic_config("b")


@pytest.mark.parametrize(
    ("overrides", "per_broker", "said"),
    [
        ({"broker.id": "2"}, True, "dynamically"),
        ({"ssl.protocol": "TLS"}, False, "broker id must be specified"),
        ({"ssl.keystore.password": "x"}, True, "Stores change by listener"),
        ({"listener.name.clients.ssl.keystore.password": "x"}, False, "broker id must be specified"),
        ({"sasl.jaas.config": "x"}, True, "set by listener"),
        ({"listener.name.plaintext.scram-sha-256.sasl.jaas.config": "x"}, True, "for existing listener PLAINTEXT"),
        ({"listener.name.plaintext.plain.connections.max.reauth.ms": "5"}, True, "for existing listener PLAINTEXT"),
        ({"listener.name.plaintext.ssl.client.auth": "required"}, True, "for existing listener PLAINTEXT"),
        ({"listener.name.clients.scram-sha-256.sasl.jaas.config": "x"}, False, "broker id must be specified"),
        ({"listener.name.clients.ssl.client.auth": "perhaps"}, True, "perhaps"),
        ({"listeners": "PLAINTEXT://:1"}, True, "brokers reach each other through listener PLAINTEXT"),
        ({"listeners": "OTHER://:1"}, True, "OTHER has no security protocol"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:9092"}, True, "a different name"),
        ({"listener.security.protocol.map": "PLAINTEXT:SSL"}, True, "Security protocol cannot be updated"),
        ({"advertised.listeners": "OTHER://h:1"}, True, "OTHER is not among listeners"),
        ({"num.io.threads": "3"}, True, "at least half"),
        ({"num.io.threads": "17"}, True, "double"),
        ({"log.segment.bytes": "1"}, True, "log.segment.bytes"),
        ({"max.connections.per.ip.overrides": "x"}, True, "max.connections.per.ip.overrides"),
    ],
)
def test_a_broker_override_that_cannot_be_is_refused(overrides: dict[str, str], per_broker: bool, said: str) -> None:
    with pytest.raises(KafkaError, match=said):
        dynamic(Store()).check_broker_overrides(overrides, per_broker)


async def test_values_are_described_with_the_place_they_come_from() -> None:
    store = Store()
    store.nodes["brokers", "1"] = {"log.segment.bytes": "4000"}
    configs = dynamic(store, log__retention__hours="5", my__secret="x")
    await configs.load()
    topic = {entry.name: entry for entry in describe_topic(configs, {"segment.ms": "8"})}
    assert (topic["segment.ms"].value, topic["segment.ms"].source) == ("8", TOPIC_CONFIG)
    assert (topic["segment.bytes"].value, topic["segment.bytes"].source) == ("4000", DYNAMIC_BROKER)
    # Kafka looks only at log.retention.ms for the place, though it takes the value of log.retention.hours.
    assert (topic["retention.ms"].value, topic["retention.ms"].source) == ("18000000", DEFAULT)
    assert topic["flush.ms"].source == DEFAULT
    broker = {entry.name: entry for entry in describe_broker(configs)}
    assert (broker["my.secret"].value, broker["my.secret"].is_sensitive) == (None, True)
    assert broker["log.retention.ms"].synonyms == []
    assert [s.source for s in broker["log.retention.hours"].synonyms] == [STATIC_BROKER, DEFAULT]


PASSWORD = "listener.name.ssl.ssl.keystore.password"


async def test_passwords_are_stored_encrypted_and_hold_as_they_were_set(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    configs = dynamic(store, password__encoder__secret="new")
    stored = await configs.encoded({PASSWORD: "hunter2", "num.io.threads": "9"})
    assert stored["num.io.threads"] == "9"
    assert "hunter2" not in stored[PASSWORD]
    store.nodes["brokers", "1"] = {**stored, "listener.name.ssl.ssl.key.password": "not encrypted"}
    await configs.load()
    assert configs.broker.properties[PASSWORD] == "hunter2"
    assert "listener.name.ssl.ssl.key.password" not in configs.broker.properties
    assert "listener.name.ssl.ssl.key.password is left out" in caplog.text
    assert "hunter2" not in caplog.text
    described = {entry.name: entry for entry in describe_broker(configs)}
    assert (described[PASSWORD].value, described[PASSWORD].is_sensitive) == (None, True)


JAAS = "listener.name.clients.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


async def test_a_listener_comes_with_its_users_stays_as_it_is_and_goes() -> None:
    store = Store()
    configs = dynamic(store, password__encoder__secret="new")
    await configs.load()
    wanted = {
        JAAS: f'{MODULE} required user_ann="hunter2";',
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "listeners": "PLAINTEXT://:9092,CLIENTS://:2",
    }
    without = {name: text for name, text in wanted.items() if name != JAAS}
    with pytest.raises(KafkaError, match=f"{re.escape(JAAS)} is missing"):
        configs.check_broker_overrides(without, per_broker=True)
    for some in (1, 2, 3, 4):  # what belongs to a listener may come before it
        part = {name: wanted[name] for name in list(wanted)[:some]}
        configs.check_broker_overrides(part, per_broker=True)
        store.nodes["brokers", "1"] = await configs.encoded(part)
        assert "hunter2" not in store.nodes["brokers", "1"][JAAS]
        await configs.refresh("brokers", "1")
    assert [each.name for each in configs.broker.parsed_listeners] == ["PLAINTEXT", "CLIENTS"]
    assert sasl_listeners(configs.broker)["CLIENTS"]["PLAIN"].passwords == {"ann": "hunter2"}
    assert not configs.waiting
    configs.check_broker_overrides({**wanted, "num.io.threads": "9"}, per_broker=True)
    for changed in ({**wanted, JAAS: f'{MODULE} required user_ann="other";'}, without):
        with pytest.raises(KafkaError, match="for existing listener CLIENTS"):
            configs.check_broker_overrides(changed, per_broker=True)
        store.nodes["brokers", "1"] = await configs.encoded(changed)  # by somebody who does not ask
        await configs.refresh("brokers", "1")
        assert sasl_listeners(configs.broker)["CLIENTS"]["PLAIN"].passwords == {"ann": "hunter2"}
    store.nodes["brokers", "1"] = {"num.io.threads": "9"}
    await configs.refresh("brokers", "1")
    assert [each.name for each in configs.broker.parsed_listeners] == ["PLAINTEXT"]
    assert configs.broker.num_io_threads == 9


class Host(ListenerHost):
    """Notes what it is to do; a port of 13 is taken."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def listeners(self, done: str, config: BrokerConfig) -> None:
        self.done.append(f"{done} {' '.join(each.name for each in config.parsed_listeners)}")
        if done == "prepare" and any(each.port == 13 for each in config.parsed_listeners):
            raise ConfigError("the port is in use")

    async def prepare(self, config: BrokerConfig) -> None:
        self.listeners("prepare", config)

    async def take(self, config: BrokerConfig) -> None:
        self.listeners("take", config)

    async def discard(self) -> None:
        self.done.append("discard")


async def test_listeners_are_prepared_before_a_change_is_written_and_taken_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    configs = dynamic(store, listener__security__protocol__map="PLAINTEXT:PLAINTEXT,MORE:PLAINTEXT")
    host = configs.listeners = Host()
    await configs.load()
    wanted = {"listeners": "PLAINTEXT://:9092,MORE://:2"}
    with pytest.raises(KafkaError, match="in use"):
        async with configs.altering():
            await configs.prepare({"listeners": "PLAINTEXT://:9092,MORE://:13"})
    async with configs.altering():
        await configs.prepare(wanted)
        store.nodes["brokers", "1"] = wanted
        await configs.refresh("brokers", "1")
    prepared = "prepare PLAINTEXT MORE"
    assert host.done == [prepared, "discard", prepared, prepared, "take PLAINTEXT MORE", "discard"]
    store.nodes["brokers", "1"] = {"listeners": "PLAINTEXT://:9092,MORE://:13", "num.io.threads": "9"}
    host.done.clear()
    await configs.refresh("brokers", "1")
    assert host.done == [prepared]
    assert "the listeners stay as they are: the port is in use" in caplog.text
    assert configs.broker.listeners == wanted["listeners"]
    assert configs.broker.num_io_threads == 9, "what else is set there holds"
    assert list(configs.waiting) == ["listeners"]
    configs.check_broker_overrides({**store.nodes["brokers", "1"], "num.io.threads": "10"}, per_broker=True)
    del store.nodes["brokers", "1"]
    await configs.refresh("brokers", "1")
    assert host.done[1:] == ["prepare PLAINTEXT", "take PLAINTEXT"]


async def test_what_zookeeper_does_not_say_in_time_leaves_the_listeners_and_takes_the_rest() -> None:
    class Lost(Host):
        async def prepare(self, config: BrokerConfig) -> None:
            raise ZooKeeperError("connection lost")

    store = Store()
    configs = dynamic(store, listener__security__protocol__map="PLAINTEXT:PLAINTEXT,MORE:PLAINTEXT")
    await configs.load()
    configs.listeners = Lost()
    store.nodes["brokers", "1"] = {"listeners": "PLAINTEXT://:9092,MORE://:2", "num.io.threads": "9"}
    await configs.refresh("brokers", "1")
    assert (configs.broker.listeners, configs.broker.num_io_threads) == ("PLAINTEXT://:9092", 9)


TWO_LISTENERS = {
    "listeners": "PLAINTEXT://:1,CLIENTS://:2",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    JAAS: f'{MODULE} required user_ann="hunter2";',
}


async def test_listeners_in_zookeeper_on_which_nobody_could_log_in_end_the_start() -> None:
    store = Store()
    store.nodes["brokers", "1"] = {name: text for name, text in TWO_LISTENERS.items() if name != JAAS}
    with pytest.raises(ConfigError, match=rf"{re.escape(JAAS)} is missing.*/config/brokers/1: .*listeners"):
        await dynamic(store).load()


async def test_what_protects_a_listener_is_never_left_out_for_a_broker_to_start() -> None:
    handler = "listener.name.clients.oauthbearer.sasl.server.callback.handler.class"
    given = {
        **TWO_LISTENERS,
        "listener.name.clients.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.clients.oauthbearer.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
        ),
    }
    store = Store()
    await dynamic(store, **given).load()
    store.nodes["brokers", "1"] = {handler: "com.example.Validator"}
    with pytest.raises(ConfigError, match=handler):
        await dynamic(store, **given).load()


@pytest.mark.parametrize(
    "bad",
    [
        {"sasl.enabled.mechanisms": "PLAIN,FOO"},
        {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"},  # without users
        {"listener.name.coming.sasl.enabled.mechanisms": "PLAIN,FOO"},
        {"listener.name.coming.scram-sha-256.sasl.jaas.config": "no.such.Module required;"},
        {"principal.builder.class": "org.example.Builder"},
    ],
    ids=lambda bad: next(iter(bad)),
)
async def test_what_would_not_let_a_broker_start_is_refused_and_where_it_is_set_nothing_else_is(
    bad: dict[str, str],
) -> None:
    store = Store()
    secret = {"password.encoder.secret": "new"}
    configs = dynamic(store, **TWO_LISTENERS, **secret)
    await configs.load()
    with pytest.raises(KafkaError):
        configs.check_broker_overrides(bad, per_broker=True)
    store.nodes["brokers", "1"] = await configs.encoded(bad)  # whoever wrote it
    await configs.refresh("brokers", "1")
    configs.check_broker_overrides({**bad, "num.io.threads": "9"}, per_broker=True)
    configs.check_broker_overrides({"num.io.threads": "9"}, per_broker=True)


async def test_listeners_that_others_have_written_do_not_keep_other_keys_from_changing() -> None:
    store = Store()
    configs = dynamic(store)
    await configs.load()
    store.nodes["brokers", "1"] = {"listeners": "PLAINTEXT://:1,OTHER://:2"}
    await configs.refresh("brokers", "1")
    configs.check_broker_overrides({"listeners": "PLAINTEXT://:1,OTHER://:2", "num.io.threads": "9"}, per_broker=True)
    configs.check_broker_overrides({"num.io.threads": "9"}, per_broker=True)
    assert configs.broker.listeners == "PLAINTEXT://:9092"


async def test_no_listener_is_opened_to_everybody_because_nobody_could_log_in_on_it() -> None:
    store = Store()
    store.nodes["brokers", "1"] = {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT"}
    with pytest.raises(ConfigError, match="GSSAPI"):
        await dynamic(store).load()


EXT = {"listeners": "PLAINTEXT://:9092,EXT://:2", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXT:SSL"}
CLIENT_AUTH = "listener.name.ext.ssl.client.auth"
EXT_JAAS = "listener.name.ext.plain.sasl.jaas.config"


async def test_a_listener_comes_with_what_is_set_for_all_listeners_then(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    configs = dynamic(store)
    await configs.load()
    both = {**EXT, "ssl.client.auth": "required"}
    configs.check_broker_overrides(both, per_broker=True)
    store.nodes["brokers", "1"] = both
    with caplog.at_level(logging.INFO):
        await configs.refresh("brokers", "1")
    assert [each.name for each in configs.broker.parsed_listeners] == ["PLAINTEXT", "EXT"]
    assert tls_settings(configs.broker, "EXT").client_auth == "required"
    assert "ssl.client.auth: for listeners to come, and from the next start for those that there are" in caplog.text
    assert not configs.waiting
    store.nodes["brokers", "1"] = {**both, "ssl.client.auth": "perhaps", CLIENT_AUTH: "none"}  # by who does not ask
    await configs.refresh("brokers", "1")
    assert tls_settings(configs.broker, "EXT").client_auth == "required"
    assert sorted(configs.waiting) == [CLIENT_AUTH, "ssl.client.auth"]


EXT_LOGIN = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXT:SASL_PLAINTEXT",
    "listener.name.ext.sasl.enabled.mechanisms": "PLAIN",
}


@pytest.mark.parametrize("bad", [{CLIENT_AUTH: "perhaps"}, {EXT_JAAS: "AAAA", **EXT_LOGIN}], ids=["value", "password"])
async def test_what_is_set_for_a_listener_and_cannot_be_read_keeps_it_closed(
    bad: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    store = Store()
    configs = dynamic(store)
    await configs.load()
    store.nodes["brokers", "1"] = {**EXT, **bad}
    await configs.refresh("brokers", "1")
    name = next(iter(bad))
    assert [each.name for each in configs.broker.parsed_listeners] == ["PLAINTEXT"]
    assert re.search(f"the listeners stay as they are: .*{re.escape(name)}", caplog.text)
    with pytest.raises(ConfigError, match=re.escape(name)):
        await dynamic(store).load()
    store.nodes["brokers", "1"] = bad  # of a listener that there is not
    await dynamic(store).load()


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"ssl.client.auth": "perhaps"}, r"ssl\.client\.auth: Invalid value perhaps"),
        ({"listener.name.ext.ssl.client.auth": "perhaps"}, r"ssl\.client\.auth: Invalid value perhaps"),
        (
            {"listener.name.ext.ssl.truststore.certificates": "AAAA"},
            r"ext\.ssl\.truststore\.certificates cannot be read",
        ),
    ],
)
async def test_a_broker_does_not_start_without_what_protects_its_tls_and_does_without_what_is_not_used(
    bad: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store()
    store.nodes["brokers", "1"] = bad
    (name,) = bad
    with pytest.raises(ConfigError, match=rf"{said}.*ZooKeeper says at /config/brokers/1: {re.escape(name)}\)"):
        await dynamic(store, **EXT).load()
    caplog.clear()
    await dynamic(store).load()
    assert [name in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize(
    ("enabled", "starts"), [("PLAIN", True), ("PLAIN,SCRAM-SHA-256", False)], ids=["not offered", "offered"]
)
async def test_a_password_that_cannot_be_read_ends_the_start_where_its_mechanism_is_offered(
    enabled: str, starts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store()
    name = "listener.name.clients.scram-sha-256.sasl.jaas.config"
    store.nodes["brokers", "1"] = {name: "AAAA"}
    given = {**TWO_LISTENERS, "sasl.enabled.mechanisms": enabled, "password.encoder.secret": "new"}
    configs = dynamic(store, **given)
    if starts:
        await configs.load()
        await configs.refresh("brokers", "1")
    else:
        with pytest.raises(ConfigError, match=re.escape(f"the password {name} cannot be read")):
            await configs.load()
    assert [record.levelname for record in caplog.records if name in record.getMessage()] == ["WARNING"]


TRUSTED, TRUSTED_TYPE = (f"listener.name.ext.ssl.truststore.{name}" for name in ("certificates", "type"))


class Trusting(ListenerHost):
    """Clients of EXT show certificates of ours."""

    def check_change(self, config: BrokerConfig) -> None:
        if tls_settings(config, "EXT").trust_store.certificates is None:
            raise ConfigError("whoever has a certificate of anybody would come in")


UNKNOWN = "listener.name.plaintext.no.such.key"


@pytest.mark.parametrize("name", [UNKNOWN, "listener.name.coming.ssl.client.auth", "ssl.client.auth"])
async def test_what_is_no_default_of_all_brokers_is_refused_as_one_and_left_out_where_it_is_set(name: str) -> None:
    store = Store()
    store.nodes["brokers", "<default>"] = {name: "none", "listener.name.plaintext.max.connections": "7"}
    configs = dynamic(store)
    with pytest.raises(KafkaError, match="broker id must be specified"):
        configs.check_broker_overrides({name: "none"}, per_broker=False)
    configs.check_broker_overrides({"listener.name.plaintext.max.connections": "7"}, per_broker=False)
    await configs.load()
    assert name not in configs.broker.properties
    assert configs.broker.of_listeners("max.connections") == {"PLAINTEXT": 7}
    configs.check_broker_overrides({"num.io.threads": "9"}, per_broker=True)


async def test_what_waits_for_the_next_start_is_described_as_it_is_set() -> None:
    store = Store()
    configs = dynamic(store, password__encoder__secret="new")
    await configs.load()
    mechanisms = "listener.name.clients.sasl.enabled.mechanisms"
    users = f'{MODULE} required user_ann="hunter2";'
    wanted = {mechanisms: "PLAIN", "sasl.enabled.mechanisms": "SCRAM-SHA-256", JAAS: users, UNKNOWN: "x"}
    store.nodes["brokers", "1"] = await configs.encoded(wanted)
    await configs.refresh("brokers", "1")
    described = {entry.name: entry for entry in describe_broker(configs) if entry.source == DYNAMIC_BROKER}
    assert {name: (entry.value, entry.is_sensitive) for name, entry in described.items()} == {
        mechanisms: ("PLAIN", False),
        "sasl.enabled.mechanisms": ("SCRAM-SHA-256", False),
        JAAS: (None, True),
        UNKNOWN: (None, True),
    }
    assert "hunter2" not in str(described)
    assert configs.broker.sasl_enabled_mechanisms == ("GSSAPI",)


async def test_what_zookeeper_may_hold_is_missed_once_it_is_read() -> None:
    given = {
        "listeners": "CLIENTS://:2",
        "inter__broker__listener__name": "CLIENTS",
        "listener__security__protocol__map": "CLIENTS:SASL_PLAINTEXT",
        "sasl__enabled__mechanisms": "PLAIN",
        "sasl__mechanism__inter__broker__protocol": "PLAIN",
    }
    store = Store()
    with pytest.raises(ConfigError, match="is missing"):
        dynamic(store, **given)
    configs = dynamic(store, **given, password__encoder__secret="new")
    with pytest.raises(ConfigError, match="is missing"):
        await configs.load()
    users = f'{MODULE} required username="me" password="hunter2";'
    store.nodes["brokers", "1"] = await configs.encoded({JAAS: users})
    await configs.load()
    assert sasl_listeners(configs.broker)["CLIENTS"]["PLAIN"].options["password"] == "hunter2"


async def test_a_password_that_stays_is_not_encrypted_anew() -> None:
    configs = dynamic(Store(), password__encoder__secret="new")
    stored = await configs.encoded({PASSWORD: "hunter2"})
    other = "listener.name.ssl.ssl.key.password"
    present = {PASSWORD: "hunter2"}
    after = await configs.encoded({PASSWORD: "hunter2", other: "hunter3"}, present, stored)
    assert after[PASSWORD] == stored[PASSWORD]
    assert await configs.decoded(after) == ({PASSWORD: "hunter2", other: "hunter3"}, {})
    assert (await configs.encoded({PASSWORD: "hunter4"}, present, stored))[PASSWORD] != stored[PASSWORD]


async def test_passwords_are_encrypted_and_decrypted_outside_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    where = []

    def noted(*arguments: Any) -> bytes:
        where.append(threading.current_thread())
        return pbkdf2_hmac(*arguments)

    monkeypatch.setattr("hashlib.pbkdf2_hmac", noted)
    store = Store()
    old = await dynamic(store, password__encoder__secret="old").encoded({PASSWORD: "hunter2"})
    store.nodes["brokers", "1"] = old
    configs = dynamic(store, password__encoder__secret="new", password__encoder__old__secret="old")
    await configs.load()
    await configs.refresh("brokers", "1")
    assert configs.broker.properties[PASSWORD] == "hunter2"
    assert len(where) >= 5
    assert threading.main_thread() not in where


async def test_without_a_secret_no_password_is_stored_or_read() -> None:
    store = Store()
    store.nodes["brokers", "1"] = await dynamic(store, password__encoder__secret="new").encoded({PASSWORD: "hunter2"})
    configs = dynamic(store)
    await configs.load()
    assert PASSWORD not in configs.broker.properties
    assert await configs.encoded({"num.io.threads": "9"}) == {"num.io.threads": "9"}
    with pytest.raises(KafkaError, match=r"password\.encoder\.secret"):
        await configs.encoded({PASSWORD: "hunter2"})


async def test_a_new_secret_takes_over_what_the_old_one_encrypted() -> None:
    store = Store()
    other = "listener.name.ssl.ssl.key.password"
    store.nodes["brokers", "1"] = {
        **await dynamic(store, password__encoder__secret="old").encoded({PASSWORD: "hunter2"}),
        **await dynamic(store, password__encoder__secret="new").encoded({other: "hunter3"}),
        "num.io.threads": "9",
    }
    configs = dynamic(store, password__encoder__secret="new", password__encoder__old__secret="old")
    await configs.load()
    assert (configs.broker.properties[PASSWORD], configs.broker.properties[other]) == ("hunter2", "hunter3")
    later = dynamic(store, password__encoder__secret="new")
    await later.load()
    assert later.broker_overrides == {PASSWORD: "hunter2", other: "hunter3", "num.io.threads": "9"}
