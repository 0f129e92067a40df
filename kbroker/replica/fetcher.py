"""What one follower's connection to one leader fetches, and what it makes of the answers. Pure: no socket, no log.

    partition      FETCHING    asked for in every round, from its log's end on
                   BACKING OFF left out after an error until its pause is over
    session        (0, 0) full · (id, 1), (id, 2), … only what has changed · (id, 0) full again, after an error

The client's half of KIP-227: a round names the partitions that are new, whose offset has moved, or that are left out
from now on; the leader remembers the others and answers only where there is news. Truncation is asked of the leader by
the fetch itself (KIP-595): the epoch of the last record goes along, and a diverging epoch comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.fetch import FetchRequest, FetchResponse
from kbroker.replica.fetch_sessions import INITIAL_EPOCH, MAX_EPOCH, NO_SESSION

if TYPE_CHECKING:
    from kbroker.replica.hosted import HostedPartition

FIRST_REPLICA_STATE_VERSION = 15
FIRST_PAUSE_MS = 50
"""After the first error; doubled with each that follows, up to replica.fetch.backoff.ms: most errors mean that this
broker has heard of a new leader before the leader itself has."""

PartitionData = FetchResponse.PartitionData
WireKey = tuple[bytes, int]
"""(topic id, partition), as requests and answers name it."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The keys `replica.fetch.*`."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 << 20
    partition_max_bytes: int = 1 << 20
    backoff_ms: int = 1000


class FetchedPartition:
    """Where one partition is fetched."""

    __slots__ = (
        "asked_offset",
        "due_ms",
        "fetch_offset",
        "hosted",
        "is_caught_up",
        "is_in_session",
        "is_told",
        "last_fetched_epoch",
        "leader_epoch",
        "leader_high_watermark",
        "log_start_offset",
        "partition",
        "pause_ms",
        "topic_id",
    )

    def __init__(
        self,
        hosted: HostedPartition,
        leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        log_start_offset: int,
    ) -> None:
        self.hosted = hosted
        self.topic_id = hosted.topic_id
        self.partition = hosted.partition
        self.leader_epoch = leader_epoch
        self.fetch_offset = fetch_offset
        """The local log's end."""
        self.last_fetched_epoch = last_fetched_epoch
        """Leader epoch of the last record in the local log, -1 when there is none."""
        self.log_start_offset = log_start_offset
        self.asked_offset = -1
        """What the leader was asked for; an answer for anything else is of no use."""
        self.is_in_session = False
        self.leader_high_watermark = -1
        """As last heard; -1 before."""
        self.is_caught_up = False
        """Whether the log reached the leader's high watermark with the last answer."""
        self.is_told = False
        """Whether the log has the line that says what it waits for."""
        self.due_ms = 0
        """When the pause after an error is over."""
        self.pause_ms = 0
        """The last pause; 0 while all is well."""

    def stands_at(self, log_end_offset: int, latest_epoch: int, log_start_offset: int) -> bool:
        """The local log is like this now; True when that is news to the leader."""
        known = (self.fetch_offset, self.last_fetched_epoch, self.log_start_offset)
        self.fetch_offset, self.last_fetched_epoch = log_end_offset, latest_epoch
        self.log_start_offset = log_start_offset
        return known != (log_end_offset, latest_epoch, log_start_offset)

    @property
    def key(self) -> WireKey:
        """As the leader names it."""
        return self.topic_id, self.partition

    def __repr__(self) -> str:
        return repr(self.hosted)


class Answered(NamedTuple):
    """What a leader answered for a partition that still is where it was when the leader was asked."""

    fetched: FetchedPartition
    data: PartitionData


class Fetcher:
    """The partitions fetched from one leader through one session.

    A round is `request`, then `answered` (or `session_lost`); for each partition answered `moved` or `back_off`.
    """

    def __init__(self, broker_id: int, limits: FetchLimits, version: int) -> None:
        self._broker_id = broker_id
        self._limits = limits
        self._version = version
        self.partitions: dict[WireKey, FetchedPartition] = {}
        self._changed: dict[WireKey, FetchedPartition] = {}
        """To be named in the next request."""
        self._backing_off: dict[WireKey, FetchedPartition] = {}
        self._forgotten: dict[WireKey, None] = {}
        """In the leader's session, and no longer wanted."""
        self._in_session = 0
        self.session_id = NO_SESSION
        self.session_epoch = INITIAL_EPOCH

    # --- partitions -------------------------------------------------------------------------------------------

    def add(self, fetched: FetchedPartition) -> None:
        """Fetch this partition from the next round on; what was known of it before is forgotten."""
        self.remove(fetched.key)
        self.partitions[fetched.key] = self._changed[fetched.key] = fetched

    def remove(self, key: WireKey) -> bool:
        """Fetch this partition no more; False when it was not fetched."""
        fetched = self.partitions.pop(key, None)
        if fetched is None:
            return False
        self._changed.pop(key, None)
        self._backing_off.pop(key, None)
        self._leave_session(fetched)
        return True

    def is_current(self, fetched: FetchedPartition) -> bool:
        """Whether this partition is still fetched, and has not been started anew."""
        return self.partitions.get(fetched.key) is fetched

    def moved(self, fetched: FetchedPartition, log_end_offset: int, latest_epoch: int, log_start_offset: int) -> None:
        """The local log is like this now: go on behind it."""
        fetched.pause_ms = 0
        if fetched.stands_at(log_end_offset, latest_epoch, log_start_offset):
            self._changed[fetched.key] = fetched

    def back_off(self, fetched: FetchedPartition, now_ms: int) -> None:
        """Leave the partition out for a while; each time in a row for longer."""
        longest = self._limits.backoff_ms
        pause_ms = fetched.pause_ms = min(max(fetched.pause_ms * 2, FIRST_PAUSE_MS), longest)
        self.hold_back(fetched, now_ms + pause_ms)

    def hold_back(self, fetched: FetchedPartition, until_ms: int) -> None:
        """Leave the partition out until then."""
        fetched.due_ms = until_ms
        self._changed.pop(fetched.key, None)
        self._backing_off[fetched.key] = fetched
        self._leave_session(fetched)

    def _leave_session(self, fetched: FetchedPartition) -> None:
        fetched.asked_offset = -1
        if fetched.is_in_session:
            fetched.is_in_session = False
            self._in_session -= 1
            self._forgotten[fetched.key] = None

    def next_due_ms(self) -> int | None:
        """When the first of the pauses is over, None when no partition makes one."""
        return min((fetched.due_ms for fetched in self._backing_off.values()), default=None)

    # --- requests ---------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to ask for, until another partition comes or one's pause is over."""
        return len(self.partitions) == len(self._backing_off)

    def changed(self, now_ms: int) -> list[FetchedPartition]:
        """The partitions that the next request will name; `hold_back` those that have to wait."""
        for key, fetched in list(self._backing_off.items()):
            if fetched.due_ms <= now_ms:
                del self._backing_off[key]
                self._changed[key] = fetched
        return list(self._changed.values())

    def request(self, now_ms: int, broker_epoch: int) -> FetchRequest | None:
        """Return the next request, None when there is nothing to fetch now."""
        changed = self.changed(now_ms)
        if self.session_epoch == INITIAL_EPOCH:
            self._forgotten.clear()
            changed = [fetched for key, fetched in self.partitions.items() if key not in self._backing_off]
        if not changed and not self._in_session:
            return None
        self._changed.clear()
        for fetched in changed:
            fetched.asked_offset = fetched.fetch_offset
            if not fetched.is_in_session:
                fetched.is_in_session = True
                self._in_session += 1
                self._forgotten.pop(fetched.key, None)
        forgotten, self._forgotten = list(self._forgotten), {}
        return self._make_request(changed, forgotten, now_ms, broker_epoch)

    def _make_request(
        self, changed: Sequence[FetchedPartition], forgotten: Sequence[WireKey], now_ms: int, broker_epoch: int
    ) -> FetchRequest:
        limits = self._limits
        max_wait_ms = limits.max_wait_ms
        due_ms = self.next_due_ms()
        if due_ms is not None:
            max_wait_ms = max(min(max_wait_ms, due_ms - now_ms), 0)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=self._topics(changed),
            forgotten_topics_data=_forgotten_topics(forgotten),
        )
        if self._version < FIRST_REPLICA_STATE_VERSION:
            request.replica_id = self._broker_id
        else:
            request.replica_state = FetchRequest.ReplicaState(replica_id=self._broker_id, replica_epoch=broker_epoch)
        return request

    def _topics(self, changed: Sequence[FetchedPartition]) -> list[FetchRequest.FetchTopic]:
        topics: dict[bytes, list[FetchRequest.FetchPartition]] = {}
        for fetched in changed:
            partitions = topics.get(fetched.topic_id)
            if partitions is None:
                partitions = topics[fetched.topic_id] = []
            partitions.append(
                FetchRequest.FetchPartition(
                    partition=fetched.partition,
                    current_leader_epoch=fetched.leader_epoch,
                    fetch_offset=fetched.fetch_offset,
                    last_fetched_epoch=fetched.last_fetched_epoch,
                    log_start_offset=fetched.log_start_offset,
                    partition_max_bytes=self._limits.partition_max_bytes,
                )
            )
        return [FetchRequest.FetchTopic(topic_id=topic_id, partitions=items) for topic_id, items in topics.items()]

    # --- answers ----------------------------------------------------------------------------------------------

    def answered(self, response: FetchResponse) -> list[Answered]:
        """Return what is of use in an answer; raises KafkaError when the leader refused the request as a whole."""
        code = response.error_code
        if code is not ErrorCode.NONE:
            self.session_lost()
            if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = NO_SESSION
            raise KafkaError(code)
        answered = self._match(response)
        if self.session_epoch == INITIAL_EPOCH:
            self._open_session(response)
        elif response.session_id == self.session_id:
            self.session_epoch = 1 if self.session_epoch == MAX_EPOCH else self.session_epoch + 1
        else:  # the leader has closed it
            self.session_lost()
            self.session_id = NO_SESSION
        return answered

    def _open_session(self, response: FetchResponse) -> None:
        answered = sum(len(topic.partitions) for topic in response.responses)
        if response.session_id != NO_SESSION and answered >= self._in_session:
            self.session_id = response.session_id
            self.session_epoch = 1
        else:  # no room for a session, or a partition that the leader has left out
            self.session_lost()
            self.session_id = NO_SESSION

    def _match(self, response: FetchResponse) -> list[Answered]:
        found = []
        for topic in response.responses:
            topic_id = bytes(topic.topic_id)
            for data in topic.partitions:
                fetched = self.partitions.get((topic_id, data.partition_index))
                if fetched is not None and fetched.asked_offset == fetched.fetch_offset:
                    found.append(Answered(fetched, data))
        return found

    def session_lost(self) -> None:
        """The connection broke, or the session makes no sense: the next request names every partition."""
        self.session_epoch = INITIAL_EPOCH
        self._in_session = 0
        self._forgotten.clear()
        for fetched in self.partitions.values():
            fetched.is_in_session = False


def _forgotten_topics(keys: Sequence[WireKey]) -> list[FetchRequest.ForgottenTopic]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in keys:
        topics.setdefault(topic_id, []).append(partition)
    return [FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=items) for topic_id, items in topics.items()]
