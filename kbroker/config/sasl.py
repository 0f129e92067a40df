"""What the broker's keys say of SASL: which mechanisms a listener offers, with which users, and how brokers log in.

    listener.name.<listener>.<mechanism>.sasl.jaas.config=org…ScramLoginModule required username="broker" password="…";

Without that key the JAAS file of `-Djava.security.auth.login.config=FILE` in $KAFKA_OPTS is read, as a JVM would:
context `<listener>.KafkaServer`, else `KafkaServer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbroker.config.broker_config import BROKER_KEYS, BrokerConfig
from kbroker.config.jaas_file import jaas_contexts
from kbroker.protocol.config_def import ConfigError
from kbroker.security import exchange
from kbroker.security.jaas import (
    OAUTHBEARER_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    JaasError,
    LoginModule,
    parse_jaas,
    shown,
)
from kbroker.security.security_protocol import SecurityProtocol
from kbroker.security.signed_tokens import SignedValidator
from kbroker.security.tokens import UnsecuredValidator, unsecured_claims

ENABLED = "sasl.enabled.mechanisms"
JAAS = "sasl.jaas.config"
CALLBACKS = "sasl.server.callback.handler.class"
LOGIN_CALLBACKS = "sasl.login.callback.handler.class"
MODULES = {
    exchange.PLAIN: PLAIN_MODULE,
    exchange.SCRAM_SHA_256: SCRAM_MODULE,
    exchange.SCRAM_SHA_512: SCRAM_MODULE,
    exchange.OAUTHBEARER: OAUTHBEARER_MODULE,
}
_OAUTH = "org.apache.kafka.common.security.oauthbearer."
SIGNED_VALIDATORS = (
    f"{_OAUTH}OAuthBearerValidatorCallbackHandler",
    f"{_OAUTH}secured.OAuthBearerValidatorCallbackHandler",
)
TOKEN_ENDPOINT_LOGINS = (
    f"{_OAUTH}OAuthBearerLoginCallbackHandler",
    f"{_OAUTH}secured.OAuthBearerLoginCallbackHandler",
)


@dataclass(frozen=True, slots=True)
class JwksSettings:
    """Where the keys of signed tokens are, and how often they are read anew."""

    url: str
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


@dataclass(frozen=True, slots=True)
class MechanismSettings:
    """One mechanism of one listener."""

    name: str
    options: Mapping[str, str]
    """Of its JAAS entry; holds passwords."""
    max_reauth_ms: int
    unsecured: UnsecuredValidator | None = None
    """For OAUTHBEARER, either this or the next two."""
    signed: SignedValidator | None = None
    jwks: JwksSettings | None = None

    def __repr__(self) -> str:
        return f"MechanismSettings({self.name})"

    @property
    def passwords(self) -> dict[str, str]:
        """For PLAIN: user -> password."""
        return {
            option.removeprefix("user_"): value for option, value in self.options.items() if option.startswith("user_")
        }


def sasl_listeners(config: BrokerConfig) -> dict[str, dict[str, MechanismSettings]]:
    """Return the mechanisms of each SASL listener; raises ConfigError for what cannot be offered."""
    protocols = config.security_protocols
    names = [each.name for each in config.parsed_listeners]
    return {
        name: {mechanism: _settings(config, name, mechanism) for mechanism in enabled_mechanisms(config, name)}
        for name in names
        if protocols.get(name) in tuple(SecurityProtocol) and SecurityProtocol(protocols[name]).has_sasl
    }


def inter_broker_login(
    config: BrokerConfig, listeners: Mapping[str, Mapping[str, MechanismSettings]]
) -> dict[str, Any]:
    """Return the SASL settings with which this broker logs in at the others; empty where it need not."""
    mechanisms = listeners.get(config.inter_broker_listener)
    if mechanisms is None:
        return {}
    name = config.sasl_mechanism_inter_broker_protocol
    if name not in mechanisms:
        raise ConfigError(
            f"sasl.mechanism.inter.broker.protocol={name} is not among {ENABLED} of listener "
            f"{config.inter_broker_listener}: {', '.join(mechanisms)}"
        )
    options = mechanisms[name].options
    if name == exchange.OAUTHBEARER:
        return {"sasl_mechanism": name, "sasl_oauth_token_provider": _token_provider(config, options)}
    if not options.get("username") or not options.get("password"):
        raise ConfigError(
            f"{_jaas_key(config.inter_broker_listener, name)} has no username and password: this broker needs them to "
            "log in at the others"
        )
    return {"sasl_mechanism": name, "sasl_username": options["username"], "sasl_password": options["password"]}


def value_of(config: BrokerConfig, key: str, listener: str, mechanism: str | None = None) -> Any:
    """Return what holds of a key for a listener: listener.name.<l>.<m>.<key>, listener.name.<l>.<key>, <key>."""
    prefix = f"listener.name.{listener.lower()}."
    for name in (f"{prefix}{mechanism.lower()}.{key}" if mechanism else None, prefix + key):
        if name is not None and name in config.properties:
            return BROKER_KEYS[key].parse(config.properties[name])
    return getattr(config, BROKER_KEYS[key].field)


def _own(config: BrokerConfig, key: str, listener: str, mechanism: str) -> str | None:
    """What is set for this mechanism of this listener; the plain key does not count."""
    return config.properties.get(f"listener.name.{listener.lower()}.{mechanism.lower()}.{key}")


def _jaas_key(listener: str, mechanism: str) -> str:
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS}"


def enabled_mechanisms(config: BrokerConfig, listener: str) -> list[str]:
    """Return those that a listener offers; raises ConfigError for what cannot be offered."""
    return _offered(value_of(config, ENABLED, listener), listener)


def believes_any_token(config: BrokerConfig, listener: str) -> bool:
    """Whether a listener takes tokens that nobody has signed."""
    enabled = value_of(config, ENABLED, listener)
    return exchange.OAUTHBEARER in enabled and not _own(config, CALLBACKS, listener, exchange.OAUTHBEARER)


def check_of_any_listener(name: str, text: str) -> None:
    """Raise ConfigError for a value of `sasl_listeners`' keys with which none could be made, whatever else is set."""
    if name == ENABLED or (name.startswith("listener.name.") and name.endswith(f".{ENABLED}")):
        _offered(BROKER_KEYS[ENABLED].parse(text), name.split(".")[2] if name != ENABLED else "<name>")
    elif name.startswith("listener.name.") and name.endswith(f".{JAAS}"):
        mechanism = name.removesuffix(f".{JAAS}").split(".", 3)[-1].upper()
        if mechanism in MODULES:
            _entry(name, text, mechanism)


def _offered(given_names: Sequence[str], listener: str) -> list[str]:
    enabled = [name for name in given_names if name]
    if exchange.GSSAPI in enabled:
        raise ConfigError(
            f"listener {listener}: {ENABLED} contains GSSAPI (it does when it is not set), but there is no Kerberos "
            f"here: set listener.name.{listener.lower()}.{ENABLED} to some of {', '.join(exchange.MECHANISMS)}"
        )
    unknown = [name for name in enabled if name not in exchange.MECHANISMS]
    if unknown or not enabled:
        given = ", ".join(unknown) or "nothing"
        raise ConfigError(f"listener {listener}: {ENABLED} holds {given}: allowed are {', '.join(exchange.MECHANISMS)}")
    return enabled


def _settings(config: BrokerConfig, listener: str, mechanism: str) -> MechanismSettings:
    options = _module(config, listener, mechanism).options
    max_reauth_ms = value_of(config, "connections.max.reauth.ms", listener, mechanism)
    callbacks = _own(config, CALLBACKS, listener, mechanism)
    if mechanism != exchange.OAUTHBEARER:
        if callbacks:
            raise ConfigError(f"listener {listener}: {CALLBACKS}={callbacks} names a Java class, unknown here")
        return MechanismSettings(mechanism, options, max_reauth_ms)
    if not callbacks:
        try:
            return MechanismSettings(mechanism, options, max_reauth_ms, UnsecuredValidator.of(options))
        except ValueError as error:
            raise ConfigError(f"{_jaas_key(listener, mechanism)}: {error}") from None
    if callbacks not in SIGNED_VALIDATORS:
        raise ConfigError(f"listener {listener}: {CALLBACKS}={callbacks} names a Java class, unknown here")

    signed, jwks = _signed_tokens(config, listener, mechanism)
    return MechanismSettings(mechanism, options, max_reauth_ms, signed=signed, jwks=jwks)


def _signed_tokens(config: BrokerConfig, listener: str, mechanism: str) -> tuple[SignedValidator, JwksSettings]:
    def value(key: str) -> Any:
        return value_of(config, key, listener, mechanism)

    url = value("sasl.oauthbearer.jwks.endpoint.url")
    if not url:
        raise ConfigError(f"listener {listener}: sasl.oauthbearer.jwks.endpoint.url is missing: where the keys are")
    signed = SignedValidator(
        tuple(value("sasl.oauthbearer.expected.audience") or ()),
        value("sasl.oauthbearer.expected.issuer") or None,
        value("sasl.oauthbearer.scope.claim.name"),
        value("sasl.oauthbearer.sub.claim.name"),
        value("sasl.oauthbearer.clock.skew.seconds"),
    )
    jwks = JwksSettings(
        url,
        value("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        value("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        value("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
    )
    return signed, jwks


def _module(config: BrokerConfig, listener: str, mechanism: str) -> LoginModule:
    key = _jaas_key(listener, mechanism)
    given = _own(config, JAAS, listener, mechanism)
    if given is not None:
        return _entry(key, given, mechanism)
    try:
        module = _from_file(listener, mechanism)
    except JaasError as error:
        raise ConfigError(str(error)) from None
    if module is None:
        raise ConfigError(f"{key} is missing: it says who may log in with {mechanism}, or as whom this broker does")
    return module


def _entry(key: str, text: str, mechanism: str) -> LoginModule:
    try:
        module = parse_jaas(text)
    except JaasError as error:
        raise ConfigError(f"{key}: {error}") from None
    if module.name != MODULES[mechanism]:
        raise ConfigError(f"{key} names {shown(module.name)}: {mechanism} is {MODULES[mechanism]}'s")
    return module


def _from_file(listener: str, mechanism: str) -> LoginModule | None:
    """Return the entry in the JAAS file, if there is one."""
    contexts = jaas_contexts()
    entries = contexts.get(f"{listener.lower()}.KafkaServer") or contexts.get("KafkaServer") or []
    return next((module for module in entries if module.name == MODULES[mechanism]), None)


def _token_provider(config: BrokerConfig, options: Mapping[str, str]) -> Any:
    """Return what makes the tokens that this broker shows to the others."""
    from kbroker.client.token_endpoint import TokenEndpoint, UnsecuredTokens

    listener = config.inter_broker_listener
    key = _jaas_key(listener, exchange.OAUTHBEARER)
    handler = _own(config, LOGIN_CALLBACKS, listener, exchange.OAUTHBEARER)
    if handler in TOKEN_ENDPOINT_LOGINS:
        url = value_of(config, "sasl.oauthbearer.token.endpoint.url", listener, exchange.OAUTHBEARER)
        if not url or not options.get("clientId") or not options.get("clientSecret"):
            raise ConfigError(f"{key} needs clientId and clientSecret, and sasl.oauthbearer.token.endpoint.url be set")
        return TokenEndpoint(url, options["clientId"], options["clientSecret"], options.get("scope"))
    if handler:
        raise ConfigError(f"listener {listener}: {LOGIN_CALLBACKS}={handler} names a Java class, unknown here")
    try:
        if unsecured_claims(options, 0) is None:
            raise ValueError("unsecuredLoginStringClaim_sub is missing: it names as whom this broker logs in")
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from None
    return UnsecuredTokens(options)
