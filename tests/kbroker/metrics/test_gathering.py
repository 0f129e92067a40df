"""What a broker serves: every panel of the dashboards that people have finds its metrics and their labels."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from kbroker import Admin, Consumer, Producer
from kbroker.dev.broker_process import BrokerProcess
from kbroker.metrics.families import FAMILIES
from tests.fixtures.brokers import MakeCluster
from tests.kbroker.metrics.scraping import METRICS_PAGE, Scraped, scrape, scrape_until

BY_PARTITION = ("topic", "partition")
BY_GROUP = ("consumergroup", "topic")
TOPICS = {"topic": ".+"}
MANAGER, CONTROLLER = "kafka_server_replicamanager_", "kafka_controller_kafkacontroller_"
TRAFFIC = "kafka_server_brokertopicmetrics_"
SOCKETS = "kafka_server_socket_server_metrics_"
TOPIC_TRAFFIC = (
    ("Total Incoming Byte Rate", "bytesin"),
    ("Total Outgoing Byte Rate", "bytesout"),
    ("Incoming Messages Rate", "messagesin"),
    ("Total Produce Request Rate", "totalproducerequests"),
    ("Failed Produce Request Rate", "failedproducerequests"),
    ("Fetch Request Rate", "totalfetchrequests"),
    ("Failed Fetch Request Rate", "failedfetchrequests"),
)
Panel = tuple[str, str, dict[str, str], tuple[str, ...]]
"""Title, metric, the labels that the samples must have (as regular expressions), those that it groups by."""


def panels_of_kafka(traffic: str, *renamed: Panel) -> list[Panel]:
    """Those of Strimzi's dashboard of Kafka, whose exporters spell some names in two ways."""
    return [
        ("Brokers Online; which namespace, cluster and broker", f"{MANAGER}leadercount", {}, ()),
        ("Active Controllers", f"{CONTROLLER}activecontrollercount", {}, ()),
        ("Online Replicas", f"{MANAGER}partitioncount", {}, ()),
        ("Under Replicated Partitions", f"{MANAGER}underreplicatedpartitions", {}, ()),
        ("Partitions at minimum ISR", "kafka_cluster_partition_atminisr", {}, ()),
        ("Partitions under minimum ISR", "kafka_cluster_partition_underminisr", {}, ()),
        ("Offline Partitions Count", f"{CONTROLLER}offlinepartitionscount", {}, ()),
        ("Open File Descriptors", "process_open_fds", {}, ()),
        ("JVM Memory Used", "jvm_memory_used_bytes", {}, ()),
        ("JVM GC Time", "jvm_gc_collection_seconds_sum", {}, ()),
        ("JVM GC Count", "jvm_gc_collection_seconds_count", {}, ()),
        ("JVM Thread Count", "jvm_threads_current", {}, ()),
        *((title, f"{TRAFFIC}{name}{traffic}", TOPICS, ()) for title, name in TOPIC_TRAFFIC),
        ("Disk Writes", "kafka_server_kafkaserver_linux_disk_write_bytes", {}, ()),
        ("Disk Reads", "kafka_server_kafkaserver_linux_disk_read_bytes", {}, ()),
        (
            "Connection Count per Listener",
            "kafka_server_socket_server_metrics_connection_count",
            {},
            ("listener",),
        ),
        ("Log Size", "kafka_log_log_size", {"topic": ".+", "partition": ".+"}, BY_PARTITION),
        ("which topic", "kafka_cluster_partition_replicascount", {}, ("topic",)),
        ("which partition", "kafka_log_log_size", TOPICS, ("partition",)),
        *renamed,
    ]


DASHBOARDS: dict[str, list[Panel]] = {
    "Strimzi Kafka, JMX exporter": panels_of_kafka(
        "_total",
        (
            "Unclean Leader Election Rate",
            "kafka_controller_controllerstats_uncleanleaderelections_total",
            {},
            (),
        ),
        (
            "Network Processor Avg Idle Percent",
            "kafka_network_socketserver_networkprocessoravgidle_percent",
            {},
            (),
        ),
        (
            "Request Handler Avg Idle Percent",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            {},
            (),
        ),
        ("ZK request latency", "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms", {}, ()),
    ),
    "Strimzi Kafka, metrics reporter": panels_of_kafka(
        "persec_total",
        (
            "Unclean Leader Election Rate",
            "kafka_controller_controllerstats_uncleanleaderelectionspersec_total",
            {},
            (),
        ),
        (
            "Network Processor Avg Idle Percent",
            "kafka_network_socketserver_networkprocessoravgidlepercent",
            {},
            (),
        ),
        (
            "Request Handler Avg Idle Percent",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total",
            {},
            (),
        ),
    ),
    "Strimzi Kafka Exporter": [
        ("which namespace and cluster", "kafka_broker_info", {}, ()),
        ("Topics; Partitions; Number of Partitions", "kafka_topic_partitions", TOPICS, ("topic",)),
        ("Replicas", "kafka_topic_partition_replicas", TOPICS, ()),
        ("In Sync Replicas", "kafka_topic_partition_in_sync_replica", TOPICS, ()),
        ("Under Replicated Partitions", "kafka_topic_partition_under_replicated_partition", TOPICS, ()),
        ("Partitions at minimum ISR", "kafka_cluster_partition_atminisr", TOPICS, ()),
        ("Partitions under minimum ISR", "kafka_cluster_partition_underminisr", TOPICS, ()),
        ("Partitions not on preferred node", "kafka_topic_partition_leader_is_preferred", TOPICS, ()),
        (
            "Messages in per second; Latest Offsets; which topic",
            "kafka_topic_partition_current_offset",
            TOPICS,
            BY_PARTITION,
        ),
        ("Oldest Offsets", "kafka_topic_partition_oldest_offset", TOPICS, BY_PARTITION),
        (
            "Messages consumed per second; Consumer Group Offsets; which group",
            "kafka_consumergroup_current_offset",
            {"consumergroup": ".+", "topic": ".+"},
            (*BY_GROUP, "partition"),
        ),
        (
            "Lag by Consumer Group; Consumer Group Lag",
            "kafka_consumergroup_lag",
            {"consumergroup": ".+", "topic": ".+"},
            (*BY_GROUP, "partition"),
        ),
    ],
    "kafka_exporter's own (7589)": [
        ("Messages in", "kafka_topic_partition_current_offset", TOPICS, ("topic",)),
        ("Lag", "kafka_consumergroup_lag", TOPICS, BY_GROUP),
        ("Messages consumed", "kafka_consumergroup_current_offset", TOPICS, BY_GROUP),
        ("Partitions per Topic", "kafka_topic_partitions", TOPICS, ("topic",)),
    ],
    "what operators draw of Kafka's JMX metrics": [
        ("Failed Logins", f"{SOCKETS}failed_authentication_total", {}, ("listener", "networkProcessor")),
        ("Logins", f"{SOCKETS}successful_authentication_total", {}, ("listener",)),
        ("Connections Closed", f"{SOCKETS}connection_close_total", {}, ("listener",)),
        ("Request Queue", "kafka_network_requestchannel_requestqueuesize", {}, ()),
        ("Response Queue", "kafka_network_requestchannel_responsequeuesize", {}, ()),
        ("Log Flush", "kafka_log_logflushstats_logflushrateandtimems", {"quantile": "0[.]99"}, ()),
        ("Purgatory", "kafka_server_delayedoperationpurgatory_purgatorysize", {"delayedOperation": "Fetch"}, ()),
        ("Expired Produces", "kafka_server_delayedproducemetrics_expires_total", {}, ()),
        ("Expired Fetches", "kafka_server_delayedfetchmetrics_expires_total", {"fetcherType": "consumer"}, ()),
        ("Late Transactions", f"{MANAGER}partitionswithlatetransactionscount", {}, ()),
        ("Producer Ids", f"{MANAGER}produceridcount", {}, ()),
        ("Reassignments", f"{MANAGER}reassigningpartitions", {}, ()),
        ("Follower Lag", "kafka_server_replicafetchermanager_maxlag", {"clientId": "Replica"}, ()),
        ("Fetch Sessions", "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", {}, ()),
        ("Leader Elections", "kafka_controller_controllerstats_leaderelectionrateandtimems_count", {}, ()),
        ("Controller Queue", "kafka_controller_controllereventmanager_eventqueuesize", {}, ()),
        ("Controller Channels", "kafka_controller_controllerchannelmanager_totalqueuesize", {}, ()),
        ("Topics to Delete", f"{CONTROLLER}topicstodeletecount", {}, ()),
        ("Rebalances", "kafka_server_group_coordinator_metrics_group_completed_rebalance_count", {}, ()),
        ("ZooKeeper Log-ins", "kafka_server_sessionexpirelistener_zookeeperauthfailures_total", {}, ()),
    ],
    "alerts for these": [
        ("OfflineLogDirectoryCount", "kafka_log_logmanager_offlinelogdirectorycount", {}, ()),
        ("UnderMinIsrPartitionCount", f"{MANAGER}underminisrpartitioncount", {}, ()),
        (
            "produce latency",
            "kafka_network_requestmetrics_totaltimems",
            {"request": "Produce", "quantile": "0[.]99"},
            (),
        ),
    ],
}
"""Every panel and variable of dashboards that people have, but those that ask Kubernetes (container_, kubelet_)."""
OF_THE_SCRAPE = {
    "namespace",
    "strimzi_io_cluster",
    "strimzi_io_name",
    "strimzi_io_kind",
    "container",
    "kubernetes_pod_name",
}
"""Labels that those of Strimzi ask for besides: Prometheus adds them."""


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
    for dashboard, panels in DASHBOARDS.items():
        for title, name, wanted, grouped_by in panels:
            found = [
                (labels, value)
                for labels, value in scraped.by_name[name]
                if all(re.fullmatch(pattern, labels.get(label, "")) for label, pattern in wanted.items())
            ]
            assert found, f"{dashboard}, {title}: no sample of {name} with {wanted}"
            assert all(value == value for _, value in found), f"{dashboard}, {title}: no number"
            assert all(labels.keys() >= set(grouped_by) for labels, _ in found), f"{dashboard}, {title}"
    of_topic = {"topic": topic_name}
    assert scraped.value("kafka_server_brokertopicmetrics_messagesin_total", **of_topic) == 4
    assert scraped.value("kafka_server_brokertopicmetrics_bytesout_total", **of_topic) > 0
    assert scraped.value("kafka_topic_partition_current_offset", partition="0", **of_topic) == 4
    assert scraped.value("kafka_consumergroup_lag", consumergroup=topic_name, partition="0", **of_topic) == 1
    assert scraped.value("kafka_consumergroup_members", consumergroup=topic_name) == 0
    assert scraped.value("kafka_server_brokertopicmetrics_messagesinpersec_total", **of_topic) == 4
    assert scraped.value("kafka_server_brokertopicmetrics_failedproducerequests_total", **of_topic) == 0
    stats = "kafka_controller_controllerstats_"
    assert scraped.value(f"{stats}controllerchangerateandtimems_count") == 1
    assert scraped.value(f"{stats}topicchangerateandtimems_count") >= 1
    assert scraped.value("kafka_controller_controllereventmanager_eventqueuetimems_count") >= 3
    assert scraped.value("kafka_server_group_coordinator_metrics_group_completed_rebalance_count") >= 1


def test_the_labels_of_the_scrape_that_panels_ask_for_are_in_the_job_that_the_page_shows() -> None:
    (labels,) = re.findall(r"labels: {(.*?)}", METRICS_PAGE.read_text(), re.DOTALL)
    assert set(re.findall(r"(\w+):", labels)) == OF_THE_SCRAPE


@pytest.mark.slow
def test_what_one_exporter_would_tell_is_told_once_by_three_brokers(make_cluster: MakeCluster, topic_name: str) -> None:
    """The job that the page shows gives these one `instance`: two brokers must not tell the same series."""
    cluster = make_cluster(3, properties={"metrics.listeners": "HTTP://127.0.0.1:0"})
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(topic_name, partitions=6, replication_factor=3)
    (pattern,) = re.findall(r"regex: (kafka_\S*consumergroup\S*)", METRICS_PAGE.read_text())
    current = "kafka_topic_partition_current_offset"
    scraped = scrape_until(lambda scraped: len(scraped.find(current, topic=topic_name)) == 6, *cluster.brokers)
    told = [
        (name, *sorted(pair for pair in labels.items() if pair[0] != "instance"))
        for name, labels, _ in scraped.samples
        if re.fullmatch(pattern, name)
    ]
    assert len(told) == len(set(told))
    assert {name for name, *_ in told} >= {"kafka_brokers", "kafka_broker_info", "kafka_topic_partitions", current}


@pytest.mark.slow
def test_all_that_is_served_is_declared_and_of_its_kind(used: BrokerProcess) -> None:
    endings = ("_sum", "_count", "_bucket")
    known = FAMILIES | {family.also: family for family in FAMILIES.values() if family.also}
    for name, labels, _ in scrape(used).samples:
        family = known.get(name) or FAMILIES[next(name.removesuffix(end) for end in endings if name.endswith(end))]
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
