"""What the broker's parts get of its configuration."""

from __future__ import annotations

import pytest

from kbroker.config.broker_config import read_broker_config, resolve_broker_config
from kbroker.config.shares import controller_settings, open_listeners, settings_of, tls_settings, zookeeper_tls
from kbroker.protocol.config_def import ConfigError
from kbroker.segment.cleaner import LogCleanerSettings
from kbroker.segment.log_manager import LogManagerSettings

MINIMAL = {"broker.id": "1", "zookeeper.connect": "127.0.0.1:2181"}


def test_each_part_gets_its_share_under_its_own_names() -> None:
    config = read_broker_config(
        {
            "broker.id": "1",
            "zookeeper.connect": "127.0.0.1:2181",
            "log.cleaner.threads": "3",
            "num.recovery.threads.per.data.dir": "4",
            "delete.topic.enable": "false",
        }
    )
    assert settings_of(LogCleanerSettings, config).log_cleaner_threads == 3
    assert settings_of(LogManagerSettings, config).num_recovery_threads_per_data_dir == 4
    assert not controller_settings(config).delete_topic_enable


@pytest.mark.parametrize(
    ("listeners", "more", "exposed"),
    [
        ("PLAINTEXT://127.0.0.1:9092", {}, []),
        ("PLAINTEXT://localhost:9092,SSL://[::1]:9093", {}, []),
        ("PLAINTEXT://127.8.9.1:9092", {}, []),
        ("PLAINTEXT://:9092", {}, ["PLAINTEXT://:9092"]),
        ("PLAINTEXT://[::]:9092", {}, ["PLAINTEXT://[::]:9092"]),
        (
            "PLAINTEXT://127.0.0.1:9092,SSL://0.0.0.0:9093,SASL_PLAINTEXT://0.0.0.0:9094,SASL_SSL://b1:9095",
            {},
            ["SSL://0.0.0.0:9093"],
        ),
        ("PLAINTEXT://127.0.0.1:9092,SSL://b1:9093", {"ssl.client.auth": "required"}, []),
        ("PLAINTEXT://127.0.0.1:9092,SSL://b1:9093", {"ssl.client.auth": "requested"}, ["SSL://b1:9093"]),
        ("PLAINTEXT://127.0.0.1:9092,SSL://b1:9093", {"listener.name.ssl.ssl.client.auth": "required"}, []),
    ],
)
def test_listeners_where_strangers_come_in_without_a_login_are_told(
    listeners: str, more: dict[str, str], exposed: list[str]
) -> None:
    assert open_listeners(resolve_broker_config({**MINIMAL, "listeners": listeners, **more})) == exposed


def test_without_its_switch_zookeeper_is_reached_in_clear() -> None:
    assert zookeeper_tls(read_broker_config({**MINIMAL, "zookeeper.ssl.keystore.location": "/nowhere"})) is None


def test_stores_for_zookeeper_are_told_by_their_names_and_named_when_they_are_no_good() -> None:
    over_tls = {**MINIMAL, "zookeeper.ssl.client.enable": "true", "zookeeper.ssl.keystore.password": "secret"}
    for file, problem in (("key.pem", "cannot be read"), ("key.jks", "cannot be read"), ("key.p12", "cannot be read")):
        with pytest.raises(ConfigError, match=f"zookeeper.ssl.client.enable=true: .*{file} {problem}") as raised:
            zookeeper_tls(read_broker_config({**over_tls, "zookeeper.ssl.keystore.location": f"/nowhere/{file}"}))
        assert "secret" not in str(raised.value)


def test_a_listeners_own_key_goes_before_that_of_all() -> None:
    properties = {
        **MINIMAL,
        "ssl.keystore.location": "all.jks",
        "listener.name.plaintext.ssl.keystore.location": "own.jks",
    }
    config = read_broker_config({**properties, "listener.name.plaintext.ssl.enabled.protocols": "TLSv1.3"})
    settings = tls_settings(config, "PLAINTEXT")
    assert settings.key_store.location == "own.jks"
    assert settings.enabled_protocols == ("TLSv1.3",)
    assert settings.checks_hostname


def test_where_clients_log_in_only_the_listeners_own_key_asks_for_certificates() -> None:
    properties = {
        **MINIMAL,
        "listeners": "SASL_SSL://127.0.0.1:9092",
        "security.inter.broker.protocol": "SASL_SSL",
        "ssl.client.auth": "required",
    }
    assert tls_settings(resolve_broker_config(properties), "SASL_SSL").client_auth == "none"
    properties["listener.name.sasl_ssl.ssl.client.auth"] = "requested"
    assert tls_settings(resolve_broker_config(properties), "SASL_SSL").client_auth == "requested"
