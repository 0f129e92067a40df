"""Snapshot files of a log."""

from pathlib import Path

from kbroker.segment.files import Files, Folder
from kbroker.segment.producer_snapshots import ProducerSnapshots, snapshot_offsets
from kbroker.segment.producer_state import ProducerState


def test_a_snapshot_is_not_taken_twice_and_goes_when_it_shows_too_much(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(Files(), Folder(str(tmp_path)))
    state = ProducerState()
    assert snapshots.take(state, 10) == f"{10:020d}.snapshot"
    assert snapshots.take(state, 10) is None
    assert snapshots.take(state, 20) is not None
    assert snapshot_offsets([path.name for path in tmp_path.iterdir()]) == [10, 20]
    assert snapshots.load_newest(state, 0, 15, 0, 1000) == 10
    assert snapshots.offsets == [10]
    snapshots.remove_all()
    assert not list(tmp_path.iterdir())
