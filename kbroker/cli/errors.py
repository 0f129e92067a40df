"""What the command line says instead of a traceback."""

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

T = TypeVar("T")


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
