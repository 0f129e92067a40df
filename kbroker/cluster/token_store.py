"""The delegation tokens of the cluster, kept up to date from ZooKeeper (KIP-48).

    /delegation_token/tokens/<id>   {"version":3,"owner":"User%3Aalice","tokenRequester":"…","renewers":["…"],
                                     "issueTimestamp":ms,"maxTimestamp":ms,"expiryTimestamp":ms,"tokenId":"<id>"}
    /delegation_token/token_changes/token_change_<n>       <id>: read this token anew; it is gone when it is not there

Any broker makes and changes tokens; the controller's removes those that have expired. What a login is checked against
is derived when the token is first used, in a thread: the secret itself is in no file.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import uuid
from collections.abc import Awaitable, Callable, Mapping
from time import time_ns
from typing import TYPE_CHECKING

from kbroker.controller.change_notifications import ChangeNotifications
from kbroker.controller.znode_operations import NodeExists, NoNode, ZooKeeperError
from kbroker.controller.znode_values import UNREADABLE, read_json
from kbroker.controller.znodes import MalformedZnode, desanitize, sanitize
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.security import delegation_tokens
from kbroker.security.delegation_tokens import DelegationToken, TokenSettings, new_token_id, token_credential
from kbroker.security.exchange import Identity
from kbroker.security.scram import KnownUser, ScramCredential

if TYPE_CHECKING:
    from kbroker.config.broker_config import BrokerConfig
    from kbroker.controller.zookeeper import ZooKeeper

log = logging.getLogger(__name__)

TOKENS = "/delegation_token/tokens"
CHANGES = "/delegation_token/token_changes"
CHANGE_PREFIX = f"{CHANGES}/token_change_"
SALT_BYTES = 24


def token_settings(config: BrokerConfig) -> TokenSettings | None:
    """Return the broker's keys for tokens; None where they are off."""
    secret = config.delegation_token_secret_key or config.delegation_token_master_key
    if not secret:
        return None
    return TokenSettings(
        secret,
        config.delegation_token_max_lifetime_ms,
        config.delegation_token_expiry_time_ms,
        config.delegation_token_expiry_check_interval_ms,
    )


class DelegationTokens:
    """All tokens, by their ids and by their secrets."""

    def __init__(self, zookeeper: ZooKeeper, settings: TokenSettings, is_controller: Callable[[], bool]) -> None:
        self.settings = settings
        self._zookeeper = zookeeper
        self._is_controller = is_controller
        self._tokens: dict[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}
        """Secret -> id."""
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read all tokens, follow their changes, remove those that expire."""
        for path in (TOKENS, CHANGES):
            if await self._zookeeper.exists(path) is None:
                try:
                    await self._zookeeper.create_recursive(path, None)
                except NodeExists:
                    continue
        await ChangeNotifications(
            self._zookeeper, CHANGES, lambda data, path: (data or b"").decode(), self._read
        ).watch()
        for token_id in await self._zookeeper.children(TOKENS):
            await self._read(token_id)
        self._task = asyncio.create_task(self._keep_expiring(), name="delegation-tokens")

    async def close(self) -> None:
        """Follow nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self, token_id: str) -> None:
        try:
            data, _ = await self._zookeeper.get(f"{TOKENS}/{token_id}")
            self._take(decode_token(data, token_id))
        except NoNode:
            self._drop(token_id)
        except MalformedZnode as error:
            log.error("delegation token %s is left out: %s", token_id, error)

    def _take(self, token: DelegationToken) -> None:
        self._tokens[token.token_id] = token
        self._ids[self.settings.hmac_of(token.token_id)] = token.token_id

    def _drop(self, token_id: str) -> None:
        self._tokens.pop(token_id, None)
        self._ids.pop(self.settings.hmac_of(token_id), None)
        for key in [each for each in self._credentials if each[0] == token_id]:
            del self._credentials[key]

    # -- what is asked ------------------------------------------------------------------------------------------------

    def all(self) -> list[DelegationToken]:
        """Return all tokens."""
        return list(self._tokens.values())

    async def create(
        self, owner: str, requester: str, renewers: tuple[str, ...], max_lifetime_ms: int, now_ms: int
    ) -> DelegationToken:
        """Make a token."""
        while (token_id := new_token_id(uuid.uuid4().bytes)).startswith("-"):
            pass  # a command line would take it for an option
        token = delegation_tokens.create(self.settings, token_id, owner, requester, renewers, max_lifetime_ms, now_ms)
        await self._zookeeper.create_recursive(f"{TOKENS}/{token_id}", encode_token(token))
        await self._tell(token)
        log.info("delegation token %s made for %s", token_id, owner)
        return token

    async def renew(self, secret: bytes, principal: str, period_ms: int, now_ms: int) -> int:
        """Move a token's expiry, and return it; raises KafkaError."""
        token = delegation_tokens.renew(self.settings, self._with(secret), principal, period_ms, now_ms)
        await self._replace(token)
        return token.expires_at_ms

    async def expire(self, secret: bytes, principal: str, period_ms: int, now_ms: int) -> int:
        """Change a token's expiry, or end it at once; returns when it ends. Raises KafkaError."""
        token = self._with(secret)
        changed = delegation_tokens.expire(token, principal, period_ms, now_ms)
        if changed is None:
            await self._remove(token.token_id)
            return now_ms
        await self._replace(changed)
        return changed.expires_at_ms

    def _with(self, secret: bytes) -> DelegationToken:
        token_id = self._ids.get(secret)
        if token_id is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return self._tokens[token_id]

    def find(self, mechanism: str, token_id: str) -> KnownUser | Awaitable[KnownUser | None] | None:
        """Return whom a login by a token is checked against."""
        token = self._tokens.get(token_id)
        if token is None:
            return None
        credential = self._credentials.get((token_id, mechanism))
        return self._derive(mechanism, token) if credential is None else _known(token, credential)

    async def _derive(self, mechanism: str, token: DelegationToken) -> KnownUser | None:
        secret, salt = self.settings.hmac_of(token.token_id), secrets.token_bytes(SALT_BYTES)
        loop = asyncio.get_running_loop()
        credential = await loop.run_in_executor(None, token_credential, mechanism, secret, salt)
        if token.token_id not in self._tokens:
            return None
        self._credentials[token.token_id, mechanism] = credential
        return _known(self._tokens[token.token_id], credential)

    # -- ZooKeeper ----------------------------------------------------------------------------------------------------

    async def _replace(self, token: DelegationToken) -> None:
        """Raises KafkaError where it is gone meanwhile: what its owner has ended does not come back."""
        try:
            await self._zookeeper.set(f"{TOKENS}/{token.token_id}", encode_token(token))
        except NoNode:
            self._drop(token.token_id)
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND) from None
        await self._tell(token)

    async def _tell(self, token: DelegationToken) -> None:
        self._take(token)
        await self._notify(token.token_id)

    async def _remove(self, token_id: str) -> None:
        with contextlib.suppress(NoNode):
            await self._zookeeper.delete(f"{TOKENS}/{token_id}")
        self._drop(token_id)
        await self._notify(token_id)

    async def _notify(self, token_id: str) -> None:
        await self._zookeeper.create(CHANGE_PREFIX, token_id.encode(), sequential=True)

    async def _keep_expiring(self) -> None:
        """Remove what has expired, as long as this broker is the controller."""
        while True:
            await asyncio.sleep(self.settings.expiry_check_interval_ms / 1000)
            try:
                await self.remove_expired()
            except ZooKeeperError as error:
                log.warning("expired delegation tokens are not removed yet: %s", error)

    async def remove_expired(self) -> None:
        """Remove what has expired, if this broker is the controller."""
        now_ms = time_ns() // 1_000_000
        if self._is_controller():
            for token in [each for each in self._tokens.values() if each.expires_at_ms < now_ms]:
                log.info("delegation token %s of %s has expired", token.token_id, token.owner)
                await self._remove(token.token_id)


def _known(token: DelegationToken, credential: ScramCredential) -> KnownUser:
    name = token.owner.partition(":")[2]
    return KnownUser(credential, Identity(name, is_token=True, expires_at_ms=token.expires_at_ms))


def encode_token(token: DelegationToken) -> bytes:
    """Return the data of the token's znode."""
    value = {
        "version": 3,
        "owner": sanitize(token.owner),
        "tokenRequester": sanitize(token.requester),
        "renewers": [sanitize(renewer) for renewer in token.renewers],
        "issueTimestamp": token.issued_at_ms,
        "maxTimestamp": token.ends_at_ms,
        "expiryTimestamp": token.expires_at_ms,
        "tokenId": token.token_id,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def decode_token(data: bytes | None, token_id: str) -> DelegationToken:
    """Read the data of a token's znode, of versions 1 to 3; raises MalformedZnode."""
    path = f"{TOKENS}/{token_id}"
    try:
        value: Mapping[str, object] = read_json(data)
        renewers = value["renewers"]
        if not isinstance(renewers, list) or value["version"] not in (1, 2, 3):
            raise MalformedZnode(f"{path}: another version than 1 to 3, or no list of renewers")
        return DelegationToken(
            str(value["tokenId"]),
            desanitize(str(value["owner"])),
            desanitize(str(value.get("tokenRequester", value["owner"]))),
            tuple(desanitize(str(renewer)) for renewer in renewers),
            *(int(str(value[name])) for name in ("issueTimestamp", "maxTimestamp", "expiryTimestamp")),
        )
    except UNREADABLE as error:
        raise MalformedZnode(f"{path}: {error!r}") from None
