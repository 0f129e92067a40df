"""Java's ZooKeeper client, out of PySpark's jars, on the stand-in."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl_credential

from kbroker.dev.embedded_zookeeper import find_jars
from kbroker.dev.java import find_java
from kbroker.dev.stand_in_zookeeper import StandInZooKeeper
from tests.fixtures.java import JVM_FLAGS, compiled
from tests.fixtures.zookeeper import skip_without_embedded_zookeeper

pytestmark = pytest.mark.slow
TOLD_FIRST = f"""\
created /java
data null
event NodeDataChanged /java
version 1 true
created /java/s-0000000000
mine true [/java/s-0000000000]
acl [31,s{{'digest,'{make_digest_acl_credential("ann", "secret")}}}
]
multi BADVERSION 2
multi 3
read 3
below 2
ready
"""
TOLD_THEN = """\
event NodeCreated /java/new
event NodeDataChanged /java/a
session true
closed
"""


def lines(process: subprocess.Popen[str], count: int) -> str:
    assert process.stdout is not None
    return "".join(process.stdout.readline() for _ in range(count))


def test_it_meets_what_it_expects_also_when_the_server_is_killed_meanwhile(tmp_path: Path) -> None:
    skip_without_embedded_zookeeper()
    jars = find_jars()
    _, class_path, name = compiled(Path(__file__).with_name("ZooKeeperClient.java"), f"{jars[0].parent}/*")
    # Spark's jars are hundreds: a JVM that opens them all takes seconds more.
    class_path = ":".join([*map(str, jars), class_path.rpartition(":")[2]])
    with StandInZooKeeper(tmp_path) as server:
        logging = tmp_path / "log4j2.properties"
        logging.write_text("rootLogger.level=off\n")
        flags = [*JVM_FLAGS, f"-Dlog4j2.configurationFile={logging.as_uri()}"]
        command = [str(find_java()), *flags, "-cp", class_path, name, server.connect_string]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ
        ) as client:
            try:
                assert lines(client, TOLD_FIRST.count("\n")) == TOLD_FIRST
                server.kill()
                server.start()
                wait_until_back(server)
                write(server)
                assert client.stdin is not None
                client.stdin.write("\n")
                client.stdin.flush()
                assert lines(client, TOLD_THEN.count("\n")) == TOLD_THEN
                assert client.wait(30) == 0
            finally:
                client.kill()


def wait_until_back(server: StandInZooKeeper) -> None:
    """Until Java's client has set its watch again: what happens before is not told to a persistent one."""
    deadline = time.monotonic() + 60
    while "zk_watch_count\t2" not in asked(server, b"mntr"):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def asked(server: StandInZooKeeper, word: bytes) -> str:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(word)
        return connection.makefile().read()


def write(server: StandInZooKeeper) -> None:
    other = KazooClient(server.connect_string)
    other.start(timeout=30)
    try:
        other.create("/java/new", b"")
        other.set("/java/a", b"z")
    finally:
        other.stop()
        other.close()
