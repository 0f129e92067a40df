"""DescribeUserScramCredentials and AlterUserScramCredentials: who may log in by SCRAM (KIP-554).

Clients send salt and salted password; what is kept is derived of them, and lets nobody log in elsewhere.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from kbroker.cluster.scram_users import credentials_in
from kbroker.controller.znode_operations import ControllerMoved, ZooKeeperError
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import ALTER, DESCRIBE, controller_first, on_cluster
from kbroker.handlers.registry import handles
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kbroker.replica.turns import Turn, only_waits, portions
from kbroker.security.exchange import SCRAM_SHA_256, SCRAM_SHA_512
from kbroker.security.scram import (
    MINIMUM_ITERATIONS,
    ScramCredential,
    credential_of,
    encode_credential,
)

log = logging.getLogger(__name__)

MECHANISMS = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}
"""As the wire numbers them."""
NUMBERS = {name: number for number, name in MECHANISMS.items()}
LARGEST_ITERATIONS = 16384
NAMES_AT_ONCE = 200
"""Users that are read from ZooKeeper in one go."""
Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


# -- DescribeUserScramCredentials -------------------------------------------------------------------------------------


@handles(DescribeUserScramCredentialsRequest, on_cluster(DESCRIBE), ends_with_connection=True)
async def describe_user_scram_credentials(
    services: Services, ctx: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """List mechanisms and iterations of the users asked for, or of all, as they stand in ZooKeeper now."""
    asked = Counter(each.name for each in request.users or ())
    if asked:
        results = await _describe(services, list(asked), asked)
    else:
        only_waits()  # in a line of its own, so that others who ask for little are not behind it
        async with services.users.telling_of_all:
            results = await _describe(services, await services.users.names(), asked)
        results = [each for each in results if each.credential_infos]
    return DescribeUserScramCredentialsResponse(error_code=ErrorCode.NONE, results=results)


async def _describe(services: Services, names: list[str], asked: Counter[str]) -> list[Described]:
    results, turn = [], Turn()
    for portion in portions(names, NAMES_AT_ONCE):
        configs = await services.users.configurations(portion)
        for name in portion:
            results.append(_described(name, asked[name], credentials_in(name, configs.get(name, {}))))
            await turn.end_if_over()
    return results


def _described(name: str, times: int, credentials: Mapping[str, ScramCredential]) -> Described:
    error = None
    if times > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice: {name}"
        error = KafkaError(ErrorCode.DUPLICATE_RESOURCE, text)
    elif not credentials:
        text = f"Attempt to describe a user credential that does not exist: {name}"
        error = KafkaError(ErrorCode.RESOURCE_NOT_FOUND, text)
    infos = [
        DescribeUserScramCredentialsResponse.CredentialInfo(mechanism=NUMBERS[mechanism], iterations=each.iterations)
        for mechanism, each in sorted(credentials.items())
        if error is None
    ]
    return Described(
        user=name,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        credential_infos=infos,
    )


# -- AlterUserScramCredentials ----------------------------------------------------------------------------------------


@handles(AlterUserScramCredentialsRequest, controller_first, on_cluster(ALTER))
async def alter_user_scram_credentials(
    services: Services, ctx: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Set and delete credentials; what is wrong with one of a user leaves all of that user's alone."""
    changes: dict[str, list[Any]] = {}
    every: list[Any] = [*request.deletions, *request.upsertions]
    for change in every:
        changes.setdefault(change.name, []).append(change)
    results, turn = [], Turn()
    for user, of_user in changes.items():
        error = await _change(services, user, of_user)
        code = ErrorCode.NONE if error is None else error.code
        results.append(Result(user=user, error_code=code, error_message=None if error is None else error.message))
        await turn.end_if_over()
    return AlterUserScramCredentialsResponse(results=results)


async def _change(services: Services, user: str, changes: list[Any]) -> KafkaError | None:
    """Change one user's credentials; returns what is wrong, if anything is."""
    try:
        wanted = {MECHANISMS[change.mechanism]: _wanted(change) for change in _checked(user, changes)}
        await services.users.change(user, wanted)
    except KafkaError as error:
        return error
    except KeyError:
        return KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    except ControllerMoved as error:
        return KafkaError(ErrorCode.NOT_CONTROLLER, str(error))
    except ZooKeeperError as error:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper: {error}")
    log.info("SCRAM credentials of user %s changed: %s", user, ", ".join(wanted))
    return None


def _checked(user: str, changes: list[Any]) -> list[Any]:
    """Return the changes if each of them can be made; raises KafkaError."""
    if not user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    for change in changes:
        if change.mechanism not in MECHANISMS:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        iterations = getattr(change, "iterations", MINIMUM_ITERATIONS)
        if iterations < MINIMUM_ITERATIONS:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if iterations > LARGEST_ITERATIONS:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if len({change.mechanism for change in changes}) < len(changes):
        text = "A user credential cannot be altered twice in the same request"
        raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, text)
    return changes


def _wanted(change: Any) -> str | None:
    """Return the text that is kept of an upsertion, None for a deletion."""
    if isinstance(change, AlterUserScramCredentialsRequest.ScramCredentialDeletion):
        return None
    salted, salt = bytes(change.salted_password), bytes(change.salt)
    return encode_credential(credential_of(MECHANISMS[change.mechanism], salted, salt, change.iterations))
