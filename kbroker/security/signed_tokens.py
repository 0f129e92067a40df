"""OAuth tokens (JWT) that an identity provider has signed: its public keys come as a JWKS (RFC 7517).

Needs joserfc (the extra `security`). Tokens without a signature, and those signed with a shared secret, are refused
whatever the keys are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kbroker.security.oauthbearer import TokenRefused, ValidToken
from kbroker.security.tokens import claims_of, number, parts_of, text

log = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
KEY_TYPES = {"R": "RSA", "P": "RSA", "E": "EC"}
"""First letter of an algorithm -> the type of its keys."""
MISSING = "signed tokens need joserfc: install kbroker[security]"


LONGEST_KEY_ID = 200
"""Of what is remembered of ids that nobody knows: whoever sends them is not logged in."""


class UnknownKey(TokenRefused):
    """Signed with a key that the provider has not published yet: worth asking it again."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"the token is signed with a key that is not known: {key_id[:80]!r}")
        self.key_id = key_id[:LONGEST_KEY_ID]


def read_keys(document: object, before: Iterable[Any] = ()) -> list[Any]:
    """Return the keys of a JWKS that can check signatures; raises ValueError where none is, and ImportError without
    joserfc. One that is not understood is what it was `before` if nothing else has its name, else it is left out.
    """
    try:
        from joserfc.jwk import import_key
    except ImportError as error:
        raise ImportError(MISSING) from error
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError('a JWKS is a JSON object with a list of "keys"')
    known = {key.kid: key for key in before if key.kid is not None}
    keys: list[Any] = []
    unread: list[tuple[object, Exception]] = []
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("kty") not in ("RSA", "EC") or entry.get("use", "sig") != "sig":
            continue
        try:
            keys.append(import_key(entry))
        except Exception as error:  # the library has no end of them: of a curve that it does not know it is KeyError
            unread.append((entry.get("kid"), error))
    for key in keys:  # one that can be read replaces what was there before
        known.pop(key.kid, None)
    for kid, problem in unread:
        kept = known.pop(kid, None) if isinstance(kid, str) else None
        what = "is left out" if kept is None else "is kept as it was before"
        log.warning("a key of the JWKS cannot be read, and %s: kid %.80r: %r", what, kid, problem)
        if kept is not None:
            keys.append(kept)
    if not keys:
        raise ValueError("the JWKS holds no RSA or EC key for signatures" + (f": {unread[-1][1]!r}" if unread else ""))
    return keys


@dataclass(frozen=True, slots=True)
class SignedValidator:
    """What a token has to say, besides being signed; the names are those of sasl.oauthbearer.*."""

    expected_audience: tuple[str, ...] = ()
    expected_issuer: str | None = None
    scope_claim: str = "scope"
    principal_claim: str = "sub"
    skew_s: int = 30

    def validate(self, token: str, keys: list[Any], now_ms: int) -> ValidToken:
        """Return whom the token stands for; raises TokenRefused, UnknownKey among them."""
        header, encoded, signature = parts_of(token)
        self._check_signature(token, header, signature, keys)
        claims = claims_of(encoded)
        now = now_ms / 1000
        expires, issued, begins = (number(claims, name) for name in ("exp", "iat", "nbf"))
        if expires is None or issued is None:
            raise TokenRefused("the token lacks the claim exp or iat")
        if now - self.skew_s >= expires:
            raise TokenRefused("the token has expired")
        if expires < issued:
            raise TokenRefused("the token expires before it was issued")
        if begins is not None and begins > now + self.skew_s:
            raise TokenRefused("the token does not hold yet")
        self._check_audience(claims)
        if self.expected_issuer is not None and claims.get("iss") != self.expected_issuer:
            raise TokenRefused("the token is of another issuer")
        self._check_scope(claims)
        return ValidToken(text(claims, self.principal_claim).strip(), int(expires * 1000))

    @staticmethod
    def _check_signature(token: str, header: Mapping[str, Any], signature: str, keys: list[Any]) -> None:
        from joserfc import jws
        from joserfc.errors import JoseError

        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS or not signature:
            raise TokenRefused(f"the token is not signed with one of {', '.join(ALGORITHMS)}")
        fitting = [key for key in keys if key.key_type == KEY_TYPES[algorithm[0]]]
        if key_id is not None:
            fitting = [key for key in fitting if key.kid == key_id]
            if not fitting:
                raise UnknownKey(str(key_id))
        for key in fitting:
            try:
                jws.deserialize_compact(token, key, algorithms=[algorithm])
            except (JoseError, ValueError, TypeError):
                continue
            return
        raise TokenRefused("the token's signature is wrong")

    def _check_audience(self, claims: Mapping[str, Any]) -> None:
        """A token that is meant for somebody is refused where nobody has said who we are."""
        given = claims.get("aud")
        audience = [given] if isinstance(given, str) else given if isinstance(given, list) else []
        if given is None and not self.expected_audience:
            return
        if not any(isinstance(each, str) and each in self.expected_audience for each in audience):
            raise TokenRefused("the token is meant for another audience")

    def _check_scope(self, claims: Mapping[str, Any]) -> None:
        value = claims.get(self.scope_claim)
        items = value if isinstance(value, list) else [] if value is None else [value]
        names = [item.strip() for item in items if isinstance(item, str)]
        if len(names) < len(items) or not all(names) or len(set(names)) < len(names):
            raise TokenRefused(f"the claim {self.scope_claim} holds what is no scope, a blank one, or one twice")
