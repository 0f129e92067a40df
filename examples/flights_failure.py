"""A broker that is killed in the middle of the job and comes back, and what that looked like."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kbroker import Admin
from kbroker.client.errors import BrokerError
from kbroker.client.types import PartitionDescription
from kbroker.dev.cluster import DevCluster

POLL_S = 0.05
LIMIT_S = 60.0


@dataclass
class Failure:
    """Kills a broker that leads some of the topic (kill -9), starts it again once others lead, watches it catch up."""

    cluster: DevCluster
    topic: str
    tell: Callable[[str], None]
    """Is told what is going on at the moment."""
    story: list[str] = field(default_factory=list)
    """What happened, for the end."""
    problem: Exception | None = None

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="failure", daemon=True)

    def begin(self, sent: int) -> None:
        """Kill it now, after so many flights; the rest goes on beside the caller."""
        with Admin(self.cluster.bootstrap) as admin:
            self._victim = max(1, self._partitions(admin)[0].leader or 0)
            led = sum(each.leader == self._victim for each in self._partitions(admin))
        self._killed = time.monotonic()
        self.cluster.broker(self._victim).kill()
        self._led = f"broker {self._victim} was killed (kill -9) after {sent:,} flights; it led {led} partitions"
        self.tell(f"broker {self._victim} is dead")
        self._thread.start()

    def finish(self) -> None:
        """Wait until the broker is back and in sync; raises what went wrong."""
        self._thread.join(2 * LIMIT_S)
        if self.problem is not None:
            raise self.problem

    def _run(self) -> None:
        try:
            others = ",".join(each.bootstrap for each in self.cluster.brokers if each.broker_id != self._victim)
            with Admin(others) as admin:
                self._until(admin, lambda each: each.leader not in (None, self._victim))
                self.story.append(f"{self._led}: others led them {self._seconds()} s later")
                self.tell(f"broker {self._victim} comes back")
                self._killed = time.monotonic()
                self.cluster.broker(self._victim).start().wait_until_ready(LIMIT_S)
                self._until(admin, lambda each: len(each.isr) == len(each.replicas))
                self.story.append(
                    f"broker {self._victim} came back and was in sync {self._seconds()} s after its start"
                )
                self.tell("")
        except Exception as error:
            self.problem = error

    def _seconds(self) -> str:
        return f"{time.monotonic() - self._killed:.1f}"

    def _partitions(self, admin: Admin) -> tuple[PartitionDescription, ...]:
        return admin.describe_topics([self.topic])[self.topic].partitions

    def _until(self, admin: Admin, holds: Callable[[PartitionDescription], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            try:
                if all(map(holds, self._partitions(admin))):
                    return
            except (BrokerError, OSError):
                pass  # whom we asked may not have heard of it yet
            time.sleep(POLL_S)
        raise TimeoutError(f"broker {self._victim}: the cluster was not well again within {LIMIT_S:g} s")
