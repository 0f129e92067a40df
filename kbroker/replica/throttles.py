"""How fast replicas may be copied (KIP-73): by leaders, by followers, between the log directories of a broker. Pure.

    which replicas   topic keys   leader.replication.throttled.replicas, follower.replication.throttled.replicas
                                  partition:broker,… or *
    how fast         broker keys  leader.replication.throttled.rate, follower.replication.throttled.rate,
                                  replica.alter.log.dirs.io.max.bytes.per.second
    measured over    broker keys  [alter.log.dirs.]replication.quota.window.num and .window.size.seconds

What is over the rate is counted all the same and waits afterwards: the average over the windows keeps to the rate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.config.broker_config import BrokerConfig
    from kbroker.segment.log_config import LogConfig

SHORTEST_PAUSE_MS = 10
ALL = None
"""Instead of a set of partitions."""


class ReplicationThrottle:
    """The rate of one direction of replication, and the replicas that it holds for.

    `throttled_replicas(topic)` gives the topic's list as it is now, `rate()` the bytes per second allowed now.
    """

    def __init__(
        self,
        broker_id: int,
        throttled_replicas: Callable[[str], tuple[str, ...]],
        rate: Callable[[], int],
        samples: int,
        sample_ms: int,
    ) -> None:
        self._broker_id = broker_id
        self._throttled_replicas = throttled_replicas
        self._rate = rate
        self._window = RateWindow(samples, sample_ms)
        self._parsed: dict[str, tuple[tuple[str, ...], frozenset[int] | None]] = {}

    def is_throttled(self, topic: str, partition: int) -> bool:
        """Whether the rate holds for this broker's replica of the partition."""
        replicas = self._throttled_replicas(topic)
        if not replicas:
            return False
        known = self._parsed.get(topic)
        if known is None or known[0] is not replicas:
            known = self._parsed[topic] = (replicas, throttled_partitions(replicas, self._broker_id))
        partitions = known[1]
        return partitions is ALL or partition in partitions

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether more than the rate was copied: throttled replicas have to wait."""
        return self._window.per_second(now_ms) > self._rate()

    def record(self, size: int, now_ms: int) -> None:
        """Count the bytes copied for throttled replicas."""
        self._window.record(size, now_ms)

    def pause_ms(self, now_ms: int) -> int:
        """How long to wait before it is worth asking `is_exceeded` again: at most the length of one sample."""
        return self._window.pause_ms(self._rate(), now_ms)


class RateWindow:
    """Bytes per second over the last `samples` samples of `sample_ms` each, as Kafka's SimpleRate counts them."""

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._samples: deque[_Sample] = deque(maxlen=samples + 1)
        """The oldest first: one more than asked for, the one that only overlaps the window."""
        self._sample_ms = sample_ms
        self._length_ms = samples * sample_ms

    def record(self, size: int, now_ms: int) -> None:
        """Count bytes."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._sample_ms:
            samples.append(_Sample(now_ms))
        samples[-1].size += size
        samples[-1].last_ms = now_ms

    def per_second(self, now_ms: int) -> float:
        """Return the rate; a window that has only begun counts as one sample long."""
        total, elapsed_ms = self._measure(now_ms)
        return total * 1000 / elapsed_ms

    def pause_ms(self, rate: int, now_ms: int) -> int:
        """How long until the average falls to `rate`, at least 10 ms, at most one sample."""
        total, elapsed_ms = self._measure(now_ms)
        pause_ms = self._sample_ms if rate <= 0 else total * 1000 // rate - elapsed_ms
        return min(max(pause_ms, SHORTEST_PAUSE_MS), self._sample_ms)

    def _measure(self, now_ms: int) -> tuple[int, int]:
        samples = self._samples
        while samples and now_ms - samples[0].last_ms >= self._length_ms:
            samples.popleft()
        if not samples:
            return 0, self._sample_ms
        return sum(sample.size for sample in samples), max(now_ms - samples[0].start_ms, self._sample_ms)


class _Sample:
    __slots__ = ("last_ms", "size", "start_ms")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = now_ms
        self.last_ms = now_ms
        self.size = 0


def replication_throttles(
    broker_id: int, config: Callable[[], BrokerConfig], topic_config: Callable[[str], LogConfig]
) -> tuple[ReplicationThrottle, ReplicationThrottle, ReplicationThrottle]:
    """Return a broker's throttles as leader, as follower and between its log directories; all follow `config()`."""
    samples, sample_ms = config().replication_quota_window_num, config().replication_quota_window_size_seconds * 1000
    leader = ReplicationThrottle(
        broker_id,
        lambda topic: topic_config(topic).leader_replication_throttled_replicas,
        lambda: config().leader_replication_throttled_rate,
        samples,
        sample_ms,
    )
    follower = ReplicationThrottle(
        broker_id,
        lambda topic: topic_config(topic).follower_replication_throttled_replicas,
        lambda: config().follower_replication_throttled_rate,
        samples,
        sample_ms,
    )
    log_dirs = ReplicationThrottle(
        broker_id,
        lambda topic: ("*",),
        lambda: config().replica_alter_log_dirs_io_max_bytes_per_second,
        config().alter_log_dirs_replication_quota_window_num,
        config().alter_log_dirs_replication_quota_window_size_seconds * 1000,
    )
    return leader, follower, log_dirs


def throttled_partitions(replicas: tuple[str, ...], broker_id: int) -> frozenset[int] | None:
    """Return the partitions whose replica on this broker is throttled; ALL for `*`."""
    if replicas == ("*",):
        return ALL
    pairs = (replica.split(":") for replica in replicas)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)
