"""DescribeProducers: what partitions know of their producers, among them who has a transaction open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Generator

from kbroker.cluster.topic_names import name_problem
from kbroker.handlers.committed_offsets import each_once
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import READ, on_topics
from kbroker.handlers.registry import handles
from kbroker.protocol.codec import ElementWriter
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.transactions import DescribeProducersRequest, DescribeProducersResponse
from kbroker.replica.hosted import HostedPartition
from kbroker.replica.turns import in_turns
from kbroker.segment.producer_state import ProducerEntry

Response = DescribeProducersResponse
Work = Generator[None, None, DescribeProducersResponse]


def _is_misnamed(topic: DescribeProducersRequest.TopicRequest, times: Counter[str]) -> bool:
    return name_problem(topic.name) is not None


@handles(DescribeProducersRequest, on_topics(READ, leaving=_is_misnamed), ends_with_connection=True)
def describe_producers(
    services: Services, ctx: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse | Awaitable[DescribeProducersResponse]:
    """List the producers of each partition that this broker hosts, leader or follower; of one named often, once."""
    return in_turns(_describe(services, ctx.api_version, request))


def _describe(services: Services, version: int, request: DescribeProducersRequest) -> Work:
    topics = ElementWriter(Response, version)
    named = yield from each_once(request.topics)
    for name, partitions in named.items():
        yield
        answers = ElementWriter(Response, version)
        problem = name_problem(name)
        for partition in partitions:
            yield
            if problem is not None:
                error = KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
            else:
                found = services.replicas.find(name, partition)
                if isinstance(found, HostedPartition):
                    answers.append((yield from _partition(found, partition, version)))
                    continue
                error = KafkaError(found)
            answers.append(
                Response.PartitionResponse(
                    partition_index=partition,
                    error_code=error.code,
                    error_message=error.message or None,
                    active_producers=[],
                )
            )
        topics.append(Response.TopicResponse(name=name, partitions=answers.array()))
    return Response(topics=topics.array())


def _partition(
    hosted: HostedPartition, partition: int, version: int
) -> Generator[None, None, DescribeProducersResponse.PartitionResponse]:
    producers = ElementWriter(Response, version)
    for entry in list(hosted.log.producers.state.producers.values()):
        producers.append(_producer(entry))
        yield
    return Response.PartitionResponse(
        partition_index=partition, error_code=ErrorCode.NONE, active_producers=producers.array()
    )


def _producer(entry: ProducerEntry) -> DescribeProducersResponse.ProducerState:
    return Response.ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.batches[-1].last_sequence if entry.batches else -1,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_first_offset,
    )
