"""Kafka's own tool reads our files."""

from pathlib import Path

import pytest

from kbroker.segment.log_config import LogConfig
from tests.fixtures.java import JavaTool
from tests.segment.batches import NOW, batch, new_log

pytestmark = pytest.mark.slow
DUMP = "kafka.tools.DumpLogSegments"


def test_kafka_dump_log_finds_nothing_wrong_with_our_files(tmp_path: Path, java_tool: JavaTool) -> None:
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
    text = java_tool(DUMP, "--deep-iteration", "--files", by_suffix[".log"])
    assert text.count("| offset:") == 200
    assert "isvalid: false" not in text
    indexes = f"{by_suffix['.index']},{by_suffix['.timeindex']}"
    text = java_tool(DUMP, "--index-sanity-check", "--files", indexes)
    assert text.count("passed sanity check") == 2 * len(log.segments)
    assert "Found" not in java_tool(DUMP, "--verify-index-only", "--files", indexes)
    assert "producerId: 5" in java_tool(DUMP, "--files", by_suffix[".snapshot"])
