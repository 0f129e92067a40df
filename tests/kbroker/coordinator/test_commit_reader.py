"""Plain commits read by the piece: compiled and interpreted alike, and what is not for this reader is left alone."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kbroker.coordinator.commit_reader as compiled
from kbroker.coordinator.group_offsets import CommittedOffset
from kbroker.coordinator.offsets_records import commit_key, commit_value, group_key
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.control import ControlType, control_batch
from tests.protocol.records import interpreted

FIRST = CommittedOffset(5, 2, "métadonnées", 1_700_000_000_000)
SECOND = CommittedOffset(7, -1, "", 1_700_000_000_001)


def from_source() -> ModuleType:
    """Return the module interpreted, on interpreted record modules."""
    interpreted.load()
    path = Path(compiled.__file__).with_name("commit_reader.py")
    names = "|".join(interpreted.NAMES)
    source = re.sub(rf"kbroker\.protocol\.records\.({names})\b", rf"{interpreted.ALIAS}.\1", path.read_text())
    module = ModuleType("interpreted_commit_reader")
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


@pytest.fixture(params=["as installed", "interpreted"])
def reader(request: pytest.FixtureRequest) -> Any:
    return (compiled if request.param == "as installed" else from_source()).CommitReader()


def batch(*records: tuple[bytes | None, bytes | None], base_offset: int = 0, **options: Any) -> bytes:
    builder = BatchBuilder(1 << 20, options.pop("compression", 0))
    for key, value in records:
        builder.append(key, value, (), 1)
    return bytes(builder.build(base_offset=base_offset, **options))


def resolved(reader: Any) -> dict[bytes, tuple[dict[Any, Any], dict[Any, Any]]]:
    reader.resolve(list(reader.commits.items()))
    places: dict[bytes, tuple[dict[Any, Any], dict[Any, Any]]] = reader.places
    return places


def test_commits_come_by_group_and_the_last_of_each_partition_counts(reader: Any) -> None:
    data = batch((commit_key("g", "t", 0), commit_value(FIRST)), (commit_key("h", "été", 9), commit_value(SECOND)))
    data += batch((commit_key("g", "t", 0), commit_value(SECOND)), base_offset=2)
    assert reader.read(data, 0, 0) == len(data)
    assert (reader.records, reader.next_offset) == (3, 3)
    assert resolved(reader) == {
        b"g": ({("t", 0): SECOND}, {("t", 0): 2}),
        b"h": ({("été", 9): SECOND}, {("été", 9): 1}),
    }
    assert isinstance(reader.places[b"g"][0]["t", 0], CommittedOffset)
    assert not reader.odd


def test_all_that_a_commit_says_is_read(reader: Any) -> None:
    reader.read(batch((commit_key("g", "t", 3), commit_value(FIRST))), 0, 0)
    assert resolved(reader)[b"g"][0]["t", 3] == FIRST


def test_batches_before_the_offset_are_passed_over(reader: Any) -> None:
    first = batch((commit_key("g", "t", 0), commit_value(FIRST)))
    data = first + batch((commit_key("g", "t", 1), commit_value(SECOND)), base_offset=1)
    assert reader.read(data, 0, 1) == len(data)
    assert reader.commits.keys() == {commit_key("g", "t", 1)}


def test_a_batch_that_is_cut_off_stays_for_the_next_piece(reader: Any) -> None:
    first = batch((commit_key("g", "t", 0), commit_value(FIRST)))
    data = first + batch((commit_key("g", "t", 1), commit_value(SECOND)), base_offset=1)
    assert reader.read(data[:-1], 0, 0) == len(first)
    assert reader.next_offset == 1


@pytest.mark.parametrize(
    "other",
    [
        batch((commit_key("g", "t", 1), commit_value(FIRST)), (group_key("g"), b"\0\3"), base_offset=1),
        batch((commit_key("g", "t", 1), commit_value(FIRST._replace(expire_timestamp=9))), base_offset=1),
        batch((b"\0\0" + commit_key("g", "t", 1)[2:], commit_value(FIRST)), base_offset=1),
        batch((None, commit_value(FIRST)), base_offset=1),
        batch((commit_key("g", "t", 1), commit_value(FIRST)), base_offset=1, compression=2),
        batch(
            (commit_key("g", "t", 1), commit_value(FIRST)),
            base_offset=1,
            producer_id=4,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        ),
        bytes(control_batch(ControlType.COMMIT, 4, 0, 0, 1)),
        batch((commit_key("g", "t", 1), commit_value(FIRST)), base_offset=1)[:-1] + b"\1",
        bytes(100),
    ],
    ids=["group", "expiry", "old key", "no key", "compressed", "transaction", "marker", "damaged", "zeros"],
)
def test_what_is_not_a_plain_commit_is_left_to_the_caller(reader: Any, other: bytes) -> None:
    first = batch((commit_key("g", "t", 0), commit_value(FIRST)))
    assert reader.read(first + other, 0, 0) == len(first)
    assert reader.next_offset == 1


def test_removals_and_nonsense_are_odd(reader: Any) -> None:
    removed, good = commit_key("g", "t", 0), commit_key("g", "t", 1)
    nonsense = [
        (b"\0\1\0", commit_value(FIRST)),
        (b"\0\1\xff\xff" + good[4:], commit_value(FIRST)),
        (good[:-1], commit_value(FIRST)),
        (good[:5] + b"\x7f\xff" + good[7:], commit_value(FIRST)),
        (b"\0\1\0\1\xff" + good[5:], commit_value(FIRST)),
        (good[:7] + b"\xff" + good[8:], commit_value(FIRST)),
        (commit_key("g", "t", 2), b"\0\3short"),
        (commit_key("g", "t", 3), commit_value(FIRST)[:-1]),
        (commit_key("g", "t", 4), commit_value(FIRST)[:14] + b"\x80\0" + commit_value(FIRST)[16:]),
        (commit_key("g", "t", 5), commit_value(FIRST)[:16] + b"\xff" + commit_value(FIRST)[17:]),
    ]
    data = batch((removed, commit_value(FIRST)), (removed, None), (good, commit_value(FIRST)), *nonsense)
    assert reader.read(data, 0, 0) == len(data)
    assert resolved(reader) == {b"g": ({("t", 1): FIRST}, {("t", 1): 2})}
    assert reader.odd[0] == (removed, (None, 1))
    assert [key for key, _ in reader.odd[1:]] == [key for key, _ in nonsense]
