"""Asks the controller for changes of ISRs (AlterPartition): one request at a time, all changes that wait in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.replication import AlterPartitionRequest, AlterPartitionResponse
from kbroker.replica.hosted import HostedPartition
from kbroker.replica.partition import ProposeIsr

if TYPE_CHECKING:
    from kbroker.replica.replica_manager import ReplicaManager

log = logging.getLogger(__name__)

RETRY_PAUSE_S = 0.05
MOST_NAMED = 5
"""Partitions a log line names."""

WireKey = tuple[bytes, int]
Proposals = dict[WireKey, tuple[HostedPartition, ProposeIsr]]
SendToController = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]


class IsrSender:
    """Takes proposals; gives the partitions the controller's answers."""

    def __init__(self, manager: ReplicaManager, send: SendToController) -> None:
        self._manager = manager
        self._send = send
        self._waiting: Proposals = {}
        self._wake = asyncio.Event()
        self._is_heard = True
        """Whether the controller took the last request."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="isr-changes")

    def propose(self, hosted: HostedPartition, proposal: ProposeIsr) -> None:
        """Ask for this ISR as soon as the request under way is answered; it goes instead of an earlier proposal."""
        self._waiting[hosted.topic_id, hosted.partition] = (hosted, proposal)
        self._wake.set()

    async def close(self) -> None:
        """End it; what waits is not asked for."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while self._waiting:
                    if not await self._round():
                        await asyncio.sleep(RETRY_PAUSE_S)
            except Exception:
                log.exception("a change of ISRs failed")
                await asyncio.sleep(RETRY_PAUSE_S)
                self._wake.set()

    async def _round(self) -> bool:
        """Ask for all that waits; False when it has to be asked again after a pause."""
        asked = {key: each for key, each in self._waiting.items() if self._is_wanted(*each)}
        self._waiting = dict(asked)
        if not asked:
            return True
        try:
            response = await self._send(_request(asked, self._manager.broker_id, self._manager.broker_epoch()))
            if response.error_code is not ErrorCode.NONE:
                raise KafkaError(response.error_code)
        except (OSError, KafkaError) as error:
            if self._is_heard:
                log.warning("the controller did not change %d ISR(s), asking again: %s", len(asked), error)
            self._is_heard = False
            return False
        self._is_heard = True
        refused = self._take(asked, response)
        return not any(key in self._waiting for key in refused)

    def _is_wanted(self, hosted: HostedPartition, proposal: ProposeIsr) -> bool:
        """Whether the partition still waits for this proposal: not so after a LeaderAndIsr request, or StopReplica."""
        state = hosted.state
        return state.proposed_isr == proposal.isr and state.leader_epoch == proposal.leader_epoch

    def _take(self, asked: Proposals, response: AlterPartitionResponse) -> Proposals:
        """Give the partitions their answers; return what was refused, to be asked for again at once or not."""
        changed: list[HostedPartition] = []
        refused: Proposals = {}
        totals = self._manager.totals
        for topic in response.topics:
            for answer in topic.partitions:
                key = (bytes(topic.topic_id), answer.partition_index)
                known = asked.get(key)
                if known is None:
                    continue
                if self._waiting.get(key) is known:
                    del self._waiting[key]
                hosted, proposal = known
                before = hosted.state.isr
                self._settle(hosted, proposal, answer)
                if answer.error_code is not ErrorCode.NONE:
                    refused[key] = known
                elif hosted.state.isr != before:
                    changed.append(hosted)
                    totals.isr_shrinks += len(hosted.state.isr) < len(before)
                    totals.isr_expands += len(hosted.state.isr) > len(before)
        totals.failed_isr_updates += len(refused)
        if changed:
            log.info("in sync now: %s", _named(changed))
        if refused:
            log.info("the controller left ISRs as they were: %s", _named([hosted for hosted, _ in refused.values()]))
        return refused

    def _settle(
        self, hosted: HostedPartition, proposal: ProposeIsr, answer: AlterPartitionResponse.PartitionData
    ) -> None:
        manager = self._manager
        state = hosted.state
        now_ms, alive = manager.steady(), manager.metadata.brokers
        if answer.error_code is not ErrorCode.NONE:
            log.debug("%s: the controller refuses ISR %s: %s", hosted, _text(proposal.isr), answer.error_code.name)
            manager.carry_out(hosted, state.isr_refused(proposal, answer.error_code, now_ms, alive))
            return
        instructions = state.isr_changed(tuple(answer.isr), answer.leader_epoch, answer.partition_epoch, now_ms, alive)
        manager.carry_out(hosted, instructions)
        hosted.changed()


def _named(partitions: Sequence[HostedPartition]) -> str:
    named = ", ".join(f"{each} {_text(each.state.isr)}" for each in partitions[:MOST_NAMED])
    return named + (f" and {len(partitions) - MOST_NAMED} more" if len(partitions) > MOST_NAMED else "")


def _text(isr: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, isr)) + "]"


def _request(proposals: Proposals, broker_id: int, broker_epoch: int) -> AlterPartitionRequest:
    topics: dict[bytes, list[AlterPartitionRequest.PartitionData]] = {}
    for (topic_id, partition), (_, proposal) in proposals.items():
        topics.setdefault(topic_id, []).append(
            AlterPartitionRequest.PartitionData(
                partition_index=partition,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=[
                    AlterPartitionRequest.BrokerState(
                        broker_id=member,
                        broker_epoch=broker_epoch if member == broker_id else proposal.broker_epochs.get(member, -1),
                    )
                    for member in proposal.isr
                ],
                partition_epoch=proposal.partition_epoch,
            )
        )
    return AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        topics=[
            AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
    )
