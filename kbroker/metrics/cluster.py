"""What the controller knows, and what every broker is told: controller, brokers, topics, and each partition's leader.

The names of kafka_exporter are served once for the whole cluster, so that sums over all brokers are right: brokers and
topics by the controller, partitions by their leaders, those without one by the controller.
"""

from __future__ import annotations

from kbroker.cluster.metadata_cache import NO_LEADER
from kbroker.cluster.topic_creation import list_bytes
from kbroker.controller.runner import ControllerRunner
from kbroker.controller.state import ControllerState, PartitionStatus
from kbroker.controller.znodes import PartitionState, ReplicaAssignment
from kbroker.metrics.exposition import Exposition
from kbroker.metrics.families import Family, Section
from kbroker.metrics.replicas import PER_TURN, is_under_replicated
from kbroker.metrics.sources import Sources
from kbroker.replica.partition import Role

EVENT_WORDS = {
    "LeaderElection": "brokers that came or went",
    "ControllerChange": "taking over",
    "TopicChange": "topics and partitions that were made",
    "TopicDeletion": "topics that go",
    "LogDirChange": "log directories that failed",
    "IsrChange": "changes of ISRs",
    "LeaderAndIsrResponseReceived": "what brokers answered",
    "AlterPartitionReassignment": "moves of replicas",
    "ManualLeaderBalance": "elections that somebody asked for",
    "AutoLeaderBalance": "elections of preferred leaders",
    "ControlledShutdown": "brokers that are about to stop",
    "UncleanLeaderElectionEnable": "leaders that need not be in sync from now on",
}
"""What the controller has to do, by Kafka's word for it."""

_declare = Section("Controller and cluster")
_controller = "kafka_controller_kafkacontroller_"
ACTIVE = _declare.gauge(f"{_controller}activecontrollercount", "1 on the controller, 0 elsewhere.")
OFFLINE_PARTITIONS = _declare.gauge(
    f"{_controller}offlinepartitionscount",
    "Partitions without a live leader; 0 but on the controller, as all of these.",
)
IMBALANCE = _declare.gauge(
    f"{_controller}preferredreplicaimbalancecount", "Partitions that are not led by the first of their replicas."
)
TOPICS = _declare.gauge(f"{_controller}globaltopiccount", "Topics.")
PARTITIONS = _declare.gauge(f"{_controller}globalpartitioncount", "Partitions.")
ACTIVE_BROKERS = _declare.gauge(f"{_controller}activebrokercount", "Brokers that are there.")
UNCLEAN = _declare.meter(
    "kafka_controller_controllerstats_uncleanleaderelections", "Leaders that were not in sync: records were lost."
)
TO_DELETE = _declare.gauge(f"{_controller}topicstodeletecount", "Topics that are being deleted.")
NOT_TO_DELETE = _declare.gauge(
    f"{_controller}topicsineligibletodeletecount",
    "Those of them that wait: for a broker that is not there, or for the end of a move.",
)
EVENT_TIMES = {
    kind: _declare.summary(
        f"kafka_controller_controllerstats_{kind.lower()}rateandtimems",
        f"Milliseconds that the controller needed: {words}.",
    )
    for kind, words in EVENT_WORDS.items()
}
_events = "kafka_controller_controllereventmanager_"
EVENT_QUEUE = _declare.gauge(f"{_events}eventqueuesize", "What waits for the controller.")
EVENT_QUEUE_TIME = _declare.summary(f"{_events}eventqueuetimems", "Milliseconds until its turn.")
_channels = "kafka_controller_controllerchannelmanager_"
CHANNEL_QUEUE = _declare.gauge(f"{_channels}queuesize", "Orders that wait to be sent to a broker.", "broker_id")
CHANNEL_QUEUES = _declare.gauge(f"{_channels}totalqueuesize", "The same, of all brokers.")
CONTROLLER_ID = _declare.gauge("kafka_server_metadataloader_currentcontrollerid", "Id of the controller, -1 for none.")
TOPIC_LIST = _declare.gauge(
    "kbroker_zookeeper_topic_list_bytes",
    "How long ZooKeeper's list of all topics is; told by the controller. "
    "Above kbroker.max.topic.names.bytes no topic can be created.",
)
TOPICS_REFUSED = _declare.counter(
    "kbroker_topics_refused_total", "Topics not created because ZooKeeper's list of all would have been too long."
)
BROKERS = _declare.gauge("kafka_brokers", "Brokers; told by the controller.")
BROKER_INFO = _declare.gauge("kafka_broker_info", "1 for each broker; told by the controller.", "id", "address")
TOPIC_PARTITIONS = _declare.gauge(
    "kafka_topic_partitions", "Partitions of each topic; told by the controller.", "topic"
)

_partition = Section("Partitions of the cluster")


def _of_partition(name: str, help: str) -> Family:
    return _partition.gauge(f"kafka_topic_partition_{name}", f"{help} Told by the leader.", "topic", "partition")


CURRENT_OFFSET = _of_partition("current_offset", "The high watermark.")
OLDEST_OFFSET = _of_partition("oldest_offset", "First offset that can be read.")
LEADER = _of_partition("leader", "Id of the leader, -1 for none.")
REPLICAS = _of_partition("replicas", "Replicas.")
IN_SYNC = _of_partition("in_sync_replica", "Replicas in sync.")
UNDER_REPLICATED = _of_partition("under_replicated_partition", "1 where a replica is not in sync.")
IS_PREFERRED = _of_partition("leader_is_preferred", "1 where the first replica leads.")


def collect(sources: Sources, out: Exposition) -> None:
    """Add what this broker has to tell of the cluster."""
    services = sources.services
    controller = services.controller
    out.add(ACTIVE, controller.is_active)
    out.add(UNCLEAN, controller.unclean_elections)
    out.add(TOPICS_REFUSED, services.metadata.topics_refused)
    known = services.metadata.controller_id
    out.add(CONTROLLER_ID, -1 if known is None else known)
    _controller_at_work(controller, out)
    counts = _counts(controller.state, out) if controller.is_active else (0, 0, 0, 0, 0)
    families = (OFFLINE_PARTITIONS, IMBALANCE, TOPICS, PARTITIONS, ACTIVE_BROKERS)
    for family, count in zip(families, counts, strict=True):
        out.add(family, count)
    if controller.is_active:
        _cluster(sources, out)
    if services.config.metrics_partitions_enable:
        _led_here(sources, out)


def _controller_at_work(controller: ControllerRunner, out: Exposition) -> None:
    state, waiting = controller.state, controller.waiting_orders()
    out.add(TO_DELETE, len(state.topics_to_delete))
    out.add(NOT_TO_DELETE, len(state.deletion_ineligible))
    for kind, family in EVENT_TIMES.items():
        out.add_summary(family, controller.times.by_kind[kind])
    out.add(EVENT_QUEUE, controller.waiting_jobs)
    out.add_summary(EVENT_QUEUE_TIME, controller.times.waited)
    for broker_id, count in waiting.items():
        out.add(CHANNEL_QUEUE, count, str(broker_id))
    out.add(CHANNEL_QUEUES, sum(waiting.values()))


def _counts(state: ControllerState, out: Exposition) -> tuple[int, int, int, int, int]:
    """Return offline partitions, those not led by their first replica, topics, partitions, brokers."""
    offline = imbalance = partitions = 0
    assignments = dict(state.assignments)
    going = set(state.topics_to_delete)
    waiting = [each for each in list(state.leaderless) if state.status(each) is PartitionStatus.OFFLINE]
    offline = sum(each.topic not in going for each in waiting)
    for number, (partition, known) in enumerate(list(state.leadership.items())):
        if partition.topic not in going:
            imbalance += _is_led_by_another(state.assignment(partition), known)
        if number % 2000 == 1999:
            out.let_others_in()
    partitions = sum(map(len, assignments.values()))
    return offline, imbalance, len(assignments), partitions, len(state.brokers)


def _is_led_by_another(assignment: ReplicaAssignment | None, known: PartitionState) -> bool:
    """Whether the first replica does not lead; one that is just being added may once it is in sync, as in Kafka."""
    if assignment is None or not assignment.replicas or known.leader == assignment.replicas[0]:
        return False
    first = assignment.replicas[0]
    return first not in assignment.adding_replicas or first in known.isr


def _cluster(sources: Sources, out: Exposition) -> None:
    metadata = sources.services.metadata
    listener = sources.services.config.inter_broker_listener
    brokers = dict(metadata.brokers)
    out.add(TOPIC_LIST, list_bytes(list(metadata.topics)))
    out.add(BROKERS, len(brokers))
    for broker_id, broker in brokers.items():
        host, port = broker.endpoints.get(listener) or next(iter(broker.endpoints.values()), ("", 0))
        out.add(BROKER_INFO, 1, str(broker_id), f"{host}:{port}")
    for number, (name, topic) in enumerate(list(metadata.topics.items())):
        partitions = list(topic.partitions.values())
        out.add(TOPIC_PARTITIONS, len(partitions), name)
        for each in partitions:
            if each.leader == NO_LEADER:
                labels = (name, str(each.partition))
                out.add(LEADER, -1, *labels)
                out.add(REPLICAS, len(each.replicas), *labels)
                out.add(IN_SYNC, len(each.isr), *labels)
                out.add(UNDER_REPLICATED, len(each.isr) < len(each.replicas), *labels)
                out.add(IS_PREFERRED, 0, *labels)
        if number % PER_TURN == PER_TURN - 1:
            out.let_others_in()


def _led_here(sources: Sources, out: Exposition) -> None:
    replicas = sources.services.replicas
    current, oldest, leaders = out.lines(CURRENT_OFFSET), out.lines(OLDEST_OFFSET), out.lines(LEADER)
    counts, in_sync = out.lines(REPLICAS), out.lines(IN_SYNC)
    under, preferred = out.lines(UNDER_REPLICATED), out.lines(IS_PREFERRED)
    hosted = list(replicas.hosted.values())
    broker_id = replicas.broker_id
    for start in range(0, len(hosted), PER_TURN):
        for each in hosted[start : start + PER_TURN]:
            state, log = each.state, each.log
            if state.role is not Role.LEADER:
                continue
            labels = f'{{topic="{each.topic}",partition="{each.partition}"}}'
            current.append(f"kafka_topic_partition_current_offset{labels} {log.high_watermark}")
            oldest.append(f"kafka_topic_partition_oldest_offset{labels} {log.log_start_offset}")
            leaders.append(f"kafka_topic_partition_leader{labels} {broker_id}")
            counts.append(f"kafka_topic_partition_replicas{labels} {len(state.replicas)}")
            in_sync.append(f"kafka_topic_partition_in_sync_replica{labels} {len(state.isr)}")
            under.append(f"kafka_topic_partition_under_replicated_partition{labels} {is_under_replicated(each):d}")
            preferred.append(
                f"kafka_topic_partition_leader_is_preferred{labels} {state.replicas[:1] == (broker_id,):d}"
            )
        out.let_others_in()
