"""What is wrong with a record that could not be put into a batch: looked for once that has failed, never before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

LARGEST_TIMESTAMP = 2**63 - 1


def explained(key: Any, value: Any, headers: Any, timestamp: Any, error: Exception) -> Exception:
    """Return what to raise instead of an error that a wrong argument of `send` has led to; else the error itself."""
    for name, data in (("key", key), ("value", value)):
        if not _is_binary(data):
            how = f"encode it, or give the producer a {name}_serializer"
            return TypeError(f"a {name} is bytes or None, not the {type(data).__name__} {_shown(data)}: {how}")
    if not isinstance(timestamp, int):
        return TypeError(f"timestamp_ms is a whole number of milliseconds since 1970, not {_shown(timestamp)}")
    if timestamp > LARGEST_TIMESTAMP:
        return ValueError(f"timestamp_ms={timestamp} is more than the 64 bits that a record has for it")
    wanted = "headers are a list of (name, value), names text and values bytes or None"
    if headers is not None and (not isinstance(headers, Sequence) or isinstance(headers, (str, bytes))):
        how = ": list(headers.items())" if isinstance(headers, dict) else ""
        return TypeError(f"{wanted}, not the {type(headers).__name__} {_shown(headers)}{how}")
    for pair in headers or ():
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            return TypeError(f"{wanted}: {_shown(pair)} is no such pair")
        if not isinstance(pair[0], str) or not _is_binary(pair[1]):
            return TypeError(f"{wanted}: not {_shown(pair)}")
    return error


def _is_binary(data: Any) -> bool:
    return data is None or isinstance(data, (bytes, bytearray, memoryview))


def _shown(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= 60 else f"{text[:57]}..."
