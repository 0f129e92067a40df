"""Tests for kbroker.verify.history: events survive the file, and damaged lines are named."""

import io
from pathlib import Path

import pytest

from kbroker.verify.history import (
    DamagedHistory,
    Event,
    Recorder,
    decode,
    encode,
    read_history,
    settings_of,
    write_history,
)


def test_an_event_survives_its_line() -> None:
    event = Event(3, 7, "ok", "poll", [["poll", {"t:0": [[5, 17]]}]], 99, {"rebalances": ["t:0"], "final": True})
    assert decode(encode(event), 1) == event


def test_a_recorder_numbers_and_times_what_all_threads_tell_it() -> None:
    ticks = iter(range(100, 200, 10))
    file = io.StringIO()
    recorder = Recorder(file, now=lambda: next(ticks))
    recorder.record(1, "invoke", "send", [["send", "t:0", 1]], error=None)
    recorder.record(1, "fail", "send", [["send", "t:0", 1]], error="no")
    lines = [decode(line, 0) for line in file.getvalue().splitlines()]
    assert [(line.index, line.time, line.more) for line in lines] == [(0, 10, {}), (1, 20, {"error": "no"})]


def test_a_last_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    events = [Event(0, 1, "invoke", "poll", [["poll"]], 1), Event(1, 1, "ok", "poll", [["poll", {}]], 2)]
    write_history(path, events)
    path.write_bytes(path.read_bytes()[:-20])
    assert list(read_history(path)) == events[:1]


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"index": 0}\n{}\n')
    with pytest.raises(DamagedHistory, match="line 1 is no event"):
        list(read_history(path))


def test_settings_of_a_folder_without_any_are_empty(tmp_path: Path) -> None:
    assert settings_of(tmp_path) == {}
    (tmp_path / "test.json").write_text('{"workload": "txn"}')
    assert settings_of(tmp_path) == {"workload": "txn"}
