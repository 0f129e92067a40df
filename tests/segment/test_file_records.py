"""A slice of a file on its way to a socket."""

import os
from pathlib import Path

import pytest

from kbroker.segment.file_records import FileRecords
from kbroker.segment.files import FilePool, Folder, PooledFile


@pytest.fixture
def file(tmp_path: Path) -> PooledFile:
    made = PooledFile(FilePool(capacity=1), Folder(str(tmp_path)), "f", create=True)
    made.write(b"0123456789", 0)
    return made


def test_a_slice_is_read_where_it_lies(file: PooledFile) -> None:
    records = FileRecords(file, 3, 4, 0)
    assert (len(records), records.read()) == (4, b"3456")
    assert os.pread(records.fileno(), len(records), records.position) == b"3456"
    records.release()
    assert FileRecords(file, 10, 0, 0).read() == b""


def test_a_pinned_slice_can_be_read_though_its_file_is_gone(file: PooledFile) -> None:
    records = FileRecords(file, 0, 10, 0)
    descriptor = records.fileno()
    assert records.fileno() == descriptor
    file.remove()
    assert os.pread(descriptor, 10, 0) == b"0123456789"
    records.release()
    records.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pread(descriptor, 1, 0)


def test_a_slice_that_is_dropped_lets_its_file_go(file: PooledFile) -> None:
    records = FileRecords(file, 0, 10, 0)
    descriptor = records.fileno()
    file.remove()
    del records
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pread(descriptor, 1, 0)
