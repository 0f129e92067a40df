"""The controller as a part of its broker: one queue, one loop."""

from __future__ import annotations

from typing import Any

from controller.controller_config import ControllerConfig
from controller.ports import BrokerChannels
from controller.zookeeper import ZooKeeper


class ControllerRunner:
    """Runs for controller, and while it is one, feeds the machine and carries its instructions out."""

    def __init__(self, zookeeper: ZooKeeper, broker_id: int, channels: BrokerChannels, config: ControllerConfig) -> None:
        raise NotImplementedError

    async def start(self, broker_epoch: int) -> None:
        """Watch /controller and run for it. After the broker is registered; returns when the first election is over."""

    async def stop(self) -> None:
        """Resign if we are the controller, and stop."""

    def on_registered(self, broker_epoch: int) -> None:
        """The broker is registered again after an expired session (which the runner sees for itself): run again."""

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        raise NotImplementedError

    @property
    def controller_epoch(self) -> int:
        """Epoch of our term, 0 when we are not the controller."""
        raise NotImplementedError

    async def allocate_producer_ids(self, request: Any) -> Any:
        """AllocateProducerIdsRequest → AllocateProducerIdsResponse."""

    async def alter_partition(self, request: Any, version: int) -> Any:
        """AlterPartitionRequest → AlterPartitionResponse."""

    async def controlled_shutdown(self, request: Any, version: int) -> Any:
        """ControlledShutdownRequest → ControlledShutdownResponse."""

    async def elect_leaders(self, request: Any, version: int) -> Any:
        """ElectLeadersRequest → ElectLeadersResponse (does not wait for the metadata cache)."""

    async def alter_reassignments(self, request: Any) -> Any:
        """AlterPartitionReassignmentsRequest → AlterPartitionReassignmentsResponse."""

    async def list_reassignments(self, request: Any) -> Any:
        """ListPartitionReassignmentsRequest → ListPartitionReassignmentsResponse."""

    def unclean_election_enabled(self, topic: str | None) -> None:
        """A dynamic change turned unclean.leader.election.enable on: for one topic, or (None) by default."""
