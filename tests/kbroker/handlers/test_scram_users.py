"""Who may log in by SCRAM, on a real broker: what each mistake is answered."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.cluster.scram_users import ScramUsers
from kbroker.handlers.scram_users import describe_user_scram_credentials
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from kbroker.protocol.primitives import LONGEST_STRING
from kbroker.security.exchange import SCRAM_SHA_256
from kbroker.security.scram import credential_of, encode_credential, salted_password
from tests.fixtures.others import Others
from tests.kbroker.asking import Ask

SALT = b"0123456789"
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion


def upsertion(name: str, mechanism: int = 1, iterations: int = 4096) -> Any:
    salted = salted_password(SCRAM_SHA_256, "secret", SALT, 4096)
    return Upsertion(name=name, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=salted)


async def alter(ask: Ask, *changes: Any) -> dict[str, tuple[ErrorCode, str | None]]:
    deletions = [each for each in changes if isinstance(each, Deletion)]
    upsertions = [each for each in changes if isinstance(each, Upsertion)]
    answer = await ask(AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions))
    return {each.user: (each.error_code, each.error_message) for each in answer.results}


async def describe(ask: Ask, *names: str) -> dict[str, Any]:
    users = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in names]
    answer = await ask(DescribeUserScramCredentialsRequest(users=users or None))
    assert answer.error_code is ErrorCode.NONE
    return {
        each.user: [(info.mechanism, info.iterations) for info in each.credential_infos] or each.error_code
        for each in answer.results
    }


async def test_credentials_are_set_shown_changed_and_deleted(ask: Ask, topic_name: str) -> None:
    user = f"{topic_name} ü/=,"
    fine = (ErrorCode.NONE, None)
    assert await alter(ask, upsertion(user), upsertion(user, 2, 5_000)) == {user: fine}
    assert await describe(ask, user) == {user: [(1, 4096), (2, 5_000)]}
    assert (await describe(ask))[user] == [(1, 4096), (2, 5_000)]
    assert await alter(ask, Deletion(name=user, mechanism=2), upsertion(user, 1, 8_192)) == {user: fine}
    assert await describe(ask, user) == {user: [(1, 8_192)]}
    assert await alter(ask, Deletion(name=user, mechanism=1)) == {user: fine}
    assert user not in await describe(ask)


async def test_one_mistake_leaves_all_of_that_user_alone_and_others_go_on(ask: Ask, topic_name: str) -> None:
    good, bad = f"{topic_name}-good", f"{topic_name}-bad"
    answer = await alter(ask, upsertion(bad), upsertion(bad, 2, 4_095), upsertion(good))
    assert answer == {bad: (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"), good: (ErrorCode.NONE, None)}
    assert await describe(ask, bad) == {bad: ErrorCode.RESOURCE_NOT_FOUND}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([upsertion("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion("x", 1, 16_385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsertion("x", 3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([upsertion("x"), upsertion("x")], ErrorCode.DUPLICATE_RESOURCE),
        ([upsertion("x"), Deletion(name="x", mechanism=1)], ErrorCode.DUPLICATE_RESOURCE),
        ([Deletion(name="nobody", mechanism=1)], ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
async def test_each_mistake_has_kafkas_code(ask: Ask, changes: list[Any], code: ErrorCode) -> None:
    ((answer, text),) = (await alter(ask, *changes)).values()
    assert answer is code
    assert text


async def test_whoever_is_asked_for_twice_or_is_unknown_gets_an_error_of_its_own(ask: Ask) -> None:
    assert await describe(ask, "nobody", "", "twice", "twice") == {
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
        "": ErrorCode.RESOURCE_NOT_FOUND,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
    }
    longest = "x" * LONGEST_STRING
    assert await describe(ask, longest, "nobody") == dict.fromkeys((longest, "nobody"), ErrorCode.RESOURCE_NOT_FOUND)


class PlayedZooKeeper:
    """Holds as many users, all with the same credential, and notes how many ask at one time."""

    def __init__(self, many: int) -> None:
        credential = credential_of(SCRAM_SHA_256, salted_password(SCRAM_SHA_256, "secret", SALT, 1), SALT, 1)
        self.text = encode_credential(credential)
        self.entities = [f"u{number}" for number in range(many)]
        self.asking = self.most = 0

    async def config_entities(self, kind: str) -> list[str]:
        return self.entities

    async def read_configs(self, kind: str, entities: list[str]) -> dict[str, dict[str, str]]:
        self.asking += 1
        self.most = max(self.most, self.asking)
        await asyncio.sleep(0)
        self.asking -= 1
        return {each: {SCRAM_SHA_256: self.text} if each in self.entities else {} for each in entities}


@pytest.mark.parametrize("is_all", [True, False])
async def test_others_have_their_turns_while_one_asker_after_the_other_is_told_of_all_users(
    others: Others, short_turns: None, is_all: bool
) -> None:
    many = 100
    zookeeper: Any = PlayedZooKeeper(many)
    services: Any = SimpleNamespace(users=ScramUsers(zookeeper))
    users = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in zookeeper.entities]
    request = DescribeUserScramCredentialsRequest(users=None if is_all else [*users, users[0]])
    ctx: Any = None
    before = others.turns
    answers = await asyncio.gather(*[describe_user_scram_credentials(services, ctx, request) for _ in range(3)])
    assert others.turns - before >= many // 2
    assert zookeeper.most == (1 if is_all else 3)
    for answer in answers:
        assert sorted(each.user for each in answer.results) == sorted(zookeeper.entities)
        assert [each.error_code for each in answer.results].count(ErrorCode.NONE) == (many if is_all else many - 1)
