"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken (KIP-48, KIP-373)."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any

from kbroker.cluster.token_store import DelegationTokens
from kbroker.controller.znode_operations import ZooKeeperError
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import inside
from kbroker.handlers.registry import handles
from kbroker.protocol.codec import ElementWriter
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.security import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from kbroker.replica.turns import in_turns
from kbroker.security.acls import ANONYMOUS, AclOperation, AclResource
from kbroker.security.delegation_tokens import DelegationToken
from kbroker.security.security_protocol import SecurityProtocol

USER = "User"
TELLS_REQUESTER = 3
"""From this version on."""
Described = DescribeDelegationTokenResponse.DescribedDelegationToken


def _tokens(services: Services) -> DelegationTokens:
    if services.tokens is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return services.tokens


def _check_may_ask(ctx: RequestContext) -> None:
    """Only who has proved who it is, and not by a token, asks for tokens."""
    connection = ctx.connection
    if (
        connection.security_protocol == SecurityProtocol.PLAINTEXT
        or connection.is_by_token
        or (connection.security_protocol == SecurityProtocol.SSL and ctx.principal == ANONYMOUS)
    ):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _split(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


def _requester(ctx: RequestContext, token: DelegationToken) -> dict[str, Any]:
    """Return who asked for the token, which older versions do not tell."""
    if ctx.api_version < TELLS_REQUESTER:
        return {}
    kind, name = _split(token.requester)
    return {"token_requester_principal_type": kind, "token_requester_principal_name": name}


@handles(CreateDelegationTokenRequest, inside("whoever has logged in makes tokens of its own; for others, in _owner"))
async def create_delegation_token(
    services: Services, ctx: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Make a token that logs in as its owner."""
    owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    if not request.owner_principal_name:
        owner = ctx.principal
    try:
        _check_may_ask(ctx)
        _check_owner(ctx, owner)
        # Whoever logs in by a token is a user of the owner's name, of whatever type that was.
        if not owner.startswith(f"{USER}:") or any(each.principal_type != USER for each in request.renewers):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        tokens = _tokens(services)
        renewers = tuple(f"{each.principal_type}:{each.principal_name}" for each in request.renewers)
        token = await tokens.create(owner, ctx.principal, renewers, request.max_lifetime_ms, ctx.received_at)
    except KafkaError as error:
        return _created(ctx, error.code, DelegationToken("", owner, ctx.principal, (), -1, -1, -1), b"")
    except ZooKeeperError:
        return _created(
            ctx, ErrorCode.UNKNOWN_SERVER_ERROR, DelegationToken("", owner, ctx.principal, (), -1, -1, -1), b""
        )
    return _created(ctx, ErrorCode.NONE, token, tokens.settings.hmac_of(token.token_id))


def _check_owner(ctx: RequestContext, owner: str) -> None:
    if owner != ctx.principal and not ctx.authority.may(AclOperation.CREATE_TOKENS, AclResource.USER, owner):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)


def _created(
    ctx: RequestContext, code: ErrorCode, token: DelegationToken, secret: bytes
) -> CreateDelegationTokenResponse:
    kind, name = _split(token.owner)
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=kind,
        principal_name=name,
        **_requester(ctx, token),
        issue_timestamp_ms=token.issued_at_ms,
        expiry_timestamp_ms=token.expires_at_ms,
        max_timestamp_ms=token.ends_at_ms,
        token_id=token.token_id,
        hmac=secret,
    )


@handles(RenewDelegationTokenRequest, inside("owner and renewers only: the token says who they are"))
async def renew_delegation_token(
    services: Services, ctx: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Let a token live longer."""
    try:
        _check_may_ask(ctx)
        tokens = _tokens(services)
        expiry = await tokens.renew(bytes(request.hmac), ctx.principal, request.renew_period_ms, ctx.received_at)
    except KafkaError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    return RenewDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=expiry)


@handles(ExpireDelegationTokenRequest, inside("owner and renewers only: the token says who they are"))
async def expire_delegation_token(
    services: Services, ctx: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Change when a token ends, or end it."""
    period_ms = request.expiry_time_period_ms
    try:
        _check_may_ask(ctx)
        expiry = await _tokens(services).expire(bytes(request.hmac), ctx.principal, period_ms, ctx.received_at)
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    return ExpireDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=expiry)


@handles(
    DescribeDelegationTokenRequest,
    inside("each token is shown to those it concerns, and to who may see it"),
    ends_with_connection=True,
    asks_for_much=lambda request: True,
)
def describe_delegation_token(
    services: Services, ctx: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse | Awaitable[DescribeDelegationTokenResponse]:
    """List the tokens that the sender may see, of the owners it names or of all."""
    try:
        _check_may_ask(ctx)
        tokens = _tokens(services)
    except KafkaError as error:
        return DescribeDelegationTokenResponse(error_code=error.code, tokens=[])
    return in_turns(_describe(ctx, tokens, request))


def _describe(
    ctx: RequestContext, tokens: DelegationTokens, request: DescribeDelegationTokenRequest
) -> Generator[None, None, DescribeDelegationTokenResponse]:
    """Whoever has logged in may have made as many tokens as they like, and name as many owners."""
    owners: set[str] = set()
    for each in request.owners or ():
        owners.add(f"{each.principal_type}:{each.principal_name}")
        yield
    found = ElementWriter(DescribeDelegationTokenResponse, ctx.api_version)
    for token in tokens.all():
        if (request.owners is None or token.concerns_any(owners)) and _may_see(ctx, token):
            found.append(_described(ctx, token, tokens.settings.hmac_of(token.token_id)))
        yield
    return DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=found.array())


def _may_see(ctx: RequestContext, token: DelegationToken) -> bool:
    return (
        token.concerns(ctx.principal)
        or ctx.authority.could(AclOperation.DESCRIBE, AclResource.DELEGATION_TOKEN, token.token_id)
        or ctx.authority.could(AclOperation.DESCRIBE_TOKENS, AclResource.USER, token.owner)
    )


def _described(ctx: RequestContext, token: DelegationToken, secret: bytes) -> Described:
    kind, name = _split(token.owner)
    renewers = [
        DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer(principal_type=each[0], principal_name=each[1])
        for each in map(_split, token.renewers)
    ]
    return Described(
        principal_type=kind,
        principal_name=name,
        **_requester(ctx, token),
        issue_timestamp=token.issued_at_ms,
        expiry_timestamp=token.expires_at_ms,
        max_timestamp=token.ends_at_ms,
        token_id=token.token_id,
        hmac=secret,
        renewers=renewers,
    )
