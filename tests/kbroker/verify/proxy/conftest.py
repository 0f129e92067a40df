"""A proxy before the session's broker, and a record with plain clients through it."""

from collections.abc import Iterator

import pytest

from kbroker import Admin
from kbroker.dev.broker_process import BrokerProcess
from kbroker.verify.proxy.injection import Faults


@pytest.fixture
def faults(broker: BrokerProcess) -> Iterator[Faults]:
    with Faults(broker.bootstrap) as faults:
        yield faults


@pytest.fixture
def topic(broker: BrokerProcess, topic_name: str) -> str:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name, partitions=1)
    return topic_name
