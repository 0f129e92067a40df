"""What the user is told instead of a traceback."""

import socket

import pytest

from kbroker.cli import admin
from kbroker.cli.errors import CommandFailed, one_line, with_next_step
from kbroker.client.errors import NotConnected
from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeperError
from kbroker.dev.stand_in_zookeeper import StandInError
from kbroker.protocol.config_def import ConfigError
from kbroker.protocol.errors import ErrorCode, KafkaError
from tests.kbroker.cli.commands import fail


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (CommandFailed("no"), "no"),
        (KafkaError(ErrorCode.INVALID_CONFIG, "num.partitions"), "INVALID_CONFIG: num.partitions"),
        (KafkaError(ErrorCode.INVALID_CONFIG), "INVALID_CONFIG"),
        (FileNotFoundError(2, "No such file or directory", "x.csv"), "x.csv: No such file or directory"),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (TimeoutError(), "TimeoutError"),
        (EmbeddedZooKeeperError("no java"), "no java"),
        (StandInError("port taken"), "port taken"),
        (ConfigError("server.properties: no"), "server.properties: no"),
    ],
)
def test_an_error_of_the_world_is_one_line(error: Exception, line: str) -> None:
    assert one_line(error) == line


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (NotConnected("no bootstrap broker answers: refused"), "kbroker dev"),
        (NotConnected("no bootstrap broker answers: h:9092 closed the connection"), "kbroker help profiles"),
        (NotConnected("no bootstrap broker answers: h:80 sent what is no answer: a frame"), "is that a broker?"),
        (NotConnected("no bootstrap broker answers: h:80 sent what is no answer: it speaks HTTP: 'x'"), "web server"),
        (
            NotConnected("no bootstrap broker answers: h:80 sent what is no answer: it speaks TLS"),
            "security.protocol=SSL",
        ),
        (NotConnected("no bootstrap broker answers: h:80 did not answer ApiVersionsRequest within 10 s"), "-b names"),
        (KafkaError(ErrorCode.INVALID_CONFIG, "Unknown topic config name: retention.mss"), "did you mean retention.ms"),
        (KafkaError(ErrorCode.INVALID_CONFIG, "Unknown topic config name: zzzz"), "docs/configuration.md"),
        (KafkaError(ErrorCode.INVALID_CONFIG, "retention.ms=-2"), ""),
        (KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "x"), "kbroker topic list"),
        (KafkaError(ErrorCode.SECURITY_DISABLED), "authorizer.class.name"),
        (CommandFailed("no"), ""),
    ],
)
def test_what_to_do_next_is_said_where_it_is_not_plain(error: Exception, step: str) -> None:
    line = one_line(error)
    assert line is not None
    said = with_next_step(error, line)
    assert said.startswith(line)
    assert step in said
    assert (said == line) == (not step)


def test_a_bug_of_ours_keeps_its_traceback() -> None:
    assert one_line(AssertionError("never")) is None


COMMANDS = [("topic", "list"), ("topic", "consume", "a", "-o", "start"), ("topic", "produce", "a")]


@pytest.mark.parametrize("words", COMMANDS)
def test_where_nobody_listens_a_command_says_so_and_does_not_go_on_trying(words: tuple[str, ...]) -> None:
    assert "no connection to 127.0.0.1:1" in fail(*words, "-b", "127.0.0.1:1", given=b"value")


@pytest.mark.parametrize("words", COMMANDS)
def test_who_takes_a_connection_and_is_silent_is_taken_for_no_broker(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(admin, "CONNECT_TIMEOUT_MS", 300)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = fail(*words, "-b", f"127.0.0.1:{silent.getsockname()[1]}", given=b"value")
    assert "within 0.3 s" in said
