"""What callers give, checked before anything is sent: a wrong value is named, with what is wanted instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import SupportsIndex, TypeVar

from kbroker.client.errors import ConfigurationError

LONGEST_TEXT = (1 << 15) - 1
"""Bytes of UTF-8 that a request has room for."""

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


def text(what: str, value: object) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{what} is a text, not {value!r}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"{what} cannot be written as UTF-8: {error}") from None
    if size > LONGEST_TEXT:
        raise ConfigurationError(f"{what} has at most {LONGEST_TEXT} bytes, not {size}")
    return value


def listed(what: str, values: Iterable[T]) -> list[T]:
    """Return a list of `what`; a single text is refused (its letters would be the items)."""
    if isinstance(values, str | bytes):
        raise ConfigurationError(f"a list of {what} is wanted, not the text {values!r}")
    if not isinstance(values, Iterable):
        raise ConfigurationError(f"a list of {what} is wanted, not {values!r}")
    return list(values)


def texts(names: Iterable[str], what: str = "names") -> list[str]:
    """Return a list of names."""
    return [text("a name", name) for name in listed(what, names)]


def whole_number(what: str, value: object, bits: int = 32) -> int:
    """Return a number that a request has room for."""
    if not isinstance(value, SupportsIndex) or isinstance(value, bool):
        raise ConfigurationError(f"{what} is a whole number, not {value!r}")
    if not -(1 << bits - 1) <= value.__index__() < 1 << bits - 1:
        raise ConfigurationError(f"{what} is a number of {bits} bits, not {value!r}")
    return value.__index__()


def brokers_of(ids: Iterable[int]) -> list[int]:
    """Return a list of brokers' ids."""
    return [whole_number("a broker's id", each) for each in listed("brokers' ids", ids)]


def mapping(what: str, value: Mapping[K, V]) -> Mapping[K, V]:
    """Return a mapping: `what` says of what to what."""
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"a dict of {what} is wanted, not {value!r}")
    return value


def instance(what: str, kind: type[T], value: object) -> T:
    """Return a value of a type of ours."""
    if not isinstance(value, kind):
        raise ConfigurationError(f"{what} is given as {kind.__name__}, not {value!r}")
    return value
