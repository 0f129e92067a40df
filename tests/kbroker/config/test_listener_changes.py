"""What a broker's listeners may become while it runs."""

import pytest

from kbroker.config.broker_config import BrokerConfig, resolve_broker_config
from kbroker.config.listener_changes import check_existing, is_of_all_listeners, is_of_listeners
from kbroker.protocol.config_def import ConfigError

CLIENTS = "CLIENTS://:2"


def configuration(listeners: str = f"PLAINTEXT://:1,{CLIENTS}", **more: str) -> BrokerConfig:
    protocols = "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,CONTROL:PLAINTEXT"
    given = {key.replace("__", "."): value for key, value in more.items()}
    return resolve_broker_config({"listeners": listeners, "listener.security.protocol.map": protocols, **given})


@pytest.mark.parametrize(
    ("name", "of_listeners", "of_all"),
    [
        ("listeners", True, False),
        ("advertised.listeners", True, False),
        ("listener.security.protocol.map", True, False),
        ("listener.name.clients.sasl.enabled.mechanisms", True, False),
        ("listener.name.clients.plain.sasl.jaas.config", True, False),
        ("listener.name.clients.plain.connections.max.reauth.ms", True, False),
        ("listener.name.clients.no.such.key", True, False),
        ("listener.name.clients.ssl.client.auth", True, False),
        ("sasl.enabled.mechanisms", False, True),
        ("ssl.client.auth", False, True),
        ("principal.builder.class", False, True),
        ("listener.name.clients.ssl.keystore.location", False, False),
        ("listener.name.clients.ssl.truststore.certificates", False, False),
        ("listener.name.clients.max.connections", False, False),
        ("listener.name.clients.max.connection.creation.rate", False, False),
        ("listener.name.clients.num.network.threads", False, False),
        ("num.io.threads", False, False),
    ],
)
def test_a_key_changes_with_the_listeners_or_by_itself(name: str, of_listeners: bool, of_all: bool) -> None:
    assert (is_of_listeners(name), is_of_all_listeners(name)) == (of_listeners, of_all)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (configuration(listener__name__clients__ssl__client__auth="required"), "for existing listener CLIENTS"),
        (configuration(listener__name__plaintext__no__such__key="1"), "for existing listener PLAINTEXT"),
        (configuration(listener__security__protocol__map="PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT"), "Security protocol"),
        (configuration(f"PLAINTEXT://:3,{CLIENTS}"), "brokers reach each other through listener PLAINTEXT"),
    ],
)
def test_a_listener_that_stays_becomes_no_other(after: BrokerConfig, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_existing(configuration(), after)


def test_the_control_planes_address_stays() -> None:
    key = {"control__plane__listener__name": "CONTROL"}
    before = configuration("PLAINTEXT://:1,CONTROL://:2", **key)
    with pytest.raises(ConfigError, match="through listener CONTROL"):
        check_existing(before, configuration("PLAINTEXT://:1,CONTROL://:3", **key))


@pytest.mark.parametrize(
    "after",
    [
        configuration("PLAINTEXT://:1"),
        configuration("PLAINTEXT://:1,CLIENTS://:7"),
        configuration(f"PLAINTEXT://:1,{CLIENTS},CONTROL://:3", listener__name__control__ssl__client__auth="none"),
        configuration("PLAINTEXT://:1", listener__name__clients__ssl__client__auth="none"),
        configuration(listener__name__clients__max__connections="7"),
        configuration(listener__name__clients__ssl__keystore__location="other"),
        configuration(advertised__listeners="PLAINTEXT://host:9,CLIENTS://host:8"),
        configuration(listener__security__protocol__map="PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,OTHER:SSL"),
    ],
)
def test_a_listener_may_come_go_move_and_have_other_limits_and_stores(after: BrokerConfig) -> None:
    check_existing(configuration(), after)
