"""Avro values to and from Arrow columns, alone or framed as schema registries do it.

    framed   0x00, schema id (4 bytes, big-endian), Avro binary

A framed value is read with the schema that wrote it, fetched from the registry by its id where one is named, else with
the schema at hand; its fields then find the column's fields by name.
"""

from __future__ import annotations

import functools
import struct
import time
from typing import Any

import pyarrow as pa

from kbroker.client.avro import AvroError, Codec, compile_schema, decode_whole
from kbroker.client.schema_registry import Registry, RegistryError, UnknownSchemaError

MAGIC = 0
HEADER = struct.Struct(">bI")
DOUBTED_IDS = 3
"""Ids in a task that are asked for once more when the registry does not know them: a copy of it may lag behind."""
DOUBT_S = 0.5
compiled = functools.lru_cache(maxsize=256)(compile_schema)


class AvroColumn:
    """Decodes values of one column; keep it for all batches of a task."""

    def __init__(self, kind: pa.DataType, schema: str, *, framed: bool, registry: Registry | None) -> None:
        self.kind = kind
        self._codec = compiled(schema) if schema else None
        self._framed = framed
        self._registry = registry
        self._by_id: dict[int, Codec | AvroError] = {}
        self._doubts = DOUBTED_IDS

    def parse(self, values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """Return one struct per value, null where that is null or malformed, and the malformed rows with reasons.

        Raises RegistryError where the registry is at fault, and not the value.
        """
        decoded: list[Any] = []
        malformed: dict[int, str] = {}
        for row, value in enumerate(values.to_pylist()):
            found = None
            if value is not None:
                try:
                    found = self._decode(value)
                except AvroError as error:
                    malformed[row] = f"not Avro: {error}"
            decoded.append(found)
        try:
            return pa.array(decoded, self.kind), malformed
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # a value that does not fit the column: find out which
            fitting = [self._fitting(value, row, malformed) for row, value in enumerate(decoded)]
            return pa.array(fitting, self.kind), malformed

    def _fitting(self, value: Any, row: int, malformed: dict[int, str]) -> Any:
        try:
            pa.array([value], self.kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            malformed[row] = f"not of the column's type: {error}"
            return None
        return value

    def _decode(self, value: bytes) -> Any:
        if not self._framed:
            assert self._codec is not None
            return decode_whole(self._codec, value)
        if len(value) < HEADER.size or value[0] != MAGIC:
            raise AvroError("it does not begin with the byte 0 and a schema id")
        return decode_whole(self._codec_of(HEADER.unpack_from(value)[1]), value, HEADER.size)

    def _codec_of(self, schema_id: int) -> Codec:
        if self._registry is None:
            assert self._codec is not None
            return self._codec
        if schema_id not in self._by_id:
            self._by_id[schema_id] = self._find(self._registry, schema_id)
        found = self._by_id[schema_id]
        if isinstance(found, AvroError):
            raise found.with_traceback(None)
        return found

    def _find(self, registry: Registry, schema_id: int) -> Codec | AvroError:
        while True:
            try:
                return compiled(registry.schema(schema_id))
            except UnknownSchemaError as error:
                if not self._doubts:
                    return error
            except AvroError as error:  # a schema that we cannot read: other rows have it too
                raise RegistryError(f"schema {schema_id} of the registry: {error}") from error
            self._doubts -= 1
            time.sleep(DOUBT_S)


def encode_column(rows: pa.ChunkedArray, schema: str, schema_id: int | None) -> pa.ChunkedArray:
    """Return Avro for each struct, framed with the schema's id if there is one; null stays null. Raises AvroError."""
    codec = compiled(schema)
    head = b"" if schema_id is None else HEADER.pack(MAGIC, schema_id)
    encoded: list[bytes | None] = []
    for value in rows.to_pylist():
        if value is None:
            encoded.append(None)
            continue
        out = bytearray(head)
        try:
            codec.encode(value, out)
        except (TypeError, ValueError, AttributeError, OverflowError, struct.error) as error:
            raise AvroError(f"row {len(encoded)} does not follow the schema: {error}") from error
        encoded.append(bytes(out))
    return pa.chunked_array([pa.array(encoded, pa.binary())])
