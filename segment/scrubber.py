"""Reads closed segments again and again, so that a disk that rots is noticed while other replicas still have the data.

    a round     all closed segments there are when it begins, in a drawn order, below a rate; first only whether each
                ends where the next one begins (holes.py)
    aborts      a transaction index that does not know of all that was aborted gets what it lacks (lost_aborts.py)
    damage      named in the log, counted, told to whoever can mend it (replica/segment_mender.py); the segment is not
                trusted any more, so that readers check what they are given and never get a damaged batch as data

Segments are read from the disk, past the page cache (disk_reader.py). A round begins when the broker starts and
`log.scrub.interval.ms` after the one before it began; one that takes longer is followed by the next at once; what
somebody wants to be read now has rounds of its own (wanted_scrubs.py). The active segment is left to its writer.
"""

from __future__ import annotations

import errno
import logging
import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.batch import verify_crc
from kbroker.protocol.records.message_set import has_header, read_any_header
from kbroker.segment.disk_reader import DiskReader
from kbroker.segment.files import Buffer
from kbroker.segment.holes import hole_behind
from kbroker.segment.log import Log
from kbroker.segment.log_health import CLOSED
from kbroker.segment.log_manager import LogManager
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.lost_aborts import AbortMarkers, enter_lost_aborts
from kbroker.segment.threads import become_nicer
from kbroker.segment.throttle import Throttle

log = logging.getLogger(__name__)

_CHUNK_BYTES = 256 << 10
_LARGEST_BATCH = 100 << 20
_END_BYTES = 4096
"""That finding a segment's end costs, about: one interval of its index."""
_LOOK_AGAIN_S = 1.0
"""How often a scrubber that waits looks whether a round is due by now."""
_ROTTEN = frozenset({"EIO", "EBADMSG", "EUCLEAN", "ENODATA", "EREMOTEIO", "ENOENT"})
"""Errors that tell of the file; others (no descriptors, no memory) tell of the machine."""


@dataclass(frozen=True, slots=True)
class LogScrubberSettings:
    """The broker's keys that concern scrubbing."""

    log_scrub_interval_ms: int = 604_800_000
    """0: no scrubbing."""
    log_scrub_max_bytes_per_second: float = 10 << 20


class Damage(NamedTuple):
    """Where a closed segment cannot be read."""

    log: Log
    segment: LogSegment
    position: int
    """Of the first bad batch, bytes."""
    offset: int
    """The one behind the last batch that is good; records from here on may be lost."""
    end_offset: int
    """Where the next segment begins."""
    why: str
    truncations: int
    """Of the log when the segment was read."""
    is_hole: bool = False
    """All that is there is good; what came behind it is gone."""

    def __str__(self) -> str:
        return (
            f"{self.segment.place}, position {self.position}: {self.why} "
            f"(of {self.log.name}, offsets from {self.offset} on, at most to {self.end_offset - 1})"
        )


class Look(NamedTuple):
    """What came of reading a segment."""

    is_read: bool
    """Whether it was read to its end or to what is damaged, or left its log; False: nobody knows whether it is good."""
    damage: Damage | None = None


class LogScrubber:
    """Scrubs the logs of a LogManager in a thread of its own, from `start` to `stop`. Any thread may call anything."""

    def __init__(
        self,
        logs: LogManager,
        settings: LogScrubberSettings | None = None,
        on_damage: Callable[[Damage], None] = lambda damage: None,
        seed: int | None = None,
    ) -> None:
        """Nothing happens before start(). `on_damage` is called by the scrubber's thread."""
        self.settings = settings or LogScrubberSettings()
        self.bytes_read = 0
        self.damages = 0
        """How often damage was found, that of a segment found again included."""
        self.rounds = 0
        """That have ended."""
        self._logs = logs
        self._on_damage = on_damage
        self._rng = random.Random(seed)
        self._counting = threading.Lock()
        self._throttle = Throttle(self.settings.log_scrub_max_bytes_per_second)
        """One for all rounds together."""
        self._stopping = threading.Event()
        self._begun: float | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        if self.settings.log_scrub_interval_ms > 0:
            self._thread = threading.Thread(target=self._run, args=(self._stopping,), name="log-scrubber")
            self._thread.start()

    def reconfigure(self, settings: LogScrubberSettings) -> None:
        """Go on with other settings; a round under way begins anew. Does not wait."""
        if settings == self.settings:
            return
        self._stopping.set()
        self.settings = settings
        self._throttle = Throttle(settings.log_scrub_max_bytes_per_second)
        self._stopping = threading.Event()
        self.start()

    def stop(self) -> None:
        """Give up the round under way and end the thread; blocks until it has."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, stopping: threading.Event) -> None:
        become_nicer()
        while not stopping.is_set():
            now = time.monotonic()
            if self._begun is None or now - self._begun >= self.settings.log_scrub_interval_ms / 1000:
                self._begun = now
                self.scrub_all(stopping)
            stopping.wait(min(self.settings.log_scrub_interval_ms / 1000, _LOOK_AGAIN_S))

    def scrub_all(self, stopping: threading.Event | None = None) -> list[Damage]:
        """Do one round; returns what is damaged."""
        stopping = stopping or self._stopping
        places = [(each, segment) for each in list(self._logs.logs.values()) for segment in each.segments[:-1]]
        self._rng.shuffle(places)
        found: list[Damage] = []
        for each, segment in places:
            if stopping.is_set():
                return found
            self._throttle.take(_END_BYTES, stopping)
            hole = self.look_behind(each, segment)
            if hole is not None:
                found.append(hole)
        for each, segment in places:
            if stopping.is_set():
                return found
            damage = self.look_at(each, segment, stopping).damage
            if damage is not None:
                found.append(damage)
        self.rounds += 1
        return found

    def look_at(self, owner: Log, segment: LogSegment, stopping: threading.Event) -> Look:
        """Read a closed segment; what is damaged is named, counted and told."""
        try:
            look = self._scrub(owner, segment, stopping)
        except Exception:
            log.exception("%s: scrubbing it failed; the others are scrubbed", segment.place)
            return Look(is_read=False)
        if look.damage is not None:
            self._tell(look.damage)
        return look

    def look_behind(self, owner: Log, segment: LogSegment) -> Damage | None:
        """Whether offsets are missing between a segment and the next one; they are named, counted and told."""
        truncations = owner.truncations
        try:
            hole = hole_behind(owner, segment)
        except Exception:
            log.exception("%s: looking for its end failed; the others are looked at", segment.place)
            return None
        if hole is None or not _is_still_there(owner, segment, truncations):
            return None
        position, offset, end_offset = hole
        why = "the next segment does not begin where it ends: a file is gone, or a part of it"
        damage = Damage(owner, segment, position, offset, end_offset, why, truncations, is_hole=True)
        self._tell(damage)
        return damage

    def _scrub(self, owner: Log, segment: LogSegment, stopping: threading.Event) -> Look:
        truncations, segments = owner.truncations, owner.segments
        if segment not in segments[:-1]:
            return Look(is_read=owner.failure in (None, CLOSED))
        end_offset = segments[segments.index(segment) + 1].base_offset
        walk = BatchWalk(segment.base_offset, end_offset)
        try:
            why = self._walk(owner, segment, walk, stopping)
        except OSError as error:
            if errno.errorcode.get(error.errno or 0) not in _ROTTEN:
                raise
            why = f"it cannot be read: {error}"
        if not why:
            if not walk.aborts.are_all_in_index(segment):
                enter_lost_aborts(owner, segment)
            return Look(is_read=walk.position >= segment.size or owner.failure == CLOSED)
        if not _is_still_there(owner, segment, truncations):
            return Look(is_read=owner.failure in (None, CLOSED))
        position, offset = walk.suspect or (walk.position, walk.expected)
        return Look(True, Damage(owner, segment, position, offset, end_offset, why, truncations))

    def _walk(self, owner: Log, segment: LogSegment, walk: BatchWalk, stopping: threading.Event) -> str:
        """Read the segment to its end, or to what is wrong; returns that."""
        wanted = _CHUNK_BYTES
        with closing(DiskReader(segment.pool.files, segment.file.path)) as reader:
            while walk.position < segment.size and owner.failure is None and not stopping.is_set():
                left = segment.size - walk.position
                size = min(wanted, left)
                self._throttle.take(size, stopping)
                data = reader.read(size, walk.position)
                with self._counting:
                    self.bytes_read += size
                good, why = walk.take(data)
                if why:
                    return why
                wanted = _CHUNK_BYTES
                if not good:  # a batch that is longer than what was read, or the file's end within one
                    wanted = read_any_header(data, 0).size if has_header(data, 0) else 0
                    if not size < wanted <= min(left, _LARGEST_BATCH):
                        return f"the last {left} bytes begin with no whole batch"
        return ""

    def _tell(self, damage: Damage) -> None:
        with self._counting:
            self.damages += 1
        damage.segment.distrust()
        log.error("damaged: %s", damage)
        try:
            self._on_damage(damage)
        except Exception:
            log.exception("%s: nobody could be told of the damage", damage.log.name)


def _is_still_there(owner: Log, segment: LogSegment, truncations: int) -> bool:
    """Whether what was read is the log's: it may have been cut, compacted or removed under our hands."""
    try:
        with owner.changing("scrub"):  # who removes files says so a little later, with the lock held
            return owner.truncations == truncations and segment in owner.segments[:-1]
    except KafkaError:
        return False


class BatchWalk:
    """Where a reader of batches stands, who checks them piece by piece. (Pure.)"""

    __slots__ = ("aborts", "end_offset", "expected", "position", "suspect")

    def __init__(self, base_offset: int, end_offset: int | None = None) -> None:
        self.end_offset = end_offset
        """Where the next segment begins, None: nobody knows."""
        self.aborts = AbortMarkers()
        self.position = 0
        """Behind the last batch that was whole and good, bytes."""
        self.expected = base_offset
        """The smallest offset that may come."""
        self.suspect: tuple[int, int] | None = None
        """(position, offset expected there) of the last good batch, if it left a gap, as compaction leaves them:
        checksums do not cover base offsets, so where offsets do not ascend, this is the one that lies."""

    def take(self, data: Buffer) -> tuple[int, str]:
        """Check the whole batches at the front of data: (their bytes, what is wrong behind them or "").

        A batch that is cut off at the end is not wrong.
        """
        here = 0
        while has_header(data, here):
            try:
                header = read_any_header(data, here)
            except KafkaError as error:
                self.suspect = None
                return here, error.message
            if header.size > len(data) - here:
                break
            if not verify_crc(data, here, header.size):
                self.suspect = None
                return here, f"the batch at offset {header.base_offset} does not match its checksum"
            if header.base_offset < self.expected:
                return here, f"offset {header.base_offset} follows {self.expected - 1}"
            if self.end_offset is not None and header.last_offset >= self.end_offset:
                self.suspect = None
                return here, f"offset {header.last_offset} belongs into the next segment"
            self.suspect = (self.position, self.expected) if header.base_offset > self.expected else None
            self.expected = header.last_offset + 1
            self.position += header.size
            self.aborts.take(header, data, here)
            here += header.size
        return here, ""
