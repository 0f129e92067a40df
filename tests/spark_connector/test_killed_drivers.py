"""A driver that SIGKILL ends around each request that changes something: each row once, and nothing stays open."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.fixtures.brokers import MakeBroker
from tests.fixtures.kafka import JavaBroker
from tests.kbroker.client.topics import create_topic
from tests.spark_connector.test_exactly_once import Query

pytest.importorskip("kbroker.spark_connector.exactly_once")
pytestmark = pytest.mark.timeout(300)
ROOT = Path(__file__).parents[2]
LIMIT_S = 240


CHANGING = {"InitProducerIdRequest", "AddPartitionsToTxnRequest", "ProduceRequest", "EndTxnRequest"}


def kill_drivers_of(bootstrap: str, topic: str, *moments: str) -> Counter[str]:
    """What drivers were killed at; checks what they have written."""
    create_topic(bootstrap, topic, partitions=1)
    command = [sys.executable, "-m", "tests.spark_connector.killed_driver", bootstrap, topic, *moments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr[-5_000:]
    *deaths, batches = done.stdout.splitlines()
    written = [f"{batch:03}-{task}" for batch in range(int(batches)) for task in range(3)]
    assert Query(bootstrap, topic).read() == written
    return Counter(deaths)


@pytest.mark.slow
def test_rows_come_once_at_whatever_request_a_driver_is_killed(broker: BrokerProcess, topic_name: str) -> None:
    deaths = kill_drivers_of(broker.bootstrap, topic_name, "after")
    assert deaths.keys() == {f"after {each}" for each in CHANGING}
    assert deaths["after EndTxnRequest"] >= 5, "the decision, the three tasks' ends, and that it is done"


@pytest.mark.compat
@pytest.mark.parametrize("version", [0, 2])
def test_rows_come_once_before_and_after_each_request_of_either_protocol(
    make_broker: MakeBroker, topic_name: str, version: int
) -> None:
    broker = make_broker(properties={"kbroker.new.cluster.transaction.version": str(version)})
    deaths = kill_drivers_of(broker.bootstrap, topic_name, "before", "after")
    wanted = CHANGING - ({"AddPartitionsToTxnRequest"} if version == 2 else set())
    assert deaths.keys() == {f"{moment} {each}" for moment in ("before", "after") for each in wanted}


@pytest.mark.compat
def test_rows_come_once_on_kafkas_own_broker_too(kafka_broker: JavaBroker, topic_name: str) -> None:
    deaths = kill_drivers_of(kafka_broker.bootstrap, topic_name, "after")
    assert deaths.keys() == {f"after {each}" for each in CHANGING}
