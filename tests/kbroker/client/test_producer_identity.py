import asyncio
from typing import Any, cast

import pytest

from kbroker.client.errors import BrokerError
from kbroker.client.producer_identity import LARGEST_EPOCH, UNKNOWN, ProducerIdentity
from kbroker.protocol.errors import ErrorCode
from tests.kbroker.client.played_network import PlayedNetwork


def identity(network: PlayedNetwork) -> ProducerIdentity:
    return ProducerIdentity(cast(Any, network), 0.001, 0.002)


async def test_whoever_can_give_an_id_later_is_asked_again() -> None:
    network = PlayedNetwork([])
    network.id_errors += [OSError("away"), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    asked = identity(network)
    await asked.obtain(lambda error: pytest.fail(str(error)))
    assert (asked.current, network.producer_ids, asked.problem) == ((3, 0), 3, None)


async def test_a_refusal_is_told_at_once_and_says_how_to_do_without() -> None:
    network = PlayedNetwork([])
    network.id_errors.append(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = identity(network)
    refused: list[BrokerError] = []
    async with asyncio.timeout(20):
        await asked.obtain(refused.append)
    assert network.producer_ids == 1
    assert "enable_idempotence=False" in str(refused[0])
    assert asked.is_wanted


def test_the_epoch_is_raised_once_for_all_that_failed_in_it() -> None:
    asked = identity(cast(Any, None))
    asked.current = (7, 3)
    asked.raise_epoch((7, 3))
    asked.raise_epoch((7, 3))
    asked.give_up((7, 3))
    assert asked.current == (7, 4)
    asked.current = (7, LARGEST_EPOCH)
    asked.raise_epoch((7, LARGEST_EPOCH))
    assert asked.current == UNKNOWN
