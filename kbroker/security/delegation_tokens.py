"""Delegation tokens (KIP-48): what owner, renewers and time allow.

The secret of a token is not stored: it is HMAC-SHA512(delegation.token.secret.key, id). Who has it logs in by SCRAM
with the id as user and its base64 as password, and is the token's owner then.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Set
from dataclasses import dataclass, field, replace

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.security.scram import MINIMUM_ITERATIONS, ScramCredential, credential_of, salted_password


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token without its secret. Principals are texts, `User:alice`; times milliseconds since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_at_ms: int
    ends_at_ms: int
    """Until when it may be renewed."""
    expires_at_ms: int

    def is_of(self, principal: str) -> bool:
        """Whether the principal owns it, or may renew it."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Whether the principal is owner, requester or renewer."""
        return principal == self.requester or self.is_of(principal)

    def concerns_any(self, principals: Set[str]) -> bool:
        """Whether one of the principals is."""
        return not principals.isdisjoint((self.owner, self.requester, *self.renewers))


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """The broker's delegation.token.* keys."""

    secret: str = field(repr=False)
    max_lifetime_ms: int = 604_800_000
    expiry_time_ms: int = 86_400_000
    expiry_check_interval_ms: int = 3_600_000

    def hmac_of(self, token_id: str) -> bytes:
        """Return a token's secret."""
        return hmac.digest(self.secret.encode(), token_id.encode(), "sha512")


def new_token_id(uuid: bytes) -> str:
    """Return the id for a random UUID."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def token_password(secret: bytes) -> str:
    """Return what a client gives as password."""
    return base64.b64encode(secret).decode()


def token_credential(mechanism: str, secret: bytes, salt: bytes) -> ScramCredential:
    """Return what a log-in by the token is checked against; milliseconds of work."""
    salted = salted_password(mechanism, token_password(secret), salt, MINIMUM_ITERATIONS)
    return credential_of(mechanism, salted, salt, MINIMUM_ITERATIONS)


# -- decisions --------------------------------------------------------------------------------------------------------


def create(
    settings: TokenSettings,
    token_id: str,
    owner: str,
    requester: str,
    renewers: tuple[str, ...],
    max_lifetime_ms: int,
    now_ms: int,
) -> DelegationToken:
    """Return a new token; a lifetime of 0 or less asks for the longest there is."""
    lifetime = settings.max_lifetime_ms if max_lifetime_ms <= 0 else min(max_lifetime_ms, settings.max_lifetime_ms)
    ends = now_ms + lifetime
    return DelegationToken(
        token_id, owner, requester, renewers, now_ms, ends, min(ends, now_ms + settings.expiry_time_ms)
    )


def renew(
    settings: TokenSettings, token: DelegationToken, principal: str, period_ms: int, now_ms: int
) -> DelegationToken:
    """Return the token with a later expiry (a negative period: the usual one); raises KafkaError."""
    _check_may_change(token, principal)
    _check_not_over(token, now_ms)
    period = settings.expiry_time_ms if period_ms < 0 else period_ms
    return replace(token, expires_at_ms=min(token.ends_at_ms, now_ms + period))


def expire(token: DelegationToken, principal: str, period_ms: int, now_ms: int) -> DelegationToken | None:
    """Return the token with its new expiry, None when it is to go now (a negative period); raises KafkaError."""
    _check_may_change(token, principal)
    if period_ms < 0:
        return None
    _check_not_over(token, now_ms)
    return replace(token, expires_at_ms=min(token.ends_at_ms, now_ms + period_ms))


def _check_may_change(token: DelegationToken, principal: str) -> None:
    if not token.is_of(principal):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _check_not_over(token: DelegationToken, now_ms: int) -> None:
    if token.ends_at_ms < now_ms or token.expires_at_ms < now_ms:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
