"""Members of groups that kafka-python makes."""

import time
from typing import Any

LIMIT_S = 60.0


def until_it_knows(member: Any, topic: str, partitions: int) -> None:
    """Wait until one that has subscribed to the topic knows it; it is polled, and so joins, after that.

    Who leads may otherwise share out nothing and never look again; or join anew for the metadata that came meanwhile:
    where a poll ends before that is over, kafka-python 3.0 forgets it: no more heartbeats, until its session expires.
    """
    deadline = time.monotonic() + LIMIT_S
    while len(member.partitions_for_topic(topic) or ()) < partitions:
        assert time.monotonic() < deadline, f"{topic} is not known"
        time.sleep(0.1)
