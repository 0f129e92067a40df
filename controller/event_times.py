"""How long the controller's events wait and take, by the kinds that Kafka's ControllerStats tell apart."""

from __future__ import annotations

from kbroker.controller import events
from kbroker.protocol.distribution import Distribution

KINDS: dict[type[object], str] = {
    events.BrokersListed: "LeaderElection",
    events.ControllerElected: "ControllerChange",
    events.TopicsListed: "TopicChange",
    events.TopicsModified: "TopicChange",
    events.TopicDeletionsListed: "TopicDeletion",
    events.StopReplicaAnswered: "TopicDeletion",
    events.LogDirsFailed: "LogDirChange",
    events.IsrChangesNotified: "IsrChange",
    events.AlterPartitionCalled: "IsrChange",
    events.LeaderAndIsrAnswered: "LeaderAndIsrResponseReceived",
    events.LegacyReassignmentsFound: "AlterPartitionReassignment",
    events.ReassignmentsCalled: "AlterPartitionReassignment",
    events.LegacyElectionsFound: "ManualLeaderBalance",
    events.ElectLeadersCalled: "ManualLeaderBalance",
    events.RebalanceDue: "AutoLeaderBalance",
    events.ControlledShutdownCalled: "ControlledShutdown",
    events.UncleanElectionEnabled: "UncleanLeaderElectionEnable",
}
"""Kafka's words: brokers that come and go are its LeaderElection."""


class EventTimes:
    """In milliseconds, of all terms."""

    def __init__(self) -> None:
        self.waited = Distribution()
        """Until its turn; each job of the controller is one."""
        self.by_kind = {kind: Distribution() for kind in dict.fromkeys(KINDS.values())}

    def add(self, event: events.Event, seconds: float) -> None:
        """An event was handled, with all that follows from it."""
        kind = KINDS.get(type(event))
        if kind is not None:
            self.by_kind[kind].add(seconds * 1000)
