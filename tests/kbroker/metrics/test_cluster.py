"""What the controller knows; brokers, topics and partitions under kafka_exporter's names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kbroker.controller import events
from kbroker.controller.event_times import EventTimes
from kbroker.controller.state import ControllerState, PartitionStatus
from kbroker.controller.znodes import PartitionState, ReplicaAssignment, TopicPartition
from kbroker.metrics import cluster
from tests.fixtures.data_path import TOPIC, TOPIC_ID, Played
from tests.kbroker.metrics.scraping import collected, sources_of

CONTROLLER = "kafka_controller_kafkacontroller_"


def controller(is_active: bool, state: ControllerState | None = None) -> Any:
    return SimpleNamespace(
        is_active=is_active,
        unclean_elections=3,
        state=state or ControllerState(),
        times=EventTimes(),
        waiting_jobs=2,
        waiting_orders=lambda: {1: 0, 2: 5, 3: 1},
    )


async def test_the_controller_counts_what_is_offline_and_what_others_lead(played: Played) -> None:
    state = ControllerState()
    for number, leader in enumerate([1, 2, -1]):
        partition = TopicPartition(TOPIC, number)
        state.assignments.setdefault(TOPIC, {})
        state.set_assignment(partition, ReplicaAssignment((1, 2)))
        state.leadership[partition] = PartitionState(leader, 0, (1, 2), 0)
        state.set_status(partition, PartitionStatus.ONLINE if leader > 0 else PartitionStatus.OFFLINE)
    found = collected(cluster.collect, sources_of(played, controller=controller(True, state)))
    names = ("offlinepartitionscount", "preferredreplicaimbalancecount", "globaltopiccount", "globalpartitioncount")
    assert [found.value(CONTROLLER + name) for name in names] == [1, 2, 1, 3]
    assert found.value(CONTROLLER + "activecontrollercount") == 1
    assert found.value("kafka_controller_controllerstats_uncleanleaderelections_total") == 3


async def test_a_replica_that_is_being_added_is_to_lead_once_it_is_in_sync(played: Played) -> None:
    state = ControllerState()
    state.assignments[TOPIC] = {}
    for number, isr in enumerate([(1,), (1, 3)]):
        partition = TopicPartition(TOPIC, number)
        state.set_assignment(partition, ReplicaAssignment((3, 1), adding_replicas=(3,)))
        state.leadership[partition] = PartitionState(1, 0, isr, 0)
    found = collected(cluster.collect, sources_of(played, controller=controller(True, state)))
    assert found.value(CONTROLLER + "preferredreplicaimbalancecount") == 1


async def test_topics_that_are_being_deleted_are_not_offline(played: Played) -> None:
    state = ControllerState()
    state.assignments[TOPIC] = {}
    state.set_assignment(TopicPartition(TOPIC, 0), ReplicaAssignment((1,)))
    state.leadership[TopicPartition(TOPIC, 0)] = PartitionState(-1, 0, (1,), 0)
    state.set_status(TopicPartition(TOPIC, 0), PartitionStatus.OFFLINE)
    state.topics_to_delete.add(TOPIC)
    found = collected(cluster.collect, sources_of(played, controller=controller(True, state)))
    assert found.value(CONTROLLER + "offlinepartitionscount") == 0
    assert found.value(CONTROLLER + "preferredreplicaimbalancecount") == 0
    names = ("topicstodeletecount", "topicsineligibletodeletecount")
    assert [found.value(CONTROLLER + name) for name in names] == [1, 0]
    state.deletion_ineligible.add(TOPIC)
    found = collected(cluster.collect, sources_of(played, controller=controller(True, state)))
    assert [found.value(CONTROLLER + name) for name in names] == [1, 1]


async def test_what_keeps_the_controller_busy_and_what_waits_for_it_is_told(played: Played) -> None:
    running = controller(True)
    running.times.add(events.BrokersListed({}), 0.02)
    running.times.waited.add(7)
    found = collected(cluster.collect, sources_of(played, controller=running))
    stats, manager = "kafka_controller_controllerstats_", "kafka_controller_controllereventmanager_"
    assert found.value(stats + "leaderelectionrateandtimems_count") == 1
    assert found.value(stats + "leaderelectionrateandtimems_sum") == 20
    assert found.value(stats + "controllerchangerateandtimems_count") == 0
    assert found.value(manager + "eventqueuesize") == 2
    assert found.value(manager + "eventqueuetimems_sum") == 7
    channels = "kafka_controller_controllerchannelmanager_"
    assert found.value(channels + "queuesize", broker_id="2") == 5
    assert found.value(channels + "totalqueuesize") == 6


async def test_brokers_and_topics_are_told_by_the_controller_alone(played: Played) -> None:
    await played.lead()
    played.metadata.topics_refused = 2
    found = collected(cluster.collect, sources_of(played, controller=controller(False)))
    assert found.value("kbroker_topics_refused_total") == 2
    assert found.value(CONTROLLER + "activecontrollercount") == 0
    assert found.find("kafka_brokers") == found.find("kafka_topic_partitions") == []
    found = collected(cluster.collect, sources_of(played, controller=controller(True)))
    assert found.value("kafka_brokers") == 3
    assert found.value("kafka_broker_info", id="2", address="127.0.0.1:9002") == 1
    assert found.value("kafka_topic_partitions", topic=TOPIC) == 1
    assert found.value("kbroker_zookeeper_topic_list_bytes") == 4 + len(TOPIC)


async def test_a_partition_is_told_by_its_leader_and_without_one_by_the_controller(played: Played) -> None:
    await played.lead([0], replicas=(2, 1), isr=(1,))
    await played.lead([1], leader=2, replicas=(2, 1), isr=(2,))
    played.tell(TOPIC, TOPIC_ID, [2], leader=-1, replicas=(3,), isr=(3,))
    found = collected(cluster.collect, sources_of(played, controller=controller(True)))
    leaders = {
        labels["partition"]: value for name, labels, value in found.samples if name == "kafka_topic_partition_leader"
    }
    assert leaders == {"0": 1, "2": -1}
    assert found.value("kafka_topic_partition_under_replicated_partition", topic=TOPIC, partition="2") == 0
    of_first = {"topic": TOPIC, "partition": "0"}
    expected = {"replicas": 2, "in_sync_replica": 1, "under_replicated_partition": 1, "leader_is_preferred": 0}
    for name, value in expected.items():
        assert found.value(f"kafka_topic_partition_{name}", **of_first) == value
