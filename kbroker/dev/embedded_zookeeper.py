"""A real ZooKeeper for one machine: the server inside the jars that PySpark ships, run as a child process.

The data directory holds everything:

    zoo.cfg  log4j2.properties   written anew at each start
    version-2/                   ZooKeeper's own transaction logs and snapshots, kept between starts
    zookeeper.log                what the server wrote (zookeeper.log.1: before that)
    .lock                        held by the server: two on one directory would destroy its data

The server listens on loopback only and ends with the process that started it. Its transaction log isn't synced to
the disk at each change: what it acknowledged survives its own end and its parent's, not a power cut.
"""

import contextlib
import fcntl
import importlib.util
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from kbroker.dev.child_process import start_child
from kbroker.dev.free_ports import free_ports, is_port_free
from kbroker.dev.java import JavaNotFound, find_java
from kbroker.dev.zookeeper_child import HOST, ZooKeeperChild

MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
WITHOUT_JVM = "the stand-in, which needs neither: kbroker dev --zookeeper stand-in, kbroker zookeeper --stand-in"
NEEDED_JARS = ("zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java", "commons-cli", "commons-io")
OPTIONAL_JARS = (
    "log4j-slf4j2-impl",
    "log4j-api",
    "log4j-core",
    "netty-common",
    "netty-buffer",
    "netty-transport",
    "netty-handler",
    "netty-codec",
    "netty-codec-base",
    "netty-resolver",
    "netty-transport-classes-epoll",
    "netty-transport-native-unix-common",
)
JVM_FLAGS = (
    "-Xshare:auto",
    "-XX:TieredStopAtLevel=1",  # the quick compiler only: half the CPU time of a start
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xms8m",
    "-Xmx1g",  # it keeps the last 500 writes, of a megabyte each where somebody makes large nodes
    "-XX:+ExitOnOutOfMemoryError",  # rather than to hang
    "-Xss256k",
    "-Djava.net.preferIPv4Stack=true",
    "-Djute.maxbuffer=4194304",
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=1024",  # KB; the default of 64 MB makes each small data directory look large
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dlog4j2.disableJmx=true",
)
CONFIG = """\
tickTime={tick_time_ms}
minSessionTimeout={min_session_timeout_ms}
maxSessionTimeout=120000
dataDir={data_dir}
clientPort={port}
clientPortAddress={host}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr,conf
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""
LOG4J_CONFIG = """\
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
logger.connection.name=org.apache.zookeeper.server.ServerCnxn
logger.connection.level=off
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c{1})%n
"""
"""ServerCnxn has nothing to say but a NullPointerException when asked before the server is up."""

MAX_LOG_BYTES = 10 << 20
START_ATTEMPTS = 5
POLL_SECONDS = 0.01


class EmbeddedZooKeeperError(RuntimeError):
    """The embedded ZooKeeper cannot run: one line says why and what to do."""


class EmbeddedZooKeeper(ZooKeeperChild):
    """One ZooKeeper server on loopback, from `start` to `stop`; usable as a context manager."""

    name = "the embedded ZooKeeper"

    def __init__(self, data_dir: Path | str, port: int = 0, *, tick_time_ms: int = 250) -> None:
        """Name the data directory (made when missing) and the port; 0 picks a free one at the first start."""
        super().__init__(data_dir, port)
        self.tick_time_ms = tick_time_ms
        self._port_is_ours_to_choose = port == 0

    def start(self, timeout: float = 30.0) -> "EmbeddedZooKeeper":
        """Start the server and return once it serves; EmbeddedZooKeeperError when it cannot.

        A second start, after `stop` or `kill`, keeps the port and the data.
        """
        assert not self.is_running, "the embedded ZooKeeper runs already"
        if (self.data_dir / "stand-in").exists():
            raise EmbeddedZooKeeperError(
                f"{self.data_dir} holds the data of the stand-in for ZooKeeper, which a real one cannot read: "
                "run that (as --zookeeper stand-in does, and kbroker zookeeper --stand-in), or choose another directory"
            )
        deadline = time.monotonic() + timeout
        try:
            command = [str(find_java()), *JVM_FLAGS]
        except JavaNotFound as error:
            raise EmbeddedZooKeeperError(f"the embedded ZooKeeper {error}, or {WITHOUT_JVM}") from None
        class_path = os.pathsep.join(str(jar) for jar in find_jars())
        for attempt in range(START_ATTEMPTS):
            self._choose_port()
            self._write_configuration()
            log_position = self._begin_log()
            self._spawn(
                [
                    *command,
                    f"-Dlog4j2.configurationFile={(self.data_dir / 'log4j2.properties').as_uri()}",
                    "-cp",
                    class_path,
                    MAIN_CLASS,
                    str(self.data_dir / "zoo.cfg"),
                ]
            )
            try:
                self._wait_until_serving(deadline)
            except _Ended:
                lines = self._log_lines(log_position)
                lost_the_race = any("Address already in use" in line for line in lines)
                if lost_the_race and self._port_is_ours_to_choose and attempt + 1 < START_ATTEMPTS:
                    self.port = 0
                    continue
                raise EmbeddedZooKeeperError(_why_it_ended(self, lines)) from None
            self._port_is_ours_to_choose = False
            return self
        raise AssertionError("unreachable")

    def __enter__(self) -> "EmbeddedZooKeeper":
        return self if self.is_running else self.start()

    def _choose_port(self) -> None:
        if self.port == 0:
            self.port = free_ports(1, HOST)[0]
        elif not is_port_free(self.port, HOST):
            raise EmbeddedZooKeeperError(
                f"port {self.port} on {HOST} is taken: choose another for ZooKeeper, or end the process on it"
            )

    def _write_configuration(self) -> None:
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            (self.data_dir / "log4j2.properties").write_text(LOG4J_CONFIG)
            (self.data_dir / "zoo.cfg").write_text(
                CONFIG.format(
                    tick_time_ms=self.tick_time_ms,
                    min_session_timeout_ms=2 * self.tick_time_ms,
                    # A properties file: the backslash escapes.
                    data_dir=str(self.data_dir).replace("\\", "\\\\"),
                    port=self.port,
                    host=HOST,
                )
            )
        except OSError as error:
            raise EmbeddedZooKeeperError(
                f"cannot write to ZooKeeper's data directory {self.data_dir}: {error.strerror}"
            ) from None

    def _begin_log(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            size = self.log_file.stat().st_size
            if size <= MAX_LOG_BYTES:
                return size
            self.log_file.replace(self.log_file.with_name("zookeeper.log.1"))
        return 0

    def _spawn(self, command: list[str]) -> None:
        with _locked(self.data_dir / ".lock") as lock, self.log_file.open("ab") as log:
            # The server inherits the lock's descriptor and so holds the lock as long as it lives, no shorter or longer.
            self._child = start_child(command, output=log, cwd=self.data_dir, pass_fds=(lock.fileno(),))

    def _wait_until_serving(self, deadline: float) -> None:
        assert self._child is not None
        while not _serves(self.port, self.data_dir):
            if self._child.poll() is not None:
                self._child = None
                raise _Ended
            if time.monotonic() > deadline:
                self.kill()
                raise EmbeddedZooKeeperError(f"the embedded ZooKeeper did not answer in time: see {self.log_file}")
            time.sleep(POLL_SECONDS)

    def _log_lines(self, position: int) -> list[str]:
        with self.log_file.open("rb") as log:
            log.seek(position)
            return log.read().decode(errors="replace").splitlines()


class _Ended(Exception):
    """The server's process ended before it served."""


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    """Hold the lock until the block and all who inherited the file have ended."""
    with path.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EmbeddedZooKeeperError(
                f"another embedded ZooKeeper runs on {path.parent}: end it first, or choose another directory"
            ) from None
        yield lock


def _serves(port: int, data_dir: Path) -> bool:
    """Ask `conf`: unlike `ruok` it is answered in full only when requests are served, and says whose port it is."""
    answer = b""
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(b"conf")
            while part := connection.recv(4096):
                answer += part
    except OSError:
        return False
    return f"dataDir={data_dir}{os.sep}" in answer.decode(errors="replace")


def _why_it_ended(server: EmbeddedZooKeeper, lines: list[str]) -> str:
    telling = [line.strip() for line in lines if "Exception" in line or "rror" in line] or lines[-1:]
    reason = telling[-1] if telling else "it wrote nothing"
    return f"the embedded ZooKeeper ended at its start: {reason} (see {server.log_file})"


def find_jars() -> list[Path]:
    """Return ZooKeeper's jars inside the installed PySpark; EmbeddedZooKeeperError when there is none."""
    folders = list(_jar_folders())
    for folder in folders:
        found = {name: sorted(folder.glob(f"{name}-[0-9]*.jar")) for name in (*NEEDED_JARS, *OPTIONAL_JARS)}
        if all(found[name] for name in NEEDED_JARS):
            return [jars[-1] for jars in found.values() if jars]
    raise EmbeddedZooKeeperError(
        "the embedded ZooKeeper runs from PySpark's jars, which are not installed: "
        f"pip install 'kbroker[spark]', or {WITHOUT_JVM}"
    )


def _jar_folders() -> Iterator[Path]:
    # pyspark itself isn't imported: that takes most of a second.
    spec = importlib.util.find_spec("pyspark")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(location) / "jars"
    if spark_home := os.environ.get("SPARK_HOME"):
        yield Path(spark_home) / "jars"


def main() -> int:
    """`python -m kbroker.dev.embedded_zookeeper --check`: say what it would run with; 1 and one line when it cannot."""
    try:
        print(f"embedded ZooKeeper: {find_jars()[0].name} with {find_java()}")
    except (EmbeddedZooKeeperError, JavaNotFound) as error:
        print(f"the embedded ZooKeeper {error}" if isinstance(error, JavaNotFound) else error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
