"""What Spark calls around the tasks of a write."""

import logging
import pickle

import pytest

from kbroker.spark_connector.write_options import WriteOptions

writer = pytest.importorskip("kbroker.spark_connector.writer")
row_sender = pytest.importorskip("kbroker.spark_connector.row_sender")
sink_layout = pytest.importorskip("kbroker.spark_connector.sink_layout")
OPTIONS, LAYOUT = WriteOptions("h:1", topic="t"), sink_layout.SinkLayout(names=("value",), value="value")


@pytest.mark.slow
def test_commit_and_abort_tell_what_the_tasks_wrote(caplog: pytest.LogCaptureFixture) -> None:
    message = pickle.loads(pickle.dumps(row_sender.RowsWritten(5, 400, {("t", 0): (0, 2), ("t", 1): (7, 8)})))
    stream, batch = writer.StreamWriter(OPTIONS, LAYOUT), writer.BatchWriter(OPTIONS, LAYOUT)
    with caplog.at_level(logging.INFO):
        batch.commit([message, message])
        stream.commit([message], 17)
        stream.abort([message, None], 18)
        batch.abort([None])
    assert "wrote 10 rows (800 bytes) to 2 partitions in 2 tasks" in caplog.text
    assert "micro-batch 17: wrote 5 rows" in caplog.text
    assert "micro-batch 18 failed; tasks that succeeded wrote 5 rows" in caplog.text
    assert "the write failed; tasks that succeeded wrote 0 rows" in caplog.text
