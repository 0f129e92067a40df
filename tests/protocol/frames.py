"""Encoded messages as bytes: in tests no part of one lies in a file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from kbroker.protocol.primitives import BytesLike, Part


def joined(parts: Iterable[Part]) -> bytes:
    return b"".join(cast(Iterable[BytesLike], parts))
