"""The partitions that a consumer reads: the one owner of what is fetched, decoded and given of them (no I/O).

    fetched: state.chunks  ->  decoded: ahead  ->  given to the application  ->  done, as soon as it asks for more

Who waits for an answer about a partition keeps its state and the state's generation: a seek, and the end of a state,
count that up. A partition that goes and comes back has another state, so nothing that was asked for the first is taken
for the second. What is to be done with a partition is noted when it changes; nothing here looks at all of them but
what asks for all.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kbroker.client.partition_state import UNKNOWN_EPOCH, PartitionState
from kbroker.client.types import TopicPartition
from kbroker.protocol.records.record import Record

UNKNOWN_OFFSET = -1


class Run(NamedTuple):
    """Decoded records of one partition, in their order."""

    state: PartitionState
    records: deque[Record]


class Assignment:
    """Lives with its consumer; one thread changes it, but for `taken` and the records of the first run."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}
        self.states: Mapping[TopicPartition, PartitionState] = MappingProxyType(self._states)
        self.ahead: deque[Run] = deque()
        """Decoded and not given yet."""
        self.taken: Record | None = None
        """What an iterator gave last."""
        self.calls = 0
        """Counts how often the application has asked for records."""
        self.unplaced: dict[PartitionState, None] = {}
        """Those whose position is not known."""
        self.hungry: OrderedDict[PartitionState, None] = OrderedDict()
        """Those that more could be asked for."""
        self.full: dict[PartitionState, None] = {}
        """Those for which first must be delivered what is there."""
        self.paused: dict[PartitionState, None] = {}
        self.buffered_bytes = 0
        """What is in memory: an answer counts as a whole as long as any of it waits to be decoded."""
        self._ready: OrderedDict[PartitionState, None] = OrderedDict()
        self._given: dict[PartitionState, int] = {}
        """What the last call gave, from which offset on."""

    # --- which partitions -------------------------------------------------------------------------------------

    def begin(self, key: TopicPartition, reset_to: int | None = None, offset: int | None = None) -> PartitionState:
        """Read a partition from a place or an offset; if it is read already, as if it were not."""
        self.drop([key])
        state = self._states[key] = PartitionState(key, offset, reset_to)
        state.owner = self
        self.sort(state)
        return state

    def keep_only(self, keys: Iterable[TopicPartition], reset_to: int) -> None:
        """Read these partitions: those that are read go on, others begin at a place."""
        wanted = dict.fromkeys(keys)
        self.drop(self._states.keys() - wanted)
        for key in wanted:
            if key not in self._states:
                self.begin(key, reset_to)

    def drop(self, keys: Iterable[TopicPartition]) -> None:
        """Read some partitions no more; what waits of them is forgotten."""
        for key in list(keys):
            state = self._states.pop(key, None)
            if state is not None:
                self._forget_ahead(state)
                state.retire()
                for found in (self._ready, self.hungry, self.unplaced, self.full, self.paused):
                    found.pop(state, None)

    def sort(self, state: PartitionState) -> None:
        """Note what is to be done with a partition now."""
        is_hungry = state.is_readable and not state.is_full
        for found, belongs in (
            (self._ready, state.is_ready),
            (self.hungry, is_hungry),
            (self.unplaced, state.offset < 0),
            (self.full, state.is_readable and not is_hungry),
            (self.paused, state.paused),
        ):
            if belongs:
                found.setdefault(state, None)
            else:
                found.pop(state, None)

    # --- what is to be delivered ------------------------------------------------------------------------------

    def next_ready(self, *, with_problems: bool) -> PartitionState | None:
        """Return whose turn it is to be delivered (or, with problems, to say what is wrong), partitions in turn."""
        for state in self._ready:
            if state.chunks or with_problems:
                self._ready.move_to_end(state)
                return state
        return None

    def put_ahead(self, state: PartitionState, records: Iterable[Record]) -> None:
        """Keep what was decoded."""
        run = Run(state, deque(records))
        if run.records:
            self.ahead.append(run)

    @property
    def records_ahead(self) -> int:
        """How many records are decoded and not given."""
        return sum(len(run.records) for run in self.ahead)

    def begin_call(self) -> None:
        """The application asks for more: what it was given is done."""
        self.calls += 1
        self.done()

    @property
    def has_given(self) -> bool:
        """Whether the last call gave something, or an iterator that gives it."""
        return bool(self._given or self.ahead)

    def done(self) -> None:
        """What was given is done."""
        self._given.clear()
        self.taken = None

    def done_before(self, key: TopicPartition, offset: int) -> None:
        """What was given of a partition is done up to an offset."""
        state = self._states.get(key)
        if state is not None and state in self._given:
            self._given[state] = max(offset, self._given[state])
        taken = self.taken
        if taken is not None and (taken.topic, taken.partition) == key and taken.offset < offset:
            self.taken = None

    def gives(self, state: PartitionState, offset: int) -> None:
        """The application gets what is of a partition from an offset on."""
        self._given.setdefault(state, offset)

    def take(self, limit: int) -> list[Record]:
        """Give up to `limit` records that are decoded."""
        records: list[Record] = []
        while self.ahead and len(records) < limit:
            state, run = self.ahead[0]
            if run:
                self.gives(state, run[0].offset)
            if len(run) <= limit - len(records):
                records += run
                self.ahead.popleft()
            else:
                records += [run.popleft() for _ in range(limit - len(records))]
        return records

    def first_run(self) -> deque[Record]:
        """Return the records that are decoded of one partition: whoever takes one off has been given it."""
        while self.ahead and not self.ahead[0].records:
            self.ahead.popleft()
        return self.ahead[0].records if self.ahead else deque()

    def take_back(self) -> None:
        """What was given last is not done: it is delivered again."""
        taken = self.taken
        if taken is not None and (state := self._states.get(TopicPartition(taken.topic, taken.partition))) is not None:
            self._given.setdefault(state, taken.offset)
        for state, offset in self._given.items():
            if self._states.get(state.key) is state and offset not in (UNKNOWN_OFFSET, self.position(state)):
                self._forget_ahead(state)
                state.go_back(offset)
        self.done()

    def give_back(self, keys: Iterable[TopicPartition] | None = None) -> None:
        """Have what is decoded and not given fetched again."""
        chosen = None if keys is None else set(keys)
        for state in {run.state for run in self.ahead if run.records}:
            if chosen is None or state.key in chosen:
                offset = self.position(state)
                self._forget_ahead(state)
                state.go_back(offset)

    # --- positions --------------------------------------------------------------------------------------------

    def positions(self) -> dict[TopicPartition, int]:
        """Return the next offset to give of each partition (-1: not known yet)."""
        found = {key: state.offset for key, state in self._states.items()}
        for state, records in reversed(list(self.ahead)):
            if records:
                found[state.key] = records[0].offset
        return found

    def position(self, state: PartitionState) -> int:
        """Return the next offset to give of a partition."""
        for run in self.ahead:
            if run.state is state and run.records:
                return run.records[0].offset
        return state.offset

    def move(
        self, state: PartitionState, offset: int | None, reset_to: int | None = None, epoch: int = UNKNOWN_EPOCH
    ) -> None:
        """Go on elsewhere, as the application wishes."""
        self._forget_ahead(state)
        self._given.pop(state, None)
        if self.taken is not None and (self.taken.topic, self.taken.partition) == state.key:
            self.taken = None
        state.move(offset, reset_to, epoch)

    def _forget_ahead(self, state: PartitionState) -> None:
        """Forget what is decoded of a partition; an iterator over it ends."""
        for run in [run for run in self.ahead if run.state is state]:
            run.records.clear()
