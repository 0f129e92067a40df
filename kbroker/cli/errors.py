"""What the command line says instead of a traceback."""

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

T = TypeVar("T")
UNKNOWN_TOPIC_KEY = "Unknown topic config name:"
"""What brokers, Kafka's too, say of a key that topics do not have."""


class CommandFailed(Exception):
    """A command could not do its work; the text is what the user is told."""


def one_line(error: BaseException) -> str | None:
    """Return the line to show for an error the user can do something about; None for a bug of ours."""
    if isinstance(error, CommandFailed):
        return str(error)
    for known in _known_errors():
        if isinstance(error, known):
            return _text(error)
    return None


def with_next_step(error: BaseException, line: str) -> str:
    """Add to an error's line what to do about it, where that is not plain."""
    step = _next_step(error, line)
    return f"{line} ({step})" if step else line


def _next_step(error: BaseException, line: str) -> str:
    from kbroker.client.errors import NotConnected
    from kbroker.client.session import SPEAKS_HTTP, SPEAKS_TLS
    from kbroker.protocol.errors import ErrorCode, KafkaError

    if isinstance(error, NotConnected) and SPEAKS_HTTP in line:
        return "that is the port of a web server: -b names a broker's own"
    if isinstance(error, NotConnected) and SPEAKS_TLS in line:
        return "-X security.protocol=SSL, or a profile: see kbroker help profiles"
    if isinstance(error, NotConnected) and "closed the connection" in line:
        return "a broker that wants TLS or a log-in does that: see kbroker help profiles"
    if isinstance(error, NotConnected) and ("sent what is no answer" in line or "did not answer ApiVersions" in line):
        return "is that a broker? One that wants TLS takes a profile: see kbroker help profiles; -b names another"
    if isinstance(error, NotConnected):
        return "-b or $KBROKER_BOOTSTRAP names another; kbroker dev starts one here"
    if isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "kbroker topic list shows the topics"
    if isinstance(error, KafkaError) and error.code is ErrorCode.SECURITY_DISABLED:
        return "authorizer.class.name turns access rules on, as kbroker dev --secure does"
    if isinstance(error, KafkaError) and error.code is ErrorCode.INVALID_CONFIG and UNKNOWN_TOPIC_KEY in line:
        return _nearest_topic_key(line.partition(UNKNOWN_TOPIC_KEY)[2].strip())
    return ""


def _nearest_topic_key(name: str) -> str:
    import difflib

    from kbroker.segment.log_config import TOPIC_KEYS

    nearest = difflib.get_close_matches(name, TOPIC_KEYS, n=3)
    return f"did you mean {' or '.join(nearest)}?" if nearest else "docs/configuration.md lists a topic's keys"


async def attempt(what: str, asked: "Awaitable[T]", problems: list[str]) -> "T | None":
    """Return the answer; None when there is none, with a line that says why added to the problems."""
    try:
        return await asked
    except Exception as error:
        reason = one_line(error)
        if reason is None:
            raise
        problems.append(f"{what}: {reason}")
        return None


def _known_errors() -> "Iterator[type[BaseException]]":
    from kbroker.protocol.errors import KafkaError

    yield KafkaError
    yield OSError  # refused connections, time-outs, missing files
    from kbroker.client.errors import ConfigurationError
    from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeperError
    from kbroker.dev.java import JavaNotFound
    from kbroker.dev.stand_in_zookeeper import StandInError
    from kbroker.protocol.config_def import ConfigError

    yield ConfigError
    yield ConfigurationError
    yield EmbeddedZooKeeperError
    yield StandInError
    yield JavaNotFound


def _text(error: BaseException) -> str:
    from kbroker.protocol.errors import KafkaError

    if isinstance(error, KafkaError):
        return f"{error.code.name}: {error.message}" if error.message else error.code.name
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
