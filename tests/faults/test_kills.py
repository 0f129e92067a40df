"""kill -9 of one broker of three, and of two, under load: nothing acknowledged is lost, who was killed catches up."""

from __future__ import annotations

import pytest

from tests.faults.cluster import BROKERS, FaultCluster, until
from tests.faults.load import ConfluentPatientWriter, Load, OurPatientWriter

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def victim(cluster: FaultCluster, topic: str, who: str) -> int:
    """A broker's id by its part in the cluster; a follower that is not the controller, if there is one."""
    leader, controller = cluster.state(topic).leader, cluster.controller()
    if who == "leader":
        return leader
    if who == "controller":
        return controller
    return min(broker for broker in BROKERS if broker not in (leader, controller))


@pytest.mark.parametrize("who", ["leader", "follower", "controller"])
def test_a_broker_killed_under_load_loses_nothing(cluster: FaultCluster, topic_name: str, who: str) -> None:
    leaders = [broker for broker in BROKERS if broker != cluster.controller()]
    cluster.create_topic(topic_name, leaders)
    with Load(cluster, topic_name) as load:
        killed = victim(cluster, topic_name, who)
        led = [p for p in cluster.partitions(topic_name) if cluster.state(topic_name, p).leader == killed]
        cluster.kill(killed)
        cluster.until_led_by_another(topic_name, killed, led)
        until(lambda: killed not in cluster.state(topic_name).isr, "the killed one is still in the ISR")
        until(lambda: cluster.controller() not in (-1, killed), "no other controller")
        load.until_progress()
        cluster.mend()
        cluster.until_whole(topic_name)
        load.until_progress()
        load.finish_and_check()


def test_a_leader_left_alone_and_restarted_knows_the_batches_that_it_could_not_acknowledge(
    cluster: FaultCluster, topic_name: str
) -> None:
    """Its producers send them again, several each, the first one first: none is stored twice or taken for a gap."""
    cluster.create_topic(topic_name, [3])
    with Load(cluster, topic_name, (ConfluentPatientWriter, OurPatientWriter, ConfluentPatientWriter)) as load:
        cluster.kill(1, 2)
        until(lambda: cluster.state(topic_name).isr == (3,), "the leader is alone")
        cluster.brokers[3].stop()
        cluster.mend()
        load.until_progress()
        load.finish_and_check()
