from typing import Any

import pytest

import kbroker
from kbroker import aio
from kbroker.client.client_config import AdminConfig, ConsumerConfig, ProducerConfig
from kbroker.client.errors import ConfigurationError
from kbroker.client.other_clients import ALIASES, INSTEAD, METHODS
from kbroker.client.settings import settings_of

CONFIGS: list[Any] = [ProducerConfig, ConsumerConfig, AdminConfig]
KNOWN = {each.name for config in CONFIGS for each in settings_of(config)}


@pytest.mark.parametrize("client", METHODS)
def test_every_method_of_javas_client_is_there_blocking_and_not(client: str) -> None:
    for ours in METHODS[client].values():
        for room in (kbroker, aio):
            assert callable(getattr(getattr(room, client), ours, None)), f"{room.__name__}.{client}.{ours}"


def test_settings_are_taken_by_the_names_that_other_clients_give_them() -> None:
    assert set(ALIASES.values()) <= KNOWN
    assert not KNOWN & (ALIASES.keys() | INSTEAD.keys())
    config = ProducerConfig.read(
        {"metadata.broker.list": "a:1", "queue.buffering.max.ms": "7", "request.required.acks": "1"}
    )
    assert (config.bootstrap, config.linger_ms, config.acks) == ("a:1", 7, "1")
    assert ConsumerConfig.read({"bootstrap": "a:1", "fetch.wait.max.ms": 9}).fetch_max_wait_ms == 9


@pytest.mark.parametrize("name", INSTEAD)
def test_of_a_setting_that_only_others_have_the_error_says_what_there_is_instead(name: str) -> None:
    for config in CONFIGS:
        with pytest.raises(ConfigurationError) as refused:
            config.read({"bootstrap": "a:1", name.replace("_", "."): "1"})
        assert INSTEAD[name] in str(refused.value)
