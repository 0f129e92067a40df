"""What a client's settings say of SASL."""

import time
from contextlib import nullcontext
from typing import Any

import pytest

from kbroker.client.client_config import ConsumerConfig
from kbroker.client.errors import ConfigurationError
from kbroker.client.login import LEFT_S, Login, login_of
from kbroker.client.security import Security
from kbroker.security.jaas import SCRAM_MODULE
from kbroker.security.tokens import unsecured_token

BY_TOKEN = f'{SCRAM_MODULE} required username="id" password="hunter2" tokenauth="true";'


def test_kafka_pythons_librdkafkas_and_javas_names_say_the_same() -> None:
    common = {"bootstrap.servers": "b:1", "security.protocol": "sasl_plaintext"}
    spellings: list[dict[str, Any]] = [
        {"sasl_mechanism": "scram-sha-256", "sasl_plain_username": "alice", "sasl_plain_password": "hunter2"},
        {"sasl.mechanisms": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": "hunter2"},
        {
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.jaas.config": f'{SCRAM_MODULE} required username="alice" password="hunter2";',
        },
    ]
    for options in spellings:
        config = ConsumerConfig.read({**common, **options})
        assert config.login == Login("SCRAM-SHA-256", "alice", "hunter2")
        assert "hunter2" not in repr(config)
        assert "hunter2" not in repr(config.login)


@pytest.mark.parametrize("told", [True, "true"])
def test_a_delegation_token_is_told_by_a_setting(told: Any) -> None:
    options = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "id", "sasl_password": "hunter2"}
    config = ConsumerConfig.read(
        {"bootstrap": "b:1", "security.protocol": "SASL_SSL", **options, "kafka.sasl.tokenauth": told}
    )
    assert config.login == Login("SCRAM-SHA-256", "id", "hunter2", True)


def test_a_delegation_token_is_told_by_its_option() -> None:
    assert login_of("SCRAM-SHA-512", None, None, BY_TOKEN, None) == Login("SCRAM-SHA-512", "id", "hunter2", True)


def test_a_function_gives_tokens_or_options_describe_them() -> None:
    assert login_of("OAUTHBEARER", None, None, None, lambda: "token").token_provider() == "token"
    jaas = 'a.B required unsecuredLoginStringClaim_sub="alice" extension_traceId="7";'
    login = login_of("OAUTHBEARER", None, None, jaas, None)
    assert login.token_provider().count(".") == 2
    assert login.extensions == {"traceId": "7"}


@pytest.mark.parametrize(("left_s", "serves"), [(600, True), (LEFT_S / 2, False), (None, False)])
def test_while_the_function_for_tokens_is_away_the_last_one_serves_as_long_as_it_is_valid(
    left_s: float | None, serves: bool
) -> None:
    claims = {"sub": "alice"} | ({} if left_s is None else {"exp": time.time() + left_s})
    tokens = [unsecured_token(claims)]

    def provider() -> str:
        if not tokens:
            raise TimeoutError("no answer")
        return tokens.pop()

    login = login_of("OAUTHBEARER", None, None, None, provider)
    first = login.token_provider()
    with nullcontext() if serves else pytest.raises(TimeoutError):
        assert login.token_provider() == first
    tokens.append("the next one")
    assert login.token_provider() == "the next one"
    with pytest.raises(TimeoutError):
        login.token_provider()
    assert first not in repr(login.token_provider)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "sasl_mechanism is missing"),
        ({"sasl_mechanism": "GSSAPI"}, "no Kerberos"),
        ({"sasl_mechanism": "MAGIC"}, "allowed is PLAIN"),
        ({"sasl_mechanism": "PLAIN"}, "sasl_username is missing"),
        ({"sasl_mechanism": "PLAIN", "sasl_username": "a"}, "sasl_password is missing"),
        ({"sasl_mechanism": "PLAIN", "sasl_jaas_config": 'a.B required password="hunter2"'}, "sasl_jaas_config"),
        (
            {"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "hunter2", "sasl_tokenauth": True},
            "tokens log in by SCRAM-SHA-256 or SCRAM-SHA-512, not by PLAIN",
        ),
        ({"sasl_mechanism": "OAUTHBEARER"}, "sasl_oauth_token_provider is missing"),
    ],
)
def test_what_is_missing_or_wrong_is_named_without_its_value(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        Security(security_protocol="SASL_PLAINTEXT", **settings)
    assert "hunter2" not in str(caught.value)


def test_without_sasl_nothing_is_needed() -> None:
    assert not Security(security_protocol="PLAINTEXT").protocol.has_sasl
