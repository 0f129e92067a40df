"""Who becomes leader: Kafka's four strategies (pure). Each gives the new state, its leader epoch one higher."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from kbroker.controller.znodes import RECOVERING, PartitionState, ReplicaAssignment


class Strategy(Enum):
    """Why there is an election."""

    OFFLINE = "offline"
    """The leader is gone, or there never was one. Unclean only where that is allowed."""
    UNCLEAN = "unclean"
    """As OFFLINE, unclean allowed whatever the topic says: an administrator wants it."""
    REASSIGN = "reassign"
    """The leader is not among the replicas that a reassignment leaves."""
    PREFERRED = "preferred"
    """Back to the first replica of the assignment."""
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    """The leader is about to stop."""


@dataclass(frozen=True, slots=True)
class Elected:
    """An election's outcome: the state to be written, and who is to hear of it."""

    state: PartitionState
    recipients: tuple[int, ...]


def needs_unclean(state: PartitionState, is_online: Callable[[int], bool]) -> bool:
    """Whether nobody in the ISR can lead."""
    return not any(map(is_online, state.isr))


def elect(
    strategy: Strategy,
    state: PartitionState,
    assignment: ReplicaAssignment,
    is_online: Callable[[int], bool],
    *,
    serving: Collection[int] = (),
    shutting_down: Collection[int] = (),
    unclean_allowed: bool = False,
    controller_epoch: int = 0,
) -> Elected | None:
    """The outcome, None when nobody can lead.

    For a controlled shutdown: `serving`, the replicas online or shutting down, and the brokers `shutting_down`.
    """
    replicas = assignment.replicas
    if strategy is Strategy.REASSIGN:
        elected = _first(assignment.target, state.isr, is_online)
        return _keep_isr(state, elected, assignment.target, controller_epoch)
    if strategy is Strategy.PREFERRED:
        elected = _first(replicas[:1], state.isr, is_online)
        return _keep_isr(state, elected, replicas, controller_epoch)
    if strategy is Strategy.CONTROLLED_SHUTDOWN:
        return _for_shutdown(state, replicas, serving, shutting_down, controller_epoch)
    return _offline(state, replicas, is_online, unclean_allowed or strategy is Strategy.UNCLEAN, controller_epoch)


def _first(candidates: Sequence[int], isr: Collection[int], is_online: Callable[[int], bool]) -> int | None:
    return next((each for each in candidates if each in isr and is_online(each)), None)


def _keep_isr(
    state: PartitionState, leader: int | None, recipients: tuple[int, ...], controller_epoch: int
) -> Elected | None:
    if leader is None:
        return None
    return Elected(_led_by(state, leader, state.isr, controller_epoch), recipients)


def _led_by(state: PartitionState, leader: int, isr: tuple[int, ...], controller_epoch: int) -> PartitionState:
    return replace(
        state, leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1, controller_epoch=controller_epoch
    )


def _for_shutdown(
    state: PartitionState,
    replicas: tuple[int, ...],
    serving: Collection[int],
    shutting_down: Collection[int],
    controller_epoch: int,
) -> Elected | None:
    isr = tuple(each for each in state.isr if each not in shutting_down)
    leader = next((each for each in replicas if each in serving and each in isr), None)
    if leader is None:
        return None
    recipients = tuple(each for each in replicas if each in serving)
    return Elected(_led_by(state, leader, isr, controller_epoch), recipients)


def _offline(
    state: PartitionState,
    replicas: tuple[int, ...],
    is_online: Callable[[int], bool],
    unclean_allowed: bool,
    controller_epoch: int,
) -> Elected | None:
    recipients = tuple(filter(is_online, replicas))
    leader = next((each for each in recipients if each in state.isr), None)
    if leader is not None:
        isr = tuple(filter(is_online, state.isr))
        return Elected(_led_by(state, leader, isr, controller_epoch), recipients)
    if not unclean_allowed or not recipients:
        return None
    leader = recipients[0]
    unclean = replace(_led_by(state, leader, (leader,), controller_epoch), leader_recovery_state=RECOVERING)
    return Elected(unclean, recipients)
