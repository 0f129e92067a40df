"""Links between brokers cut in one direction and in both, under load."""

from __future__ import annotations

import time

import pytest

from kbroker import Admin, TopicPartition
from kbroker.protocol.errors import ErrorCode
from tests.faults.cluster import BROKERS, CUT_LINKS, SHORT_SESSIONS, TIMEOUT, FaultCluster, until
from tests.faults.conftest import MakeFaultCluster
from tests.faults.links import CLIENTS
from tests.faults.load import REQUEST_TIMEOUT_MS, Load, OurPatientWriter
from tests.system.wire import PRODUCE_VERSION, Peer, fetch, one_batch, produce_request

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LEFT_ALONE = b"taken by a leader that is alone"
"""A value that no writer sent: the check at the end refuses it."""

ALONE = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS)


@pytest.fixture
def cluster(make_fault_cluster: MakeFaultCluster) -> FaultCluster:
    """Three brokers whose links the test cuts."""
    return make_fault_cluster(properties=CUT_LINKS)


@pytest.mark.parametrize("direction", ["to the leader", "from the leader", "both", "refused"])
def test_a_follower_that_is_cut_off_leaves_the_isr_and_comes_back(
    cluster: FaultCluster, topic_name: str, direction: str
) -> None:
    controller = cluster.controller()
    leader, follower = (broker for broker in BROKERS if broker != controller)
    cluster.create_topic(topic_name, [leader])
    links = cluster.links
    cut = {
        "to the leader": lambda: links.cut(follower, leader),
        "from the leader": lambda: links.cut(leader, follower),
        "both": lambda: links.cut_both(leader, follower),
        "refused": lambda: links.refuse(leader, follower),
    }
    with Load(cluster, topic_name) as load:
        cut[direction]()
        until(lambda: set(cluster.state(topic_name).isr) == {leader, controller}, "the follower leaves the ISR")
        load.until_progress()
        links.heal()
        cluster.until_whole(topic_name)
        assert cluster.state(topic_name).leader == leader
        load.finish_and_check()


@pytest.mark.parametrize("direction", ["requests", "answers", "both"])
def test_clients_that_are_cut_off_from_a_leader_write_each_record_once(
    cluster: FaultCluster, topic_name: str, direction: str
) -> None:
    """For longer than a request may take: they ask again elsewhere, and what was held back arrives late."""
    leader = next(broker for broker in BROKERS if broker != cluster.controller())
    cluster.create_topic(topic_name, [leader, leader])
    with Load(cluster, topic_name) as load:
        for _ in range(2):
            if direction in ("requests", "both"):
                cluster.links.cut(CLIENTS, leader)
            if direction in ("answers", "both"):
                cluster.links.cut(leader, CLIENTS)
            time.sleep(REQUEST_TIMEOUT_MS / 1000 + 0.5)
            cluster.links.heal()
            load.until_progress()
        for _ in range(5):
            cluster.links.reset(CLIENTS, leader)
            time.sleep(0.2)
        load.until_progress()
        load.finish_and_check()


def acknowledges_nothing(load: Load) -> bool:
    """Whether a second goes by without an acknowledgement."""
    before = load.acknowledged()
    time.sleep(1)
    return load.acknowledged() == before


def test_a_leader_that_no_other_broker_reaches_acknowledges_nothing_until_they_do(
    cluster: FaultCluster, topic_name: str
) -> None:
    """ZooKeeper and the clients still reach it: it stays leader, and must not go on alone."""
    controller = cluster.controller()
    leader, other = (broker for broker in BROKERS if broker != controller)
    cluster.create_topic(topic_name, [leader])
    with Load(cluster, topic_name) as load:
        for broker_id in (controller, other):
            cluster.links.cut_both(leader, broker_id)
        until(lambda: acknowledges_nothing(load), "it acknowledges nothing any more")
        assert acknowledges_nothing(load)
        assert cluster.state(topic_name).leader == leader
        cluster.links.heal()
        load.until_progress()
        cluster.until_whole(topic_name)
        load.finish_and_check()


def test_an_isolated_leader_is_replaced_and_drops_what_it_took_alone(
    make_fault_cluster: MakeFaultCluster, topic_name: str
) -> None:
    """Only clients reach it; the others elect a leader, and the ISR goes on without it.

    librdkafka may ask the isolated broker for metadata again and again, which knows of no other leader.
    """
    leader = 1
    cluster = make_fault_cluster(properties=CUT_LINKS, own={leader: SHORT_SESSIONS})
    cluster.hand_the_controller_to(2, 3)
    cluster.create_topic(topic_name, [leader])
    with Load(cluster, topic_name, (OurPatientWriter,)) as load:
        cluster.links.isolate(leader)
        with Peer(cluster.brokers[leader], TIMEOUT) as peer:
            high_watermark = fetch(peer, topic_name).high_watermark
            request = produce_request(topic_name, one_batch(LEFT_ALONE), timeout_ms=1000)
            answer = peer.ask(request, PRODUCE_VERSION).responses[0].partition_responses[0]
            assert answer.error_code in ALONE, answer
            assert fetch(peer, topic_name).high_watermark >= high_watermark
        cluster.until_led_by_another(topic_name, leader)
        load.until_progress()
        cluster.links.heal()
        cluster.until_whole(topic_name)
        load.until_progress()
        load.finish_and_check()


def test_a_leader_dies_while_its_successor_cannot_hear_the_controller(cluster: FaultCluster, topic_name: str) -> None:
    controller = cluster.controller()
    leader, successor = controller % 3 + 1, (controller + 1) % 3 + 1
    cluster.create_topic(topic_name, [leader])
    assert cluster.replicas(topic_name) == (leader, successor, controller)
    with Load(cluster, topic_name) as load:
        cluster.links.cut(controller, successor)
        cluster.kill(leader)
        until(lambda: cluster.state(topic_name).leader == successor, "the successor is elected")
        cluster.links.heal()
        load.until_progress()
        cluster.mend()
        cluster.until_whole(topic_name)
        load.finish_and_check()


def test_orders_that_arrive_late_do_not_keep_a_replica_from_the_isr(
    make_fault_cluster: MakeFaultCluster, topic_name: str
) -> None:
    """A broker is elected while nothing reaches it; it hears so only when another leads already."""
    preferred = 1
    cluster = make_fault_cluster(properties=CUT_LINKS, own={preferred: SHORT_SESSIONS})
    controller = cluster.hand_the_controller_to(3)
    cluster.create_topic(topic_name, [preferred])
    with Load(cluster, topic_name) as load:
        cluster.kill(preferred)
        cluster.until_led_by_another(topic_name, preferred)
        cluster.mend()
        cluster.until_whole(topic_name)
        cluster.links.isolate(preferred)
        with Admin(cluster.brokers[controller].bootstrap) as admin:
            assert admin.elect_leaders([TopicPartition(topic_name, 0)])[TopicPartition(topic_name, 0)] is None
        assert cluster.state(topic_name).leader == preferred
        cluster.until_led_by_another(topic_name, preferred)
        cluster.links.heal()
        cluster.until_whole(topic_name)
        load.until_progress()
        load.finish_and_check()
