"""Members of groups that kafka-python makes."""

from typing import Any

from tests.faults.cluster_view import until

LIMIT_S = 60.0


def until_it_knows(member: Any, topic: str, partitions: int) -> None:
    """Wait until one that has subscribed to the topic knows it; it is polled, and so joins, after that.

    Who leads may otherwise share out nothing and never look again; or join anew for the metadata that came meanwhile:
    where a poll ends before that is over, kafka-python 3.0 forgets it: no more heartbeats, until its session expires.
    """
    until(lambda: len(member.partitions_for_topic(topic) or ()) >= partitions, f"{topic} is not known", LIMIT_S)
