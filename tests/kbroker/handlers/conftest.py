"""`ask`: one request to the session's broker."""

from collections.abc import AsyncIterator

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.asking import Ask, asking


@pytest.fixture
async def ask(broker: BrokerProcess) -> AsyncIterator[Ask]:
    async with asking(broker) as function:
        yield function
