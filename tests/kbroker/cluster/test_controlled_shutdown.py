"""Leaderships are handed over before a stop, as far as the controller can."""

from typing import Any

from kbroker.cluster.controlled_shutdown import hand_over
from kbroker.config.broker_config import BrokerConfig
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.replication import ControlledShutdownRequest, ControlledShutdownResponse

Remaining = ControlledShutdownResponse.RemainingPartition
CONFIG = BrokerConfig(controlled_shutdown_max_retries=3, controlled_shutdown_retry_backoff_ms=1)


class Controller:
    """Gives one answer after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[ControlledShutdownRequest] = []

    async def __call__(self, request: ControlledShutdownRequest, timeout_s: float) -> Any:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def answer(*remaining: int) -> ControlledShutdownResponse:
    left = [Remaining(topic_name="orders", partition_index=each) for each in remaining]
    return ControlledShutdownResponse(error_code=ErrorCode.NONE, remaining_partitions=left)


async def test_it_is_asked_again_while_partitions_remain_or_nobody_answers() -> None:
    controller = Controller(KafkaError(ErrorCode.NOT_CONTROLLER), answer(1), answer())
    assert await hand_over(controller, 7, iter((42, 42, 43)).__next__, CONFIG)
    assert [(each.broker_id, each.broker_epoch) for each in controller.asked] == [(7, 42), (7, 42), (7, 43)]


async def test_it_is_given_up_after_the_configured_number_of_attempts() -> None:
    controller = Controller(*(answer(1) for _ in range(5)))
    assert not await hand_over(controller, 7, lambda: 42, CONFIG)
    assert len(controller.asked) == 3
