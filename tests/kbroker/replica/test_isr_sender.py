from __future__ import annotations

import asyncio

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.replication import AlterPartitionRequest, AlterPartitionResponse
from kbroker.replica.hosted import HostedPartition
from kbroker.replica.replication import Replication
from tests.fixtures.copies import Copies, until
from tests.fixtures.data_path import TOPIC, TOPIC_ID, Played


class Controller:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[AlterPartitionRequest] = []
        self.answers: asyncio.Queue[AlterPartitionResponse | Exception] = asyncio.Queue()

    async def __call__(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.asked.append(request)
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def answer(
        self, error: ErrorCode = ErrorCode.NONE, isr: tuple[int, ...] = (1,), partition: int = 0, top: int = 0
    ) -> None:
        data = AlterPartitionResponse.PartitionData(
            partition_index=partition, error_code=error, leader_id=1, leader_epoch=0, isr=list(isr), partition_epoch=1
        )
        topic = AlterPartitionResponse.TopicData(topic_id=TOPIC_ID, partitions=[data])
        self.answers.put_nowait(AlterPartitionResponse(error_code=ErrorCode(top), topics=[topic]))


def partitions_of(request: AlterPartitionRequest) -> list[int]:
    return [each.partition_index for topic in request.topics for each in topic.partitions]


async def leading(played: Played, *partitions: int) -> Controller:
    """A leader whose followers have been away for too long."""
    await played.lead(partitions, replicas=(1, 2, 3))
    controller = Controller()
    replication = played.replicas.replication = Replication(played.replicas, controller)
    for partition in partitions:
        hosted = played.replicas.hosted[TOPIC, partition]
        (proposal,) = hosted.state.check_isr(played.now + 100_000, 0)
        replication.carry_out(hosted, proposal)
    await until(lambda: len(controller.asked) == 1)
    return controller


async def proposing(played: Played) -> tuple[Controller, HostedPartition]:
    """A leader that proposes follower 2, whose broker epoch is 77 when it is heard."""
    await played.lead((0,), leader_epoch=1, replicas=(1, 2, 3), isr=(1,), partition_epoch=1)
    controller = Controller()
    replication = played.replicas.replication = Replication(played.replicas, controller)
    hosted = played.replicas.hosted[TOPIC, 0]
    (proposal,) = hosted.state.follower_fetched(2, 0, 0, played.now, (1, 2, 3), 0, broker_epoch=77)
    replication.carry_out(hosted, proposal)
    return controller, hosted


async def test_the_controller_is_told_in_which_life_a_follower_was_heard(played: Played) -> None:
    controller, _ = await proposing(played)
    await until(lambda: len(controller.asked) == 1)
    (wanted,) = controller.asked[0].topics[0].partitions
    assert [(each.broker_id, each.broker_epoch) for each in wanted.new_isr_with_epochs] == [(1, 7), (2, 77)]


async def test_a_follower_that_has_come_back_is_not_taken_for_what_it_was_when_it_was_proposed(played: Played) -> None:
    controller, hosted = await proposing(played)
    assert hosted.state.follower_fetched(2, 0, 0, played.now, (1, 2, 3), 0, broker_epoch=99) == []
    for tries in (1, 2):
        await until(lambda tries=tries: len(controller.asked) == tries)  # type: ignore[misc]
        (wanted,) = controller.asked[-1].topics[0].partitions
        assert [each.broker_epoch for each in wanted.new_isr_with_epochs] == [7, 77]
        controller.answers.put_nowait(ConnectionError("the controller is gone"))


async def test_an_accepted_change_is_taken_over(played: Played) -> None:
    controller = await leading(played, 0)
    (wanted,) = controller.asked[0].topics[0].partitions
    assert [member.broker_id for member in wanted.new_isr_with_epochs] == [1]
    assert {member.broker_epoch for member in wanted.new_isr_with_epochs} == {7}
    assert (controller.asked[0].broker_epoch, wanted.leader_epoch, wanted.partition_epoch) == (7, 0, 0)
    controller.answer()
    state = played.replicas.hosted[TOPIC, 0].state
    await until(lambda: state.isr == (1,))
    assert (state.partition_epoch, state.proposed_isr) == (1, None)


async def test_what_comes_while_a_request_is_under_way_goes_with_the_next(played: Played) -> None:
    controller = await leading(played, 0, 1, 2)
    assert [partitions_of(request) for request in controller.asked] == [[0, 1, 2]]
    controller.answer(partition=1)
    await until(lambda: len(controller.asked) == 2)
    assert partitions_of(controller.asked[1]) == [0, 2]


async def test_a_controller_that_cannot_be_reached_is_asked_again(played: Played) -> None:
    controller = await leading(played, 0)
    controller.answers.put_nowait(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    await until(lambda: len(controller.asked) == 2)
    controller.answer(top=ErrorCode.NOT_CONTROLLER)
    await until(lambda: len(controller.asked) == 3)
    controller.answer()
    await until(lambda: played.replicas.hosted[TOPIC, 0].state.isr == (1,))


async def test_a_refusal_ends_the_proposal_and_another_error_repeats_it(played: Played) -> None:
    controller = await leading(played, 0)
    controller.answer(ErrorCode.UNKNOWN_SERVER_ERROR)
    await until(lambda: len(controller.asked) == 2)
    controller.answer(ErrorCode.INELIGIBLE_REPLICA)
    state = played.replicas.hosted[TOPIC, 0].state
    await until(lambda: state.proposed_isr is None)
    assert state.isr == (1, 2, 3)


async def test_what_is_refused_for_no_known_reason_is_asked_for_again_after_a_pause(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbroker.replica.isr_sender.RETRY_PAUSE_S", 60.0)
    controller = await leading(played, 0)
    controller.answer(ErrorCode.UNKNOWN_SERVER_ERROR)
    await until(controller.answers.empty)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(controller.asked) == 1


async def test_a_proposal_of_an_epoch_that_is_over_is_not_repeated(played: Played) -> None:
    controller = await leading(played, 0)
    await played.lead(leader=2, leader_epoch=1, partition_epoch=1, replicas=(1, 2, 3))
    controller.answers.put_nowait(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    await asyncio.sleep(0.2)
    assert len(controller.asked) == 1


async def test_followers_that_come_back_join_the_isr_one_after_the_other(copies: Copies) -> None:
    await copies.elect(1, isr=(1,), is_new=True)
    await until(lambda: sorted(copies.hosted(1).state.isr) == [1, 2, 3])
    assert len(copies.proposed) in (1, 2)
    assert copies.hosted(1).state.proposed_isr is None
