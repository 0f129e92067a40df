"""What clients use is counted, and who has used too much is told and muted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.handlers.context import RequestContext
from kbroker.handlers.refusals import blank
from kbroker.network.limits import WRITE_TXN_MARKERS, ServerLimits
from kbroker.network.metering import Meter
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.fetch import FetchRequest, FetchResponse
from kbroker.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from kbroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from kbroker.protocol.messages.replication import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    StopReplicaRequest,
    StopReplicaResponse,
)
from kbroker.protocol.messages.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kbroker.security.quotas import ANY, FETCHED, PRODUCED, REQUESTED, ClientQuotas, Entity

PRODUCE, FETCH, STOP_REPLICA, HEARTBEAT, ALLOCATE = 0, 1, 5, 12, 67


class Peer:
    """A connection that notes for how long it was muted."""

    principal = "User:ann"
    login_limits: Any = None
    takes_brokers = True

    def __init__(self) -> None:
        self.muted: list[float] = []

    def mute(self, seconds: float) -> None:
        self.muted.append(seconds)


def meter(**limits: float) -> Meter:
    quotas = ClientQuotas(11, 1000, 11)
    quotas.replace(Entity(ANY, None), limits)
    return Meter(quotas)


def asked(peer: Peer, api_key: int, version: int, request_bytes: int = 0, busy_ms: float = 0) -> RequestContext:
    ctx = RequestContext(api_key, version, 1, "app", 0, peer)
    ctx.request_bytes, ctx.busy_ms = request_bytes, busy_ms
    return ctx


def test_produced_bytes_are_counted_and_the_wait_is_told_and_kept() -> None:
    peer, counted = Peer(), meter(**{PRODUCED: 1000})
    request, answer = blank(ProduceRequest, acks=1), ProduceResponse(responses=[])
    assert counted.count(asked(peer, PRODUCE, 9, 10_000), request, answer).throttle_time_ms == 0
    assert not peer.muted
    delay_ms = counted.count(asked(peer, PRODUCE, 9, 30_000), request, answer).throttle_time_ms
    assert delay_ms > 25_000
    assert len(peer.muted) == 1
    assert (counted.throttled, counted.throttled_ms) == ({PRODUCE: 1}, {PRODUCE: delay_ms})


def test_produce_without_an_answer_is_muted_and_its_time_is_not_counted() -> None:
    peer = Peer()
    counted = meter(**{PRODUCED: 1000, REQUESTED: 0.001})
    assert counted.count(asked(peer, PRODUCE, 9, 5_000, 10_000), blank(ProduceRequest), None) is None
    assert not peer.muted
    assert counted.count(asked(peer, PRODUCE, 9, 50_000), blank(ProduceRequest), None) is None
    assert len(peer.muted) == 1


@pytest.mark.parametrize(("epoch", "session_id"), [(0, 0), (-1, 0), (5, 7)])
def test_an_answer_to_fetch_that_is_too_much_goes_out_empty(epoch: int, session_id: int) -> None:
    peer, counted = Peer(), meter(**{FETCHED: 10})
    request = blank(FetchRequest, replica_id=-1, session_epoch=epoch)
    data = blank(FetchResponse.PartitionData, records=bytes(500))
    topics = [blank(FetchResponse.FetchableTopicResponse, topic="t", partitions=[data])]
    answer = FetchResponse(error_code=ErrorCode.NONE, session_id=7, responses=topics)
    sent = counted.count(asked(peer, FETCH, 12), request, answer)
    assert (sent.responses, sent.session_id) == ([], session_id)
    assert sent.throttle_time_ms > 0
    assert peer.muted
    small = FetchResponse(error_code=ErrorCode.NONE, responses=[])
    later = counted.count(asked(Peer(), FETCH, 12), request, small)
    assert later.throttle_time_ms == 0, "what was not sent was taken back"


def test_the_time_that_requests_take_is_counted_in_percent() -> None:
    peer, counted = Peer(), meter(**{REQUESTED: 1})
    answer = HeartbeatResponse(error_code=ErrorCode.NONE)
    assert counted.count(asked(peer, HEARTBEAT, 4, busy_ms=90), blank(HeartbeatRequest), answer).throttle_time_ms == 0
    told = counted.count(asked(peer, HEARTBEAT, 4, busy_ms=90), blank(HeartbeatRequest), answer).throttle_time_ms
    assert told == 1000, "for one window at most"


def test_a_version_without_a_place_for_the_wait_is_muted_all_the_same() -> None:
    peer, counted = Peer(), meter(**{REQUESTED: 1})
    answer = HeartbeatResponse(error_code=ErrorCode.NONE)
    counted.count(asked(peer, HEARTBEAT, 0, busy_ms=900), blank(HeartbeatRequest), answer)
    assert answer.throttle_time_ms == 0
    assert peer.muted == [1.0]


def test_what_only_brokers_send_is_exempt_but_for_producer_ids() -> None:
    counted = meter(**{REQUESTED: 0.001, FETCHED: 0.001})
    follower: Any = blank(FetchRequest, replica_id=2)
    exempt = (
        (STOP_REPLICA, blank(StopReplicaRequest), blank(StopReplicaResponse)),
        (FETCH, follower, FetchResponse(error_code=ErrorCode.NONE, responses=[])),
    )
    for key, request, answer in exempt:
        peer = Peer()
        counted.count(asked(peer, key, 3, busy_ms=10_000), request, answer)
        assert not peer.muted
    peer = Peer()
    answer = blank(AllocateProducerIdsResponse)
    counted.count(asked(peer, ALLOCATE, 0, busy_ms=10_000), blank(AllocateProducerIdsRequest, broker_id=1), answer)
    assert peer.muted


def test_who_sends_what_only_brokers_send_and_is_refused_is_counted() -> None:
    peer, counted = Peer(), meter(**{REQUESTED: 0.001})
    refused = blank(StopReplicaResponse, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    counted.count(asked(peer, STOP_REPLICA, 3, busy_ms=10_000), blank(StopReplicaRequest), refused)
    assert peer.muted


def test_what_comes_before_a_login_is_not_counted() -> None:
    peer, counted = Peer(), meter(**{REQUESTED: 0.001})
    peer.login_limits = ServerLimits()
    answer = HeartbeatResponse(error_code=ErrorCode.NONE)
    assert counted.count(asked(peer, HEARTBEAT, 4, busy_ms=10_000), blank(HeartbeatRequest), answer) is answer
    assert not peer.muted


def test_markers_that_come_through_the_clients_listener_are_counted() -> None:
    peer, counted = Peer(), meter(**{REQUESTED: 0.001})
    for peer.takes_brokers in (True, False):
        assert not peer.muted
        counted.count(
            asked(peer, WRITE_TXN_MARKERS, 1, busy_ms=10_000),
            blank(WriteTxnMarkersRequest),
            WriteTxnMarkersResponse(markers=[]),
        )
    assert peer.muted


def test_a_wait_that_the_handler_asks_for_is_kept() -> None:
    peer = Peer()
    answer = HeartbeatResponse(error_code=ErrorCode.NONE, throttle_time_ms=1500)
    meter().count(asked(peer, HEARTBEAT, 4), SimpleNamespace(), answer)
    assert peer.muted == [1.5]
