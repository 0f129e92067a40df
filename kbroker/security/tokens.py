"""OAuth tokens (JWT, RFC 7519) without a signature: for development, since anybody can make one.

    base64url(header) . base64url(claims) . <signature, empty here>

The checks are those of Kafka's default validator. Tokens that are signed: signed_tokens.py.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbroker.security.oauthbearer import TokenRefused, ValidToken

LONGEST_HEADER = 1 << 15
"""Of what is read before anything is proved; a chain of certificates has some thousand bytes."""


def parts_of(token: str) -> tuple[dict[str, Any], str, str]:
    """Return the header, and claims and signature as they stand; raises TokenRefused."""
    count = token.count(".") + 1
    if count != 3:
        raise TokenRefused(f"a token has three parts, not {count}")
    header, claims, signature = token.split(".")
    if len(header) > LONGEST_HEADER:
        raise TokenRefused(f"the token's header has {len(header)} bytes: {LONGEST_HEADER} are allowed")
    return _object(header, "header"), claims, signature


def claims_of(text: str) -> dict[str, Any]:
    """Read a token's claims, once its signature is right; raises TokenRefused."""
    return _object(text, "claims")


def _object(text: str, name: str) -> dict[str, Any]:
    plain = text.rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        value = json.loads(base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise TokenRefused(f"the token's {name} cannot be read") from None
    if not isinstance(value, dict):
        raise TokenRefused(f"the token's {name} are no JSON object")
    return value


def number(claims: Mapping[str, Any], name: str) -> float | None:
    """Return a claim that is a number of seconds; None when it is not there. Raises TokenRefused."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e15:
        raise TokenRefused(f"the claim {name} is no number")
    return float(value)


def text(claims: Mapping[str, Any], name: str) -> str:
    """Return a claim that is a text and not blank; raises TokenRefused."""
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise TokenRefused(f"the claim {name} is no text, or a blank one")
    return value


@dataclass(frozen=True, slots=True)
class UnsecuredValidator:
    """Checks all but who made the token."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    skew_ms: int = 0

    @classmethod
    def of(cls, options: Mapping[str, str]) -> UnsecuredValidator:
        """Make one of a log-in module's options; raises ValueError."""
        skew = options.get("unsecuredValidatorAllowableClockSkewMs", "0")
        if not skew.isdecimal():
            raise ValueError("unsecuredValidatorAllowableClockSkewMs is a number of milliseconds")
        return cls(
            options.get("unsecuredValidatorPrincipalClaimName") or "sub",
            options.get("unsecuredValidatorScopeClaimName") or "scope",
            tuple(options.get("unsecuredValidatorRequiredScope", "").split()),
            int(skew),
        )

    def validate(self, token: str, now_ms: int) -> ValidToken:
        """Return whom the token stands for; raises TokenRefused."""
        header, encoded, signature = parts_of(token)
        if header.get("alg") != "none" or signature:
            raise TokenRefused("this listener takes tokens without a signature only (alg=none)")
        claims = claims_of(encoded)
        principal = text(claims, self.principal_claim)
        expires = number(claims, "exp")
        if expires is None or now_ms - self.skew_ms >= expires * 1000:
            raise TokenRefused("the token has expired, or says not when it does")
        issued = number(claims, "iat")
        if issued is not None and (issued * 1000 > now_ms + self.skew_ms or issued >= expires):
            raise TokenRefused("the token was issued in the future, or after it expires")
        scope = self._scope(claims)
        if any(item not in scope for item in self.required_scope):
            raise TokenRefused("the token's scope does not hold all that is required", self.required_scope)
        return ValidToken(principal, int(expires * 1000))

    def _scope(self, claims: Mapping[str, Any]) -> Sequence[str]:
        """A text is one item, as in Kafka."""
        value = claims.get(self.scope_claim)
        if value is None:
            return ()
        if isinstance(value, str):
            return (value.strip(),)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        raise TokenRefused(f"the claim {self.scope_claim} is neither a text nor a list of texts")


def unsecured_token(claims: Mapping[str, Any]) -> str:
    """Make a token without a signature."""
    parts = (_encoded({"alg": "none"}), _encoded(claims), "")
    return ".".join(parts)


def _encoded(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).rstrip(b"=").decode()


def unsecured_claims(options: Mapping[str, str], now_ms: int) -> dict[str, Any] | None:
    """Return the claims of a token that log-in options describe (`unsecuredLoginStringClaim_sub`, …).

    None when there are no such options; raises ValueError when they name nobody.
    """
    kinds: dict[str, Callable[[str], Any]] = {
        "unsecuredLoginStringClaim_": str,
        "unsecuredLoginNumberClaim_": float,
        "unsecuredLoginListClaim_": _items,
    }
    claims: dict[str, Any] = {}
    for option, value in options.items():
        for prefix, make in kinds.items():
            if option.startswith(prefix):
                claims[option.removeprefix(prefix)] = make(value)
    if not any(option.startswith("unsecuredLogin") for option in options):
        return None
    if not str(claims.get(options.get("unsecuredLoginPrincipalClaimName", "sub"), "")).strip():
        raise ValueError("unsecuredLoginStringClaim_sub is missing: it names whom the token stands for")
    lifetime = options.get("unsecuredLoginLifetimeSeconds", "3600")
    if not lifetime.isdecimal():
        raise ValueError("unsecuredLoginLifetimeSeconds is a number of seconds")
    now = now_ms / 1000
    return {"iat": now, "exp": now + int(lifetime), **claims}


def _items(value: str) -> list[str]:
    """The first letter says what is between the items."""
    return value[1:].split(value[0]) if value else []
