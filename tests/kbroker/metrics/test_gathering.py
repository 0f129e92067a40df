"""What a broker serves: every panel of the dashboards that people have finds its metrics and their labels."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kbroker import Admin, Consumer, Producer
from kbroker.dev.broker_process import BrokerProcess
from kbroker.metrics.families import FAMILIES
from tests.kbroker.metrics.scraping import Scraped, scrape, scrape_until

PANELS = {
    # Kafka's dashboard of Strimzi, with the labels that its queries filter and group by
    "kafka_server_replicamanager_leadercount": set(),
    "kafka_server_replicamanager_partitioncount": set(),
    "kafka_server_replicamanager_underreplicatedpartitions": set(),
    "kafka_cluster_partition_replicascount": {"topic", "partition"},
    "kafka_cluster_partition_atminisr": {"topic", "partition"},
    "kafka_cluster_partition_underminisr": {"topic", "partition"},
    "kafka_controller_controllerstats_uncleanleaderelections_total": set(),
    "kafka_controller_kafkacontroller_activecontrollercount": set(),
    "kafka_controller_kafkacontroller_offlinepartitionscount": set(),
    "kafka_log_log_size": {"topic", "partition"},
    "kafka_network_socketserver_networkprocessoravgidle_percent": set(),
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": set(),
    "kafka_server_brokertopicmetrics_bytesin_total": {"topic"},
    "kafka_server_brokertopicmetrics_bytesout_total": {"topic"},
    "kafka_server_brokertopicmetrics_messagesin_total": {"topic"},
    "kafka_server_brokertopicmetrics_totalfetchrequests_total": {"topic"},
    "kafka_server_brokertopicmetrics_totalproducerequests_total": {"topic"},
    "kafka_server_brokertopicmetrics_failedfetchrequests_total": set(),
    "kafka_server_brokertopicmetrics_failedproducerequests_total": set(),
    "kafka_server_kafkaserver_linux_disk_read_bytes": set(),
    "kafka_server_kafkaserver_linux_disk_write_bytes": set(),
    "kafka_server_socket_server_metrics_connection_count": {"listener"},
    "process_open_fds": set(),
    "jvm_memory_used_bytes": {"area"},
    "jvm_threads_current": set(),
    "jvm_gc_collection_seconds_count": {"gc"},
    "jvm_gc_collection_seconds_sum": {"gc"},
    # that of kafka_exporter
    "kafka_broker_info": {"id", "address"},
    "kafka_topic_partitions": {"topic"},
    "kafka_topic_partition_current_offset": {"topic", "partition"},
    "kafka_topic_partition_oldest_offset": {"topic", "partition"},
    "kafka_topic_partition_replicas": {"topic", "partition"},
    "kafka_topic_partition_in_sync_replica": {"topic", "partition"},
    "kafka_topic_partition_under_replicated_partition": {"topic", "partition"},
    "kafka_topic_partition_leader_is_preferred": {"topic", "partition"},
    "kafka_consumergroup_current_offset": {"consumergroup", "topic", "partition"},
    "kafka_consumergroup_lag": {"consumergroup", "topic", "partition"},
    # what its alerts ask for besides
    "kafka_log_logmanager_offlinelogdirectorycount": set(),
    "kafka_server_replicamanager_underminisrpartitioncount": set(),
    "kafka_network_requestmetrics_totaltimems": {"request", "quantile"},
}
"""Metric -> the labels that panels ask for; Kubernetes' own metrics and the labels of the scrape left out."""


@pytest.fixture
def used(broker: BrokerProcess, topic_name: str) -> BrokerProcess:
    """A broker whose topic was written to, and read by a group that has one record to go."""
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name, partitions=2)
    with Producer(broker.bootstrap) as producer:
        for number in range(3):
            producer.send(topic_name, b"%d" % number, partition=0)
    with Consumer(broker.bootstrap, group_id=topic_name, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic_name])
        read = 0
        deadline = time.monotonic() + 30
        while read < 3 and time.monotonic() < deadline:
            read += len(consumer.poll(timeout=1))
        consumer.commit()
    with Producer(broker.bootstrap) as producer:
        producer.send(topic_name, b"one more", partition=0)
    return broker


def of(topic: str, name: str) -> Callable[[Scraped], bool]:
    return lambda scraped: bool(scraped.find(name, topic=topic))


@pytest.mark.slow
def test_every_panel_finds_its_metrics_with_their_labels(used: BrokerProcess, topic_name: str) -> None:
    scraped = scrape_until(of(topic_name, "kafka_consumergroup_lag"), used)
    for name, labels in PANELS.items():
        assert scraped.find(name), f"no sample of {name}"
        assert labels <= scraped.labels(name), name
    of_topic = {"topic": topic_name}
    assert scraped.value("kafka_server_brokertopicmetrics_messagesin_total", **of_topic) == 4
    assert scraped.value("kafka_server_brokertopicmetrics_bytesout_total", **of_topic) > 0
    assert scraped.value("kafka_topic_partition_current_offset", partition="0", **of_topic) == 4
    assert scraped.value("kafka_consumergroup_lag", consumergroup=topic_name, partition="0", **of_topic) == 1
    assert scraped.value("kafka_consumergroup_members", consumergroup=topic_name) == 0


@pytest.mark.slow
def test_all_that_is_served_is_declared_and_of_its_kind(used: BrokerProcess) -> None:
    endings = ("_sum", "_count", "_bucket")
    for name, labels, _ in scrape(used).samples:
        family = FAMILIES.get(name) or FAMILIES[next(name.removesuffix(end) for end in endings if name.endswith(end))]
        assert set(labels) <= {*family.labels, "quantile", "le"}
        assert (family.kind == "counter") == family.name.endswith("_total"), name


@pytest.mark.slow
def test_requests_are_told_with_their_times(used: BrokerProcess) -> None:
    scraped = scrape(used)
    times = "kafka_network_requestmetrics_totaltimems"
    assert scraped.value(times, request="Produce", quantile="0.99") > 0
    assert scraped.value(f"{times}_count", request="Produce") >= 2
    assert scraped.value(times, request="FetchConsumer", quantile="0.50") > 0
    assert scraped.value("kbroker_scrape_seconds") > 0
