"""As whom a client logs in: what its settings say of SASL, in kafka-python's words or in Java's."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kbroker.client.errors import ConfigurationError
from kbroker.client.token_endpoint import UnsecuredTokens
from kbroker.security.exchange import GSSAPI, MECHANISMS, OAUTHBEARER
from kbroker.security.jaas import JaasError, LoginModule, parse_jaas
from kbroker.security.oauthbearer import TokenRefused
from kbroker.security.scram import HASHES, TOKEN_AUTHENTICATION
from kbroker.security.tokens import claims_of, number, parts_of

log = logging.getLogger(__name__)

TokenProvider = Callable[[], str]
EXTENSION = "extension_"
"""Before the names of JAAS options that go along with a token."""


LEFT_S = 60.0
"""How long a token must still be valid to log in with it once more: also by the broker's clock, and after the login."""
FINAL = FileNotFoundError, PermissionError
"""What of a provider's OSErrors asking again does not mend: its secret is wrong, its file is not there."""


def _no_token() -> str:
    raise ValueError("sasl_oauth_token_provider is missing")


@dataclass(slots=True, eq=False)
class LastingTokens:
    """A provider's tokens: each login asks for one; while the provider is away, the last one serves until its `exp`."""

    provider: TokenProvider
    _last: str = field(default="", repr=False)

    def __call__(self) -> str:
        """Return a new token, or the last one; raises what the provider does, and TypeError for what is no text."""
        try:
            token = self.provider()
        except OSError as error:
            if isinstance(error, FINAL) or _ends_at(self._last) - time.time() < LEFT_S:
                raise
            log.warning("no new token, logging in with the last one, which is still valid: %s", error)
            return self._last
        if not isinstance(token, str):
            raise TypeError(f"it returned {type(token).__name__}, no text")
        self._last = token
        return token


def _ends_at(token: str) -> float:
    """Return when a token ends, in seconds since 1970; 0 where it does not say so."""
    try:
        return number(claims_of(parts_of(token)[1]), "exp") or 0.0
    except TokenRefused:
        return 0.0


@dataclass(frozen=True, slots=True)
class Login:
    """Mechanism and whatever it needs."""

    mechanism: str
    user: str = ""
    password: str = field(default="", repr=False)
    is_token: bool = False
    """Whether user and password are a delegation token's id and secret."""
    token_provider: TokenProvider = field(default=_no_token, repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


def login_of(
    mechanism: str | None,
    username: str | None,
    password: str | None,
    jaas: str | None,
    token_provider: TokenProvider | None,
    *,
    is_token: bool = False,
) -> Login:
    """Return what the settings say; raises ConfigurationError that names the setting, never its value."""
    offered = ", ".join(MECHANISMS)
    if not mechanism:
        raise ConfigurationError(f"sasl_mechanism is missing: one of {offered}")
    name = mechanism.upper()
    if name == GSSAPI:
        raise ConfigurationError(f"sasl_mechanism='GSSAPI': there is no Kerberos here, only {offered}")
    if name not in MECHANISMS:
        raise ConfigurationError(f"sasl_mechanism={mechanism!r}: allowed is {offered}")
    if is_token and name not in HASHES:
        raise ConfigurationError(f"sasl_tokenauth=True: tokens log in by {' or '.join(HASHES)}, not by {name}")
    options = {} if jaas is None else _module(jaas).options
    if name == OAUTHBEARER:
        return _by_token(options, token_provider)
    user = username or options.get("username")
    secret = password if password is not None else options.get("password")
    for missing, value in (("sasl_username", user), ("sasl_password", secret)):
        if not value:
            raise ConfigurationError(f"{missing} is missing: {name} needs it")
    assert user is not None
    assert secret is not None
    return Login(name, user, secret, is_token or options.get(TOKEN_AUTHENTICATION, "").lower() == "true")


def _module(jaas: str) -> LoginModule:
    try:
        return parse_jaas(jaas)
    except JaasError as error:
        raise ConfigurationError(f"sasl_jaas_config: {error}") from None


def _by_token(options: Mapping[str, str], token_provider: TokenProvider | None) -> Login:
    provider = token_provider
    if provider is None and any(option.startswith("unsecuredLogin") for option in options):
        provider = UnsecuredTokens(options)
    if not callable(provider):
        raise ConfigurationError("sasl_oauth_token_provider is missing: a function that returns a token")
    extensions = {
        option.removeprefix(EXTENSION): value for option, value in options.items() if option.startswith(EXTENSION)
    }
    return Login(OAUTHBEARER, token_provider=LastingTokens(provider), extensions=extensions)
