"""Administration of delegation tokens (KIP-48): only who has logged in, and not by a token, is served.

    token = admin.create_delegation_token(renewers=["User:scheduler"])
    Consumer(…, security_protocol="SASL_SSL", **token.login)

A broker hears of another's token a moment later: a login with a new one may be refused until then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kbroker.client.cluster import Cluster
from kbroker.client.errors import ConfigurationError, error_for
from kbroker.client.types import DelegationToken
from kbroker.client.values import instance, texts, whole_number
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.security import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)

LEAST = -1
"""A time that the broker chooses: the longest life, the usual renewal, an end at once."""

_REASONS = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "these brokers make no tokens: they have no delegation.token.secret.key",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "there is no such token, or no more",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only a token's owner and its renewers may change it",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "tokens are for those who have logged in, and not by a token",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "a token of somebody else takes CreateTokens on that user",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "the token has ended",
}
"""What the code does not say; the protocol has no text of the broker's here."""


class TokenAdmin:
    """Admin's calls about delegation tokens."""

    cluster: Cluster

    async def create_delegation_token(
        self, *, owner: str | None = None, renewers: Iterable[str] = (), max_lifetime_ms: int = LEAST
    ) -> DelegationToken:
        """Make a token of one's own (or of `owner`, which takes a rule); with -1 it lives as long as brokers allow."""
        renewing = tuple(texts(renewers, "principals"))
        wanted: dict[str, Any] = {}
        if owner is not None:
            wanted["owner_principal_type"], wanted["owner_principal_name"] = _split(owner)
        request = CreateDelegationTokenRequest(
            renewers=[
                CreateDelegationTokenRequest.CreatableRenewers(principal_type=kind, principal_name=name)
                for kind, name in map(_split, renewing)
            ],
            max_lifetime_ms=_period(max_lifetime_ms),
            **wanted,
        )
        answer = await self.cluster.ask(request)
        _check(answer.error_code)
        return DelegationToken(
            token_id=answer.token_id,
            hmac=bytes(answer.hmac),
            owner=f"{answer.principal_type}:{answer.principal_name}",
            requester=_requester(answer),
            renewers=renewing,
            issue_timestamp=answer.issue_timestamp_ms,
            expiry_timestamp=answer.expiry_timestamp_ms,
            max_timestamp=answer.max_timestamp_ms,
        )

    async def renew_delegation_token(self, hmac: bytes, period_ms: int = LEAST) -> int:
        """Let a token live on for a period (-1: the brokers' usual one), and return when it ends now."""
        request = RenewDelegationTokenRequest(hmac=_hmac(hmac), renew_period_ms=_period(period_ms))
        answer = await self.cluster.ask(request)
        _check(answer.error_code)
        return int(answer.expiry_timestamp_ms)

    async def expire_delegation_token(self, hmac: bytes, period_ms: int = LEAST) -> int:
        """Let a token end after a period (-1: at once), and return when that is."""
        request = ExpireDelegationTokenRequest(hmac=_hmac(hmac), expiry_time_period_ms=_period(period_ms))
        answer = await self.cluster.ask(request)
        _check(answer.error_code)
        return int(answer.expiry_timestamp_ms)

    async def describe_delegation_tokens(self, owners: Iterable[str] | None = None) -> list[DelegationToken]:
        """Return the tokens of these principals (None: of all) that one may see: one's own, and those to renew."""
        asked = None
        if owners is not None:
            asked = [
                DescribeDelegationTokenRequest.DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
                for kind, name in map(_split, texts(owners, "principals"))
            ]
        answer = await self.cluster.ask(DescribeDelegationTokenRequest(owners=asked))
        _check(answer.error_code)
        return [
            DelegationToken(
                token_id=each.token_id,
                hmac=bytes(each.hmac),
                owner=f"{each.principal_type}:{each.principal_name}",
                requester=_requester(each),
                renewers=tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in each.renewers),
                issue_timestamp=each.issue_timestamp,
                expiry_timestamp=each.expiry_timestamp,
                max_timestamp=each.max_timestamp,
            )
            for each in answer.tokens
        ]


def _split(principal: str) -> tuple[str, str]:
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name):
        raise ConfigurationError(f"{principal!r} is no principal: one is TYPE:NAME, as User:alice")
    return kind, name


def _requester(said: Any) -> str:
    name = said.token_requester_principal_name
    return f"{said.token_requester_principal_type}:{name}" if name else ""


def _hmac(given: object) -> bytes:
    return bytes(instance("a token's HMAC", bytes, given))


def _period(given: object) -> int:
    return whole_number("a period", given, 64)


def _check(code: ErrorCode) -> None:
    if code is not ErrorCode.NONE:
        raise error_for(code, _REASONS.get(code))
