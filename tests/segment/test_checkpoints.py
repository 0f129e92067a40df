"""The small text files."""

from pathlib import Path

import pytest

from kbroker.segment import checkpoints
from kbroker.segment.checkpoints import MalformedCheckpoint
from kbroker.segment.files import Files
from tests.segment.batches import TOPIC_ID

FILES = Files()


def test_offsets_are_written_as_kafka_does(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    checkpoints.write_offsets(FILES, str(path), {("a", 0): 5, ("b-c", 12): 2**40})
    assert path.read_text() == f"0\n2\na 0 5\nb-c 12 {2**40}\n"
    assert checkpoints.read_offsets(FILES, str(path)) == {("a", 0): 5, ("b-c", 12): 2**40}
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_missing_or_empty_file_has_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert checkpoints.read_offsets(FILES, str(path)) == {}
    path.touch()
    assert checkpoints.read_offsets(FILES, str(path)) == {}


@pytest.mark.parametrize("text", ["1\n0\n", "0\n", "0\n2\na 0 5\n", "0\n1\na 0\n", "0\n1\na x 5\n", "\0\0\0"])
def test_damage_is_named_with_its_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "damaged"
    path.write_text(text)
    with pytest.raises(MalformedCheckpoint, match="damaged"):
        checkpoints.read_offsets(FILES, str(path))


def test_partition_metadata_has_kafkas_text(tmp_path: Path) -> None:
    path = tmp_path / "partition.metadata"
    path.write_bytes(checkpoints.topic_id_text(TOPIC_ID))
    assert path.read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert checkpoints.read_topic_id(FILES, str(path)) == TOPIC_ID
    for text in ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", "x"):
        path.write_text(text)
        with pytest.raises(MalformedCheckpoint):
            checkpoints.read_topic_id(FILES, str(path))


def test_properties_survive_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "meta.properties")
    assert checkpoints.read_properties(FILES, path) is None
    checkpoints.write_properties(FILES, path, {"version": "0", "broker.id": "3"})
    assert checkpoints.read_properties(FILES, path) == {"version": "0", "broker.id": "3"}
