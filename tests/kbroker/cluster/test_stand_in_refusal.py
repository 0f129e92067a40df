"""Who may use the stand-in for ZooKeeper, and what the others are told."""

import pytest

from kbroker.cluster.stand_in_refusal import refuse_stand_in
from kbroker.config.broker_config import read_broker_config
from kbroker.protocol.config_def import ConfigError

ALLOWED = "kbroker.allow.stand.in.zookeeper"
GENERAL = {"zookeeper.connect": "zk:2181/kafka", "log.dirs": "/tmp/data", "broker.id": "1"}


@pytest.mark.parametrize("listener", ["127.0.0.1", "localhost", "[::1]", "127.8.9.10"])
def test_a_development_broker_on_loopback_may(listener: str) -> None:
    config = read_broker_config({**GENERAL, "listeners": f"PLAINTEXT://{listener}:9092", ALLOWED: "true"})
    refuse_stand_in(config, is_stand_in=True)


def test_any_broker_may_use_a_real_one() -> None:
    refuse_stand_in(read_broker_config({**GENERAL, "listeners": "PLAINTEXT://10.1.2.3:9092"}), is_stand_in=False)


def test_a_production_configuration_is_refused_with_the_reason() -> None:
    config = read_broker_config({**GENERAL, "listeners": "PLAINTEXT://127.0.0.1:9092"})
    with pytest.raises(ConfigError, match=r"zk:2181/kafka leads to kbroker's stand-in .* tests only.*`kbroker dev`"):
        refuse_stand_in(config, is_stand_in=True)


@pytest.mark.parametrize("listener", ["10.1.2.3", "0.0.0.0", "example.org"])
def test_a_listener_that_others_can_reach_is_refused_with_the_reason(listener: str) -> None:
    listeners = f"PLAINTEXT://127.0.0.1:9091,OUT://{listener}:9092"
    properties = {
        **GENERAL,
        "listeners": listeners,
        "advertised.listeners": "PLAINTEXT://127.0.0.1:9091,OUT://example.org:9092",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        ALLOWED: "true",
    }
    with pytest.raises(ConfigError, match=rf"OUT://{listener}:9092 is not on loopback"):
        refuse_stand_in(read_broker_config(properties), is_stand_in=True)
