"""Administration of users who log in by SCRAM (KIP-554): the password never leaves this process."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from typing import Any

from kbroker.client.cluster import Cluster
from kbroker.client.errors import ConfigurationError, error_for
from kbroker.client.values import text, texts, whole_number
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.security import AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest
from kbroker.security.exchange import SCRAM_SHA_256, SCRAM_SHA_512
from kbroker.security.scram import MINIMUM_ITERATIONS, salted_password

NUMBERS = {SCRAM_SHA_256: 1, SCRAM_SHA_512: 2}
"""Mechanisms as the wire numbers them."""
NAMES = {number: name for name, number in NUMBERS.items()}
SALT_BYTES = 24


class UserAdmin:
    """Admin's calls about users."""

    cluster: Cluster

    async def describe_users(self, users: Iterable[str] | None = None) -> dict[str, dict[str, int]]:
        """Return mechanism -> iterations of each user (None: of all); raises for one that has no credential."""
        of = DescribeUserScramCredentialsRequest
        asked = None if users is None else [of.UserName(name=name) for name in texts(users, "users")]
        if asked == []:
            return {}
        answer = await self.cluster.ask(of(users=asked))
        if answer.error_code is not ErrorCode.NONE:
            raise error_for(answer.error_code, answer.error_message)
        found = {}
        for item in answer.results:
            if item.error_code is not ErrorCode.NONE:
                raise error_for(item.error_code, f"user {item.user}: {item.error_message or 'refused'}")
            found[item.user] = {NAMES[info.mechanism]: info.iterations for info in item.credential_infos}
        return found

    async def set_user(
        self,
        user: str,
        password: str,
        *,
        mechanisms: Iterable[str] = (SCRAM_SHA_256, SCRAM_SHA_512),
        iterations: int = MINIMUM_ITERATIONS,
    ) -> None:
        """Let a user log in with this password from now on, and with no other."""
        text("a user", user)
        text("a password", "*" if isinstance(password, str) else type(password))
        whole_number("iterations", iterations)
        loop = asyncio.get_running_loop()
        upsertions = []
        for mechanism in _mechanisms(mechanisms):
            salt = secrets.token_bytes(SALT_BYTES)
            salted = await loop.run_in_executor(None, salted_password, mechanism, password, salt, iterations)
            upsertions.append(
                AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                    name=user,
                    mechanism=NUMBERS[mechanism],
                    iterations=iterations,
                    salt=salt,
                    salted_password=salted,
                )
            )
        await self._alter(AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions))

    async def delete_user(self, user: str, *, mechanisms: Iterable[str] | None = None) -> None:
        """Take a user's credentials away (None: all that there are)."""
        names = list((await self.describe_users([user]))[user]) if mechanisms is None else _mechanisms(mechanisms)
        deletions = [
            AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=user, mechanism=NUMBERS[name])
            for name in names
        ]
        await self._alter(AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[]))

    async def _alter(self, request: Any) -> None:
        """Have the controller do it, whichever broker that is by now."""
        answer: Any = None
        async for attempt in self.cluster.attempts(self.cluster.config.request_timeout_ms):
            if attempt:
                await self.cluster.refresh()
            answer = await self.cluster.ask(request, await self.cluster.controller())
            if all(each.error_code is not ErrorCode.NOT_CONTROLLER for each in answer.results):
                break
        for item in answer.results:
            if item.error_code is not ErrorCode.NONE:
                raise error_for(item.error_code, f"user {item.user}: {item.error_message or 'refused'}")


def _mechanisms(names: Iterable[str]) -> list[str]:
    for name in (wanted := texts(names, "mechanisms")):
        if name not in NUMBERS:
            raise ConfigurationError(f"a mechanism is one of {', '.join(NUMBERS)}, not {name!r}")
    return wanted
