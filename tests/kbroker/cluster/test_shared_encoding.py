"""What all brokers are told is encoded once, and no differently than for each."""

from __future__ import annotations

from typing import Any

from kbroker.cluster.shared_encoding import KEPT, SharedEncoding
from kbroker.protocol.codec import encode
from kbroker.protocol.messages.replication import StopReplicaRequest, UpdateMetadataRequest

BROKERS = [UpdateMetadataRequest.UpdateMetadataBroker(id=1, rack="a", endpoints=[])]


def topics(name: str) -> list[Any]:
    state = UpdateMetadataRequest.UpdateMetadataPartitionState(
        partition_index=3,
        controller_epoch=1,
        leader=1,
        leader_epoch=2,
        isr=[1, 2],
        zk_version=4,
        replicas=[1, 2],
        offline_replicas=[2],
    )
    topic = UpdateMetadataRequest.UpdateMetadataTopicState
    return [topic(topic_name=name, topic_id=bytes(15) + b"1", partition_states=[state])]


def request(broker_epoch: int, topic_states: list[Any]) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=5,
        broker_epoch=broker_epoch,
        topic_states=topic_states,
        live_brokers=BROKERS,
    )


def test_shared_requests_have_the_bytes_of_their_own_encoding() -> None:
    shared, told = SharedEncoding(), topics("t")
    for epoch in (7, 8):
        assert encode(shared.share(request(epoch, told), 8), 8) == encode(request(epoch, told), 8)


def test_the_same_list_is_encoded_once_and_another_like_it_for_itself() -> None:
    shared, told = SharedEncoding(), topics("t")
    first, second = (shared.share(request(epoch, told), 8) for epoch in (7, 8))
    assert first.topic_states is second.topic_states
    assert shared.share(request(7, topics("t")), 8).topic_states is not first.topic_states


def test_a_list_made_where_a_forgotten_one_lay_is_not_taken_for_it() -> None:
    shared = SharedEncoding()
    for number in range(20 * KEPT):
        told = topics(f"t{number}")
        assert encode(shared.share(request(7, told), 8), 8) == encode(request(7, told), 8)
        del told  # so that the next one may be made in its place


def test_other_requests_are_left_as_they_are() -> None:
    stop = StopReplicaRequest(controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[])
    assert SharedEncoding().share(stop, 4) is stop
