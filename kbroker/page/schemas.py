"""Keys and values that a schema registry's serializers wrote, read with the schemas that they name.

    0x00, schema id (4 bytes, big-endian), the value in Avro's binary form

A schema is asked for once, in a thread; a registry that does not tell one is left alone for a while. What cannot be
read is shown as it was, in hexadecimal, with the reason.
"""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from kbroker.client.avro import AvroError, Codec, compile_schema, decode_whole
from kbroker.client.schema_registry import Registry, RegistryError
from kbroker.page.record_view import Content, RecordView, json_content

HEADER = struct.Struct(">bI")
LEFT_ALONE_S = 10.0


class Schemas:
    """The schemas of one registry."""

    def __init__(self, url: str) -> None:
        self._registry = Registry(url, retry_for=0)
        self._codecs: dict[int, Codec] = {}
        self._problems: dict[int, tuple[float, str]] = {}
        """Id -> until when it is not asked for again, and why."""

    async def read(self, views: Sequence[RecordView]) -> list[RecordView]:
        """Return the records with what is framed written out."""
        contents = [content for view in views for content in (view.key, view.value) if content.framed is not None]
        if not contents:
            return list(views)
        await asyncio.to_thread(self._learn, {_id(content) for content in contents})
        return await asyncio.to_thread(
            lambda: [replace(view, key=self._content(view.key), value=self._content(view.value)) for view in views]
        )

    def _learn(self, ids: Iterable[int]) -> None:
        for schema_id in ids:
            until = self._problems.get(schema_id, (0.0, ""))[0]
            if schema_id in self._codecs or time.monotonic() < until:
                continue
            try:
                self._codecs[schema_id] = compile_schema(self._registry.schema(schema_id))
            except (RegistryError, AvroError) as error:
                self._problems[schema_id] = (time.monotonic() + LEFT_ALONE_S, str(error))

    def _content(self, content: Content) -> Content:
        if content.framed is None:
            return content
        schema_id = _id(content)
        codec = self._codecs.get(schema_id)
        if codec is None:
            return replace(content, problem=self._problems[schema_id][1])
        try:
            text = json.dumps(decode_whole(codec, content.framed, HEADER.size), default=_written, ensure_ascii=False)
        except (AvroError, RecursionError) as error:
            return replace(content, problem=f"schema {schema_id}: {error}")
        found = json_content(text, f"Avro, schema {schema_id}", content.size)
        return found or replace(content, problem=f"schema {schema_id}: it would be too long to show")


def _id(content: Content) -> int:
    assert content.framed is not None
    number: int = HEADER.unpack_from(content.framed)[1]
    return number


def _written(value: Any) -> Any:
    """Write what JSON has no word for: bytes in hexadecimal, times and decimals as text."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
