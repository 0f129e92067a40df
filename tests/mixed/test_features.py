"""transaction.version where brokers of Kafka 3.9 may join: they do not know it, and end by themselves."""

from __future__ import annotations

import pytest

from kbroker import Admin, Producer
from kbroker.client.errors import BrokerError
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode
from tests.faults.cluster_view import until
from tests.fixtures.kafka import KAFKA, KBROKER
from tests.mixed.cluster import START_TIMEOUT, MixedCluster

pytestmark = [pytest.mark.compat, pytest.mark.timeout(600)]

FEATURE = "transaction.version"
TOPICS = ("t", "__transaction_state")
ALONE = {
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "min.insync.replicas": "1",
    "zookeeper.session.timeout.ms": "6000",
}


def transact(bootstrap: str) -> int:
    """Commit a transaction; returns the producer's epoch after it."""
    with Producer(bootstrap, transactional_id="id") as producer, Admin(bootstrap) as admin:
        with producer.transaction():
            for partition in range(3):
                producer.send("t", b"v", partition=partition)
        return admin.describe_transactions(["id"])["id"].producer_epoch


def says(broker: BrokerProcess, text: str) -> bool:
    return text in broker.log_file.read_text()


def test_a_broker_of_kafka_keeps_the_level_down_and_ends_by_itself_where_it_is_raised(
    mixed_cluster: MixedCluster,
) -> None:
    cluster = mixed_cluster
    cluster.properties.update(ALONE)
    cluster.start({1: KBROKER, 2: KAFKA})
    ours = cluster.brokers[1]
    with Admin(ours.bootstrap) as admin:
        for topic in TOPICS:
            admin.create_topic(topic, assignments={0: [1, 2], 1: [2, 1], 2: [1, 2]})
            cluster.until_whole(topic)
        with pytest.raises(BrokerError, match="broker 2") as refused:
            admin.update_feature(FEATURE, 2)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        transact(cluster.bootstrap)

        cluster.brokers[2].stop(START_TIMEOUT)
        for topic in TOPICS:
            cluster.until_led_by_another(topic, 2, cluster.partitions(topic))
        admin.update_feature(FEATURE, 2)
        before = transact(ours.bootstrap)

        joining = cluster.start_broker(2, KAFKA, wait=False)
        until(lambda: not joining.is_running, "Kafka's broker takes part in what it does not know", START_TIMEOUT)
        assert says(joining, FEATURE)
        assert [cluster.state(topic, partition).leader for topic in TOPICS for partition in range(3)] == [1] * 6
        assert transact(ours.bootstrap) > before, "ours goes on meanwhile"

        admin.update_feature(FEATURE, 0, downgrade=True)
        cluster.start_broker(2, KAFKA)
        for topic in TOPICS:
            cluster.until_whole(topic)
            cluster.balance(topic)
        assert {cluster.state(topic, 1).leader for topic in TOPICS} == {2}
        transact(cluster.bootstrap)
        cluster.until_identical("t")
