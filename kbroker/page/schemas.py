"""Keys and values that a schema registry's serializers wrote, read with the schemas that they name.

    0x00, schema id (4 bytes, big-endian), the value in Avro's binary form

A schema is asked for once, in a thread. A registry that does not answer is left alone for a while, and so is an id that
it does not know; what only looks framed names any number of ids, so that each reading asks for a few. What cannot be
read is shown as it was, in hexadecimal, with the reason.
"""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kbroker.client.avro import AvroError, Codec, compile_schema, decode_whole
from kbroker.client.schema_registry import Registry, RegistryError
from kbroker.page.record_view import Content, RecordView, json_content

HEADER = struct.Struct(">bI")
LEFT_ALONE_S = 30.0
MOST_NEW = 20
"""Ids that one reading asks for."""
MOST_PROBLEMS = 1000
"""Ids that are remembered as unknown."""


class Schemas:
    """The schemas of one registry."""

    def __init__(self, url: str) -> None:
        self._registry = Registry(url, retry_for=0)
        self._codecs: dict[int, Codec] = {}
        self._problems: dict[int | None, tuple[float, str]] = {}
        """Id, or None for all -> until when it is not asked for again, and why; the latest is the last."""

    async def read(self, views: Sequence[RecordView]) -> list[RecordView]:
        """Return the records with what is framed written out."""
        contents = [content for view in views for content in (view.key, view.value) if content.framed is not None]
        if not contents:
            return list(views)
        why = await asyncio.to_thread(self._learn, {_id(content) for content in contents})

        def written(content: Content) -> Content:
            return self._content(content, why)

        return await asyncio.to_thread(
            lambda: [replace(view, key=written(view.key), value=written(view.value)) for view in views]
        )

    def _learn(self, ids: Iterable[int]) -> dict[int, str]:
        """Ask for the schemas that are not known; return why some still are not."""
        asked, why = 0, {}
        unknown = [each for each in ids if each not in self._codecs]
        for schema_id in sorted(unknown, key=lambda each: self._problem(each)[0]):  # what failed before comes last
            until, problem = max(self._problem(None), self._problem(schema_id))
            if time.monotonic() >= until:
                problem = self._ask(schema_id) if asked < MOST_NEW else f"schema {schema_id} was not asked for yet"
                asked += 1
            if problem:
                why[schema_id] = problem
        return why

    def _problem(self, schema_id: int | None) -> tuple[float, str]:
        return self._problems.get(schema_id, (0.0, ""))

    def _ask(self, schema_id: int) -> str:
        try:
            self._codecs[schema_id] = compile_schema(self._registry.schema(schema_id))
        except RegistryError as error:
            return self._note(str(error), schema_id, None)
        except AvroError as error:
            return self._note(str(error), schema_id)
        return ""

    def _note(self, problem: str, *ids: int | None) -> str:
        noted = dict.fromkeys(ids, (time.monotonic() + LEFT_ALONE_S, problem))
        others = [(each, known) for each, known in list(self._problems.items()) if each not in noted]
        self._problems = dict(others[len(noted) - MOST_PROBLEMS :]) | noted
        return problem

    def _content(self, content: Content, why: Mapping[int, str]) -> Content:
        if content.framed is None:
            return content
        schema_id = _id(content)
        codec = self._codecs.get(schema_id)
        if codec is None:
            return replace(content, problem=why[schema_id])
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
