"""A broker that hangs (SIGSTOP), for less than its session lasts and for longer, under load."""

from __future__ import annotations

import time

import pytest

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.headers import decode_response
from kbroker.protocol.messages.produce import ProduceResponse
from tests.faults.cluster import BROKERS, CUT_LINKS, SHORT_SESSION_MS, SHORT_SESSIONS, TIMEOUT, FaultCluster, until
from tests.faults.conftest import MakeFaultCluster
from tests.faults.load import Load
from tests.system.wire import PRODUCE_VERSION, Peer, fetch, one_batch, produce, produce_request, request_bytes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_brokers_that_hang_for_less_than_their_session_lasts_keep_their_leaderships(
    make_fault_cluster: MakeFaultCluster, topic_name: str
) -> None:
    cluster = make_fault_cluster(
        properties={"zookeeper.session.timeout.ms": "12000", "replica.lag.time.max.ms": "12000"}
    )
    cluster.create_topic(topic_name)
    before = [cluster.state(topic_name, partition) for partition in range(3)]
    with Load(cluster, topic_name) as load:
        for broker_id in BROKERS:
            cluster.pause(broker_id)
            time.sleep(1.2)
            cluster.resume(broker_id)
            load.until_progress()
        load.finish_and_check()
    assert [cluster.state(topic_name, partition) for partition in range(3)] == before


def ends_in(answer: bytes | None) -> ErrorCode:
    assert answer is not None, "the broker closed the connection"
    decoded = decode_response(answer, ProduceResponse, PRODUCE_VERSION)[1]
    code: ErrorCode = decoded.responses[0].partition_responses[0].error_code
    return code


def test_a_leader_that_hangs_for_longer_is_replaced_and_fenced_when_it_wakes(
    make_fault_cluster: MakeFaultCluster, topic_name: str
) -> None:
    """What it is sent while it hangs, and what it has in hand, is never acknowledged and is nowhere in the end.

    Not to those either who ask for the leader's word alone (acks=1).
    """
    leader = 1
    cluster = make_fault_cluster(properties=CUT_LINKS, own={leader: SHORT_SESSIONS})
    cluster.hand_the_controller_to(2, 3)
    cluster.create_topic(topic_name, [leader])
    zombie = cluster.brokers[leader]
    epoch = cluster.broker_epoch(leader)
    with Load(cluster, topic_name) as load, Peer(zombie, TIMEOUT) as peer, Peer(zombie, TIMEOUT) as trusting:
        for each in (peer, trusting):
            assert not fetch(each, topic_name).error_code
        cluster.pause(leader)
        peer.send(request_bytes(produce_request(topic_name, one_batch(b"sent to a zombie")), PRODUCE_VERSION))
        wanted = produce_request(topic_name, one_batch(b"trusted to a zombie"), acks=1)
        trusting.send(request_bytes(wanted, PRODUCE_VERSION))
        cluster.until_led_by_another(topic_name, leader)
        load.until_progress()
        cluster.resume(leader)
        for each in (peer, trusting):
            assert ends_in(each.receive()) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        until(lambda: cluster.broker_epoch(leader) > epoch, "the zombie registers again")
        answer = produce(peer, topic_name, one_batch(b"sent afterwards"))
        assert answer.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster.until_whole(topic_name)
        load.until_progress()
        load.finish_and_check()


def test_a_broker_that_hangs_in_its_start_until_its_session_is_over_starts_again(
    cluster: FaultCluster, topic_name: str
) -> None:
    cluster.create_topic(topic_name)
    broker = cluster.brokers[2]
    broker.kill()
    broker.properties.update(SHORT_SESSIONS)
    (broker.log_dir / "kbroker-session").unlink()  # as if it were started on another machine
    broker.start()
    until(lambda: "wait for its session to expire" in broker.log_tail(100), "it waits for the end of its old session")
    cluster.pause(2)
    cluster.expire(2)
    time.sleep(2 * SHORT_SESSION_MS / 1000)
    cluster.resume(2)
    broker.wait_until_ready(TIMEOUT)
    assert "starting again" in broker.log_tail(100)
    cluster.until_whole(topic_name)


def test_a_controller_that_hangs_for_longer_is_replaced_and_resigns_when_it_wakes(
    make_fault_cluster: MakeFaultCluster, topic_name: str
) -> None:
    cluster = make_fault_cluster(properties=CUT_LINKS, own={1: SHORT_SESSIONS})
    controller = cluster.hand_the_controller_to(1)
    cluster.create_topic(topic_name, [controller, *(broker for broker in BROKERS if broker != controller)])
    with Load(cluster, topic_name) as load:
        cluster.pause(controller)
        until(lambda: cluster.controller() not in (-1, controller), "another controller")
        cluster.until_led_by_another(topic_name, controller)
        load.until_progress()
        cluster.resume(controller)
        cluster.until_whole(topic_name)
        cluster.create_topic(f"{topic_name}-after")
        assert cluster.controller() != controller
        load.finish_and_check()
