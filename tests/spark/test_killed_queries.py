"""`exactlyOnce=true` in real Spark whose drivers and executors SIGKILL ends in each step: each row once, in the end.

Nothing stays open, and the last stable offset reaches the end.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbroker import Admin, Producer
from kbroker.client.plain_cluster import PlainCluster
from kbroker.client.plain_transactions import PlainTransactions
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.messages.offsets import LATEST
from tests.fixtures.spark import FLAGS, lay_out_spark_home
from tests.kbroker.client.topics import create_topic
from tests.spark.queries import too_slow
from tests.spark.test_exactly_once import values_of

pytest.importorskip("pyspark.sql.datasource")
RangeReader = pytest.importorskip("kbroker.client.range_reader").RangeReader
pytestmark = [pytest.mark.compat, pytest.mark.timeout(5400), pytest.mark.usefixtures("spark_flags")]
ROOT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("killed_job.py")
LIMIT_S = 600
TRIES = 4
STEPS = (
    "driver has begun",
    "task has flushed",
    "before the decision",
    "decision is sent",
    "decision is committed",
    "one task is committed",
    "all tasks are committed",
    "batch is done",
)
UNDECIDED = STEPS[:4]


class Query:
    """Numbers go into one topic, what the query makes of them into another."""

    def __init__(self, bootstrap: str, topic: str, folder: Path, frame: str) -> None:
        self.bootstrap, self.topic, self.target, self.folder = bootstrap, topic, f"{topic}-out", folder
        self.frame, self.sent = frame, 0
        self.wanted: list[int] = []
        """What one that was never killed writes."""
        create_topic(bootstrap, topic, partitions=2)
        create_topic(bootstrap, self.target, partitions=2)

    def send(self, count: int = 16) -> None:
        """Send more numbers, in transactions of which others are aborted."""
        more = range(self.sent, self.sent + count)
        with Producer(self.bootstrap, transactional_id=f"{self.topic}-input") as producer:
            for numbers in (more[: count // 2], None, more[count // 2 :]):
                producer.begin()
                for number in numbers or range(1_000, 1_010):
                    producer.send(self.topic, b"%d" % number, partition=number % 2)
                producer.abort() if numbers is None else producer.commit()
        self.sent += count
        if self.frame == "counts":
            self.wanted = [start * 1_000 + 2 for start in range(0, self.sent - 2, 2)]
        else:
            self.wanted += more

    def start(self, *wishes: str, tasks: int = 2, home: Path | None = None, **conf: str) -> subprocess.Popen[str]:
        """Start the query; `conf`: of Spark, with `_` for its dots."""
        for wish in wishes:
            (self.folder / wish).touch()
        job: dict[str, Any] = {
            "bootstrap": self.bootstrap,
            "topic": self.topic,
            "target": self.target,
            "frame": self.frame,
        }
        settings = {"spark.master": "local[2]"} | {f"spark.{key.replace('_', '.')}": each for key, each in conf.items()}
        job |= {"folder": str(self.folder), "tasks": tasks, "conf": settings}
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        if home is not None:
            environment["SPARK_HOME"] = str(home)
        return subprocess.Popen(
            [sys.executable, str(JOB), json.dumps(job)],
            env=environment,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *wishes: str, error: str = "", **more: Any) -> None:
        """Run the query to its end, to its death if one of the steps says so, or to this error."""
        for _ in range(TRIES):
            with self.start(*wishes, **more) as job:
                said = job.communicate(timeout=LIMIT_S)[1]
            if not too_slow(said):
                break
        status = -signal.SIGKILL if set(wishes) & set(STEPS) else bool(error)
        assert job.returncode == status, said[-5_000:]
        assert error in said
        assert not [wish for wish in wishes if (self.folder / wish).exists()], "it did not come that far"

    def visible(self) -> set[int]:
        """What readers see while transactions may be open."""
        with PlainCluster(self.bootstrap, {"isolation_level": "read_committed"}, retry_for=20) as cluster:
            ends = cluster.offsets(cluster.partitions([self.target]), LATEST, read_committed=True)
            readers = [RangeReader(cluster, *place, 0, end) for place, end in ends.items() if end]
            return {int(value) for each in readers for batch in each for value in batch["value"].to_pylist()}

    def check(self) -> None:
        """Each row is there once, nothing is open."""
        assert values_of(self.bootstrap, self.target) == sorted(self.wanted)
        with PlainCluster(self.bootstrap) as cluster:
            assert PlainTransactions(cluster).open_ones("kbroker-spark-") == []
            places = cluster.partitions([self.target])
            ends = cluster.offsets(places, LATEST, read_committed=False)
            assert cluster.offsets(places, LATEST, read_committed=True) == ends


@pytest.fixture
def make_query(broker: BrokerProcess, topic_name: str, tmp_path: Path) -> Callable[[str], Query]:
    return lambda frame: Query(broker.bootstrap, topic_name, tmp_path, frame)


@pytest.mark.parametrize(("frame", "steps"), [("counts", STEPS), ("joined", ("task has flushed", *STEPS[5:]))])
def test_rows_come_once_wherever_the_driver_is_killed(
    make_query: Callable[[str], Query], frame: str, steps: tuple[str, ...]
) -> None:
    query = make_query(frame)
    query.send()
    query.run()
    for number, step in enumerate(steps):
        known = set(query.wanted)
        query.send()
        query.run(step, tasks=2 + number % 3)
        if step in UNDECIDED:
            assert query.visible() <= known, step
    query.run()
    query.check()
    with Admin(query.bootstrap) as admin:
        told = admin.list_group_offsets(f"{query.target}-{frame}")
    assert len(told) == 2, "how far it has read is told"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where Spark's workers put their files, too."""
    return lay_out_spark_home(tmp_path / "spark-home")


@pytest.mark.parametrize("step", ["executor while it writes", "executor after its flush"])
def test_rows_come_once_when_an_executor_is_killed(make_query: Callable[[str], Query], home: Path, step: str) -> None:
    query = make_query("counts")
    query.send()
    query.run(step, home=home, master="local-cluster[2,1,1024]", executor_memory="512m")
    query.check()


def test_of_two_attempts_of_a_task_beside_each_other_one_counts(
    make_query: Callable[[str], Query], home: Path, tmp_path: Path
) -> None:
    query = make_query("plain")
    query.send()
    speculation = {"speculation": "true", "speculation_quantile": "0.5", "speculation_multiplier": "1.1"}
    with standalone(tmp_path, home) as master:
        query.run("one attempt stands still", home=home, master=master, executor_memory="512m", **speculation)
    assert (query.folder / "beside another").exists()
    query.check()


@contextmanager
def standalone(folder: Path, home: Path) -> Iterator[str]:
    """A master and two workers with addresses of their own: a second attempt runs on another host only."""
    environment = {**os.environ, "SPARK_HOME": str(home), "PYTHONPATH": str(ROOT)}
    [core] = (home / "jars").glob("spark-core_*.jar")
    environment["SPARK_SCALA_VERSION"] = core.name.split("_")[1].split("-")[0]
    modules = ("java.nio", "java.lang", "java.util", "java.net", "java.util.concurrent", "sun.nio.ch")
    opens = [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in modules]
    jvm = ["java", *FLAGS, "-Xmx256m", *opens, "-cp", f"{home}/jars/*"]
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, host: str, *arguments: str) -> Path:
        said = folder / f"{name} {host}.txt"
        command = [*jvm, f"org.apache.spark.deploy.{name}", "--host", host, "--port", "0", "--webui-port", "0"]
        with said.open("wb") as output:
            started.append(
                subprocess.Popen(
                    [*command, *arguments],
                    env=environment | {"SPARK_LOCAL_IP": host},
                    cwd=folder,
                    stdout=output,
                    stderr=output,
                )
            )
        return said

    try:
        said = start("master.Master", "127.0.0.1")
        wait_until(lambda: "Starting Spark master at spark://" in said.read_text())
        address = "spark://" + said.read_text().split("master at spark://")[1].split()[0]
        for host in ("127.0.0.2", "127.0.0.3"):
            start("worker.Worker", host, "-c", "1", "-m", "1g", "-d", str(folder / host), address)
        wait_until(lambda: said.read_text().count("Registering worker") == 2)
        yield address
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def test_of_two_drivers_on_one_checkpoint_one_is_shut_out_and_told_by_whom(make_query: Callable[[str], Query]) -> None:
    query = make_query("plain")
    query.send()
    with query.start("driver stands still") as old:
        wait_until((query.folder / "driver stands still - done").exists)
        query.run()
        (query.folder / "go on").touch()
        said = old.communicate(timeout=LIMIT_S)[1]
    assert old.returncode == 1, said[-5_000:]
    assert "batch 0 is not written: another driver has taken over the query" in said, said[-5_000:]
    assert "Two queries must not share a checkpoint" in said
    query.run()
    query.check()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
