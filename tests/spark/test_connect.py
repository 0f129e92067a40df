"""The source through Spark Connect: the client knows nothing of it, the server finds it by itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.spark.test_read import PARTITIONS, ROWS, create, send

pytest.importorskip("grpc")
pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("spark_home")]
JOB = Path(__file__).with_name("connect_job.py")
LIMIT_S = 500


def test_topics_are_read_streamed_and_written_through_connect(
    broker: BrokerProcess, topic_name: str, tmp_path: Path
) -> None:
    create(broker, topic_name)
    create(broker, f"{topic_name}-copy")
    send(broker, topic_name)
    arguments = [sys.executable, str(JOB), broker.bootstrap, topic_name, str(tmp_path / "checkpoint")]
    environment = {name: text for name, text in os.environ.items() if name != "SPARK_REMOTE"}
    done = subprocess.run(arguments, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr[-5_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {
        "session": "pyspark.sql.connect.session",
        "read": ROWS,
        "columns": ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"],
        "view": ROWS // PARTITIONS,
        "streamed": ROWS,
        "written": ROWS + ROWS // PARTITIONS,
        "the setting alone": [ROWS // PARTITIONS, ROWS, ROWS // PARTITIONS],
        "enabled": [ROWS + ROWS // PARTITIONS, ROWS + 2 * ROWS // PARTITIONS],
    }
