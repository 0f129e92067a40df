"""What the broker's keys say of SASL."""

from pathlib import Path

import pytest

from kbroker.config.broker_config import BrokerConfig, read_broker_config, resolve_broker_config
from kbroker.config.sasl import inter_broker_login, sasl_listeners
from kbroker.protocol.config_def import ConfigError
from kbroker.security.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE

PREFIX = "listener.name.clients"
BASE = {
    "zookeeper.connect": "z:2181",
    "broker.id": "1",
    "listeners": "CLIENTS://127.0.0.1:1",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "CLIENTS",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    f"{PREFIX}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required username="b" password="hunter2" user_b="hunter2";',
}


def config(**changes: str | None) -> BrokerConfig:
    """`changes`: by the keys' own names; None takes one away."""
    return resolve_broker_config({key: text for key, text in {**BASE, **changes}.items() if text is not None})


def test_users_and_the_brokers_own_name_stand_in_one_entry() -> None:
    listeners = sasl_listeners(config())
    assert listeners["CLIENTS"]["PLAIN"].passwords == {"b": "hunter2"}
    login = inter_broker_login(config(), listeners)
    assert login == {"sasl_mechanism": "PLAIN", "sasl_username": "b", "sasl_password": "hunter2"}
    assert "hunter2" not in repr(listeners)


def test_what_is_said_of_a_listener_goes_before_what_is_said_of_all() -> None:
    given = config(
        **{
            "sasl.enabled.mechanisms": "GSSAPI",
            f"{PREFIX}.sasl.enabled.mechanisms": "PLAIN",
            "connections.max.reauth.ms": "1",
            f"{PREFIX}.plain.connections.max.reauth.ms": "7",
        }
    )
    assert sasl_listeners(given)["CLIENTS"]["PLAIN"].max_reauth_ms == 7


def test_listeners_without_sasl_need_nothing() -> None:
    given = config(**{"listener.security.protocol.map": "CLIENTS:PLAINTEXT", "sasl.enabled.mechanisms": None})
    assert sasl_listeners(given) == {}
    assert inter_broker_login(given, {}) == {}


SIGNED = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler"
BEARER = {
    f"{PREFIX}.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    f"{PREFIX}.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
}


def test_signed_tokens_are_checked_where_kafkas_class_says_so() -> None:
    more = {
        f"{PREFIX}.oauthbearer.sasl.server.callback.handler.class": SIGNED,
        "sasl.oauthbearer.jwks.endpoint.url": "https://idp/keys",
        f"{PREFIX}.oauthbearer.sasl.oauthbearer.expected.audience": "kafka, other",
        f"{PREFIX}.sasl.oauthbearer.sub.claim.name": "user",
    }
    settings = sasl_listeners(config(**BEARER, **more))["CLIENTS"]["OAUTHBEARER"]
    assert settings.unsecured is None
    assert settings.signed is not None
    assert (settings.signed.expected_audience, settings.signed.principal_claim) == (("kafka", "other"), "user")
    assert settings.jwks is not None
    assert (settings.jwks.url, settings.jwks.refresh_ms) == ("https://idp/keys", 3_600_000)
    assert sasl_listeners(config(**BEARER))["CLIENTS"]["OAUTHBEARER"].unsecured is not None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sasl.enabled.mechanisms": None}, "contains GSSAPI .* no Kerberos"),
        ({"sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, "contains GSSAPI"),
        ({"sasl.enabled.mechanisms": "PLAIN,MAGIC"}, "MAGIC: allowed are"),
        ({"sasl.enabled.mechanisms": ""}, "nothing: allowed are"),
        ({f"{PREFIX}.plain.sasl.jaas.config": None}, "plain.sasl.jaas.config is missing"),
        ({f"{PREFIX}.plain.sasl.jaas.config": None, "sasl.jaas.config": "x"}, "plain.sasl.jaas.config is missing"),
        ({f"{PREFIX}.plain.sasl.jaas.config": f"{SCRAM_MODULE} required;"}, "names .*ScramLoginModule"),
        ({f"{PREFIX}.plain.sasl.jaas.config": f"{PLAIN_MODULE} required user_b=7hunter2;"}, "in quotes"),
        ({f"{PREFIX}.plain.sasl.jaas.config": f"{PLAIN_MODULE} required;"}, "no username and password"),
        ({"sasl.mechanism.inter.broker.protocol": None}, "inter.broker.protocol=GSSAPI is not among"),
        ({f"{PREFIX}.plain.sasl.server.callback.handler.class": "a.B"}, "a.B names a Java class"),
        (
            {**BEARER, f"{PREFIX}.oauthbearer.sasl.server.callback.handler.class": SIGNED},
            "jwks.endpoint.url is missing",
        ),
        ({**BEARER, f"{PREFIX}.oauthbearer.sasl.server.callback.handler.class": "a.B"}, "a.B names a Java class"),
        ({**BEARER, "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"}, "unsecuredLoginStringClaim_sub is missing"),
    ],
)
def test_a_broker_does_not_start_with_what_cannot_be(changes: dict[str, str | None], said: str) -> None:
    properties = {key: text for key, text in {**BASE, **changes}.items() if text is not None}
    with pytest.raises(ConfigError, match=said) as caught:
        read_broker_config(properties)
    assert "hunter2" not in str(caught.value)


def test_without_the_key_the_jaas_file_of_kafka_opts_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(f'KafkaServer {{ {PLAIN_MODULE} required user_c="x"; }};\nKafkaClient {{ a.B required; }};')
    monkeypatch.setenv("KAFKA_OPTS", f"-Xmx1g -Djava.security.auth.login.config={file}")
    given = config(**{f"{PREFIX}.plain.sasl.jaas.config": None})
    assert sasl_listeners(given)["CLIENTS"]["PLAIN"].passwords == {"c": "x"}
    file.write_text("KafkaServer {")
    with pytest.raises(ConfigError, match="cannot be read"):
        sasl_listeners(given)


def test_a_broker_may_get_its_token_from_an_endpoint() -> None:
    jaas = f'{OAUTHBEARER_MODULE} required clientId="me" clientSecret="hunter2";'
    more = {
        f"{PREFIX}.oauthbearer.sasl.jaas.config": jaas,
        f"{PREFIX}.oauthbearer.sasl.login.callback.handler.class": SIGNED.replace("Validator", "Login"),
        "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    }
    given = config(**{**BEARER, **more})
    login = inter_broker_login(given, sasl_listeners(given))
    assert login["sasl_oauth_token_provider"].url == "https://idp/token"
    given = config(**{**BEARER, **more, f"{PREFIX}.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;"})
    with pytest.raises(ConfigError, match="needs clientId"):
        inter_broker_login(given, sasl_listeners(given))
