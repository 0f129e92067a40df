"""Random histories of a log against a model that is a list of records."""

import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kbroker.protocol.records.batch import split_batches
from kbroker.protocol.records.record import decode_batch
from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from tests.segment.batches import NOW, batch, new_log, reopen

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=60, retention_ms=-1, file_delete_delay_ms=0)


class LogMachine(RuleBasedStateMachine):
    """The model: `batches` is a list of (first offset, count, timestamp), the log start and what is flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)
        self.log: Log
        self.batches: list[tuple[int, int, int]] = []
        self.start = 0
        self.end = 0
        self.flushed = 0
        self.epoch = 0

    @initialize()
    def create(self) -> None:
        self.log = new_log(self.path, CONFIG)

    @rule(count=st.integers(1, 5), size=st.integers(0, 100), timestamp=st.integers(NOW, NOW + 1000))
    def append(self, count: int, size: int, timestamp: int) -> None:
        result = self.log.append_as_leader(batch(count, size, timestamp), self.epoch, NOW)
        assert result.base_offset == self.end
        self.batches.append((self.end, count, timestamp))
        self.end += count
        self.log.update_high_watermark(self.end)

    @rule()
    def next_epoch(self) -> None:
        self.epoch += 1
        self.log.assign_leader_epoch(self.epoch)

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        first = data.draw(st.sampled_from(self.batches))[0]
        self.log.truncate_to(first)
        self.batches = [each for each in self.batches if each[0] < first]
        self.end = first
        self.start = min(self.start, first)
        self.flushed = min(self.flushed, first)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.start = self.log.delete_records(offset)
        assert self.start == offset
        self.log.retention(NOW)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.end

    @rule(torn=st.integers(0, 200))
    def crash_with_a_torn_tail(self, torn: int) -> None:
        """Everything that was not flushed may be cut, at any byte, but never more than that."""
        self.log.write_pending()
        active = Path(self.log.active_segment.file.path)
        base = self.log.active_segment.base_offset
        safe = self.log.active_segment.find(self.flushed) if self.flushed > base else 0
        self.log.discard()
        data = active.read_bytes()
        active.write_bytes(data[: max(len(data) - torn, safe)])
        self.reopen(clean=False)
        end = self.log.log_end_offset
        assert self.flushed <= end <= self.end
        self.batches = [each for each in self.batches if each[0] < end]
        self.end = end
        if self.start > end:  # it was moved into what is lost now
            self.start = self.log.log_start_offset

    @rule()
    def stop_and_start(self) -> None:
        self.log.flush()
        self.flushed = self.end
        self.log.close()
        self.reopen(clean=True)

    def reopen(self, clean: bool) -> None:
        self.log = reopen(
            self.path, CONFIG, clean=clean, recovery_point=self.flushed, log_start_offset=min(self.start, self.flushed)
        )
        self.log.update_log_start_offset(self.start)
        self.log.update_high_watermark(self.log.log_end_offset)

    @invariant()
    def everything_can_be_read(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        kept = [each for each in self.batches if each[0] + each[1] > self.start]
        found = []
        offset = self.start
        while offset < self.end:
            data = self.log.read(offset, 300).read()
            for position, size in split_batches(data):
                records = decode_batch(data, position, size)
                found.append((records[0].offset, len(records), records[0].timestamp))
                offset = records[-1].offset + 1
        assert found == kept

    @invariant()
    def timestamps_lead_to_the_first_record_that_is_late_enough(self) -> None:
        if not hasattr(self, "log"):
            return
        for target in (NOW, NOW + 300, NOW + 999):
            expected = next(
                (
                    first + number
                    for first, count, timestamp in self.batches
                    for number in range(count)
                    if timestamp + number >= target and first + number >= self.start
                ),
                None,
            )
            found = self.log.offset_for_timestamp(target)
            assert (found.offset if found else None) == expected

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
        self.folder.cleanup()


TestLogMachine = pytest.mark.slow(LogMachine.TestCase)
TestLogMachine.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
