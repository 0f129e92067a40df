"""Kafka's own tool reads our files."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kbroker.segment.log_config import LogConfig
from tests.segment.batches import NOW, batch, new_log

ANCHOR = Path(__file__).parents[3] / "shared" / "kafka-anchor.sh"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ANCHOR.exists() or shutil.which("mvn") is None, reason="needs Kafka's jars"),
]


def dump(*arguments: str) -> str:
    command = ["bash", str(ANCHOR), "tool", "kafka.tools.DumpLogSegments", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kafka_dump_log_finds_nothing_wrong_with_our_files(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(segment_bytes=4000, index_interval_bytes=300))
    for number in range(100):
        sequence = 2 * number
        data = batch(2, timestamp=NOW + number, producer_id=5, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader(data, number // 30, NOW)
    log.close()
    by_suffix = {
        suffix: ",".join(sorted(str(path) for path in log.directory.glob(f"*{suffix}")))
        for suffix in (".log", ".index", ".timeindex", ".snapshot")
    }
    text = dump("--deep-iteration", "--files", by_suffix[".log"])
    assert text.count("| offset:") == 200
    assert "isvalid: false" not in text
    indexes = f"{by_suffix['.index']},{by_suffix['.timeindex']}"
    text = dump("--index-sanity-check", "--files", indexes)
    assert text.count("passed sanity check") == 2 * len(log.segments)
    assert "Found" not in dump("--verify-index-only", "--files", indexes)
    assert "producerId: 5" in dump("--files", by_suffix[".snapshot"])
