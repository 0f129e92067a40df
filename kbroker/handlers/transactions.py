"""WriteTxnMarkers: a transaction coordinator has this broker, the leader, write where a transaction ends."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from typing import Any

from kbroker.cluster.topic_names import OFFSETS_TOPIC
from kbroker.coordinator.local_markers import brought_by_marker
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import ALTER, CLUSTER_ACTION, on_cluster
from kbroker.handlers.registry import handles
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.replica.appending import ALL_IN_SYNC, Outcome
from kbroker.replica.delayed import EachAnswer
from kbroker.replica.turns import Work, at_once, finished, in_turns
from kbroker.segment.log import AppendOrigin


@handles(WriteTxnMarkersRequest, on_cluster(ALTER, CLUSTER_ACTION))
def write_txn_markers(
    services: Services, ctx: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Awaitable[WriteTxnMarkersResponse]:
    """Append a control batch to each partition named; answer when all replicas in sync have them.

    What the log knows of the producer decides: a marker of an older producer epoch is refused (47), as is one of a
    coordinator that was replaced (52). From version 2 on so is one that comes late and would end the transaction after
    its own.
    """
    if services.replicas.is_leadership_unproven():
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return in_turns(_write(services, ctx, request))


def _write(services: Services, ctx: RequestContext, request: WriteTxnMarkersRequest) -> Work[WriteTxnMarkersResponse]:
    replicas, now_ms, is_large = services.replicas, ctx.received_at, ctx.is_large
    decisions: dict[int, tuple[int, int, bool]] = {}
    """By place in the answer: a partition of __consumer_offsets, a producer id, and whether its offsets count."""

    def written(place: int, outcome: Outcome) -> None:
        # Now, not when all markers count: another coordinator may have sent this one, too, and the producer's next
        # transaction have begun by then, whose offsets would be decided instead.
        decision = decisions.pop(place, None)
        if decision is not None and not isinstance(outcome, KafkaError):
            services.groups.transaction_ended(*decision)

    def respond(outcomes: Sequence[Outcome]) -> Any:
        return outcomes if is_large else at_once(_answer(request, iter(outcomes)))

    answer = EachAnswer(services.config.request_timeout_ms, written, respond)
    answer.hold()
    for marker in request.markers:
        decision = ControlType.COMMIT if marker.transaction_result else ControlType.ABORT
        producer = marker.producer_id, marker.producer_epoch, marker.coordinator_epoch
        how = AppendOrigin.COORDINATOR, brought_by_marker(marker.transaction_version)
        made = bytes(control_batch(decision, *producer, now_ms))
        yield
        for topic in marker.topics:
            yield
            for partition in topic.partition_indexes:
                place = len(answer.results)
                if topic.name == OFFSETS_TOPIC:
                    decisions[place] = partition, marker.producer_id, marker.transaction_result
                # Each log writes its offsets into its own.
                replicas.append(topic.name, partition, bytearray(made), ALL_IN_SYNC, now_ms, answer, *how)
                answer.tell(place)
                yield
    answered = answer.release()
    return _answer_in_turns(request, answered) if is_large else answered


async def _answer_in_turns(
    request: WriteTxnMarkersRequest, answered: Awaitable[Sequence[Outcome]]
) -> WriteTxnMarkersResponse:
    return await finished(in_turns(_answer(request, iter(await answered))))


def _answer(request: WriteTxnMarkersRequest, outcomes: Iterator[Outcome]) -> Work[WriteTxnMarkersResponse]:
    markers = []
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            partitions = []
            for partition in topic.partition_indexes:
                partitions.append(_result(partition, next(outcomes)))
                yield
            topics.append(WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
            yield
        markers.append(WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        yield
    return WriteTxnMarkersResponse(markers=markers)


def _result(partition: int, outcome: Outcome) -> WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult:
    error = outcome.code if isinstance(outcome, KafkaError) else ErrorCode.NONE
    return WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(partition_index=partition, error_code=error)
