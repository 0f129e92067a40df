"""Avro's binary form: a schema becomes two functions, one that decodes a value and one that encodes it.

    int, long    zigzag varint               array, map  blocks: count, items, …, 0 (after a negative count: a size)
    float/double little-endian IEEE          union       index of the branch, value
    bytes/string length, bytes               record      its fields, one after the other
    fixed        its bytes                   enum        index of the symbol

Logical types become what Spark's Avro reader makes of them: date, timestamp-millis and -micros, decimal; others stay
what they are. Facts: the Avro specification 1.11.
"""

from __future__ import annotations

import datetime
import decimal
import json
import struct
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from kbroker.client.error_base import ClientError

Decode = Callable[[bytes, int], tuple[Any, int]]
Encode = Callable[[Any, bytearray], None]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
WIDE = decimal.Context(prec=1000)
"""For decimals: by default Python rounds to 28 digits."""
LAST_SHIFT = 63
"""Of a varint's tenth byte: one bit of 64 is left for it."""
FIRST_DAY = datetime.date(1970, 1, 1)
MAX_EMPTY_ITEMS = 1 << 14
"""Of all arrays and maps of a value: items of no bytes (null) could claim any number."""
SPARK_NAMES = {
    "null": "void",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
    "fixed": "binary",
}


class AvroError(ClientError, ValueError):
    """A schema that is none, or bytes that do not follow it."""


class Codec(NamedTuple):
    """What a schema becomes."""

    decode: Decode
    """(bytes, position) -> (value, position behind it)"""
    encode: Encode
    """(value, buffer to append to)"""
    spark_type: str


def compile_schema(text: str) -> Codec:
    """Compile a schema in JSON; raises AvroError."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AvroError(f"the schema is not JSON: {error}") from error
    try:
        return _compile(schema, {})
    except AvroError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise AvroError(f"the schema is none: {error!r}") from error


def decode_whole(codec: Codec, data: bytes, position: int = 0) -> Any:
    """Decode data[position:], which must hold exactly one value; raises AvroError."""
    _budget.items = len(data) + MAX_EMPTY_ITEMS
    try:
        value, end = codec.decode(data, position)
    except (IndexError, struct.error, ValueError, OverflowError, ArithmeticError) as error:
        raise AvroError(f"the bytes do not follow the schema: {error}") from error
    if end != len(data):
        raise AvroError(f"{abs(len(data) - end)} bytes too {'many' if end < len(data) else 'few'}")
    return value


def _compile(schema: Any, named: dict[str, Codec]) -> Codec:
    if isinstance(schema, list):
        return _union([_compile(each, named) for each in schema], schema)
    if isinstance(schema, str):
        schema = {"type": schema}
    if not isinstance(schema, dict) or "type" not in schema:
        raise AvroError(f"{schema!r} is no schema")
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _compile(kind, named)
    if kind in named:
        return named[kind]
    makers = {"record": _record, "array": _array, "map": _map, "enum": _enum, "fixed": _fixed}
    if kind in makers:
        codec = makers[kind](schema, named)
    elif kind in PRIMITIVES:
        codec = Codec(*PRIMITIVES[kind], SPARK_NAMES[kind])
    else:
        raise AvroError(f"{kind!r} is no type (a type that contains itself has no columns)")
    codec = _logical(schema, codec)
    if "name" in schema:
        named[schema["name"]] = named[f"{schema.get('namespace', '')}.{schema['name']}".strip(".")] = codec
    return codec


def _record(schema: dict[str, Any], named: dict[str, Codec]) -> Codec:
    try:
        fields = [(str(field["name"]), _compile(field["type"], named)) for field in schema["fields"]]
    except (KeyError, TypeError) as error:
        raise AvroError(f"a record needs fields with name and type: {error!r}") from error

    def decode(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found = {}
        for name, codec in fields:
            found[name], at = codec.decode(data, at)
        return found, at

    def encode(value: Any, out: bytearray) -> None:
        for name, codec in fields:
            try:
                codec.encode(value[name], out)
            except KeyError as error:
                raise AvroError(f"the field {name} is not there") from error

    inner = ",".join(f"{name}:{codec.spark_type}" for name, codec in fields)
    return Codec(decode, encode, f"struct<{inner}>")


def _union(branches: list[Codec], schema: list[Any]) -> Codec:
    others = [codec for codec in branches if codec.spark_type != "void"]
    nulls = [index for index, codec in enumerate(branches) if codec.spark_type == "void"]
    if len(others) != 1:
        raise AvroError(f"a union of null and one type becomes a column, not {schema!r}")
    other = branches.index(others[0])

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        index, at = _read_long(data, at)
        if not 0 <= index < len(branches):
            raise AvroError(f"a union has no branch {index}")
        return branches[index].decode(data, at)

    def encode(value: Any, out: bytearray) -> None:
        if value is None and not nulls:
            raise AvroError("null where the schema has none")
        index = nulls[0] if value is None else other
        _write_long(index, out)
        branches[index].encode(value, out)

    return Codec(decode, encode, others[0].spark_type)


class _Budget(threading.local):
    items = 0
    """That the arrays and maps of the value that is being decoded may still have: one for each byte, and some."""


_budget = _Budget()


def _spend(count: int) -> None:
    _budget.items -= count
    if _budget.items < 0:
        raise AvroError(f"{count} items in one block: the value has too few bytes for all its items")


def _blocks(item: Decode) -> Callable[[bytes, int], tuple[list[Any], int]]:
    def decode(data: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, at = _read_long(data, at)
            if count == 0:
                return items, at
            if count < 0:
                count, (_, at) = -count, _read_long(data, at)
            _spend(count)
            for _ in range(count):
                value, at = item(data, at)
                items.append(value)

    return decode


def _array(schema: dict[str, Any], named: dict[str, Codec]) -> Codec:
    codec = _compile(schema.get("items"), named)

    def encode(value: Any, out: bytearray) -> None:
        if value:
            _write_long(len(value), out)
            for each in value:
                codec.encode(each, out)
        out.append(0)

    return Codec(_blocks(codec.decode), encode, f"array<{codec.spark_type}>")


def _map(schema: dict[str, Any], named: dict[str, Codec]) -> Codec:
    codec = _compile(schema.get("values"), named)

    def pair(data: bytes, at: int) -> tuple[tuple[str, Any], int]:
        key, at = _read_string(data, at)
        value, at = codec.decode(data, at)
        return (key, value), at

    def encode(value: Any, out: bytearray) -> None:
        pairs = list(value.items() if isinstance(value, dict) else value)
        if pairs:
            _write_long(len(pairs), out)
            for key, each in pairs:
                _write_string(key, out)
                codec.encode(each, out)
        out.append(0)

    return Codec(_blocks(pair), encode, f"map<string,{codec.spark_type}>")


def _enum(schema: dict[str, Any], _: dict[str, Codec]) -> Codec:
    symbols = list(schema.get("symbols", ()))

    def decode(data: bytes, at: int) -> tuple[str, int]:
        index, at = _read_long(data, at)
        if not 0 <= index < len(symbols):
            raise AvroError(f"an enum has no symbol {index}")
        return symbols[index], at

    def encode(value: Any, out: bytearray) -> None:
        if value not in symbols:
            raise AvroError(f"{value!r} is none of {symbols}")
        _write_long(symbols.index(value), out)

    return Codec(decode, encode, "string")


def _fixed(schema: dict[str, Any], _: dict[str, Codec]) -> Codec:
    size = int(schema.get("size", 0))

    def encode(value: Any, out: bytearray) -> None:
        if len(value) != size:
            raise AvroError(f"{len(value)} bytes where {size} are fixed")
        out += value

    return Codec(lambda data, at: _take(data, at, size), encode, "binary")


def _logical(schema: dict[str, Any], codec: Codec) -> Codec:
    """Put a logical type around what carries it."""
    name, kind = schema.get("logicalType"), schema["type"]
    if name == "date" and kind == "int":
        return _converted(codec, lambda n: FIRST_DAY + datetime.timedelta(n), lambda d: (d - FIRST_DAY).days, "date")
    if name in ("timestamp-millis", "timestamp-micros") and kind == "long":
        unit = datetime.timedelta(milliseconds=1) if name.endswith("millis") else datetime.timedelta(microseconds=1)
        return _converted(codec, lambda n: EPOCH + n * unit, lambda t: (t - EPOCH) // unit, "timestamp")
    if name == "decimal" and kind == "bytes":
        precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
        one = decimal.Decimal(1).scaleb(-scale, WIDE)

        def to_bytes(value: decimal.Decimal) -> bytes:
            number = int(value.quantize(one, context=WIDE).scaleb(scale, WIDE))
            return number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)

        return _converted(
            codec,
            lambda data: decimal.Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, WIDE),
            to_bytes,
            f"decimal({precision},{scale})",
        )
    return codec


def _converted(codec: Codec, of_avro: Callable[[Any], Any], to_avro: Callable[[Any], Any], spark_type: str) -> Codec:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        value, at = codec.decode(data, at)
        return of_avro(value), at

    return Codec(decode, lambda value, out: codec.encode(to_avro(value), out), spark_type)


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift == LAST_SHIFT:
            break
    if data[at] > 1:
        raise AvroError("a number of more than 64 bits")
    value |= data[at] << shift
    return (value >> 1) ^ -(value & 1), at + 1


def _write_long(value: int, out: bytearray) -> None:
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _take(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if size < 0 or size > len(data) - at:
        raise AvroError(f"{size} bytes at {at} of {len(data)}")
    return data[at : at + size], at + size


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _read_long(data, at)
    return _take(data, at, size)


def _write_bytes(value: bytes, out: bytearray) -> None:
    _write_long(len(value), out)
    out += value


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    value, at = _read_bytes(data, at)
    return value.decode(), at


def _write_string(value: str, out: bytearray) -> None:
    _write_bytes(value.encode(), out)


def _number(form: str) -> tuple[Decode, Encode]:
    packed = struct.Struct(form)
    return (
        lambda data, at: (packed.unpack_from(data, at)[0], at + packed.size),
        lambda value, out: out.extend(packed.pack(value)),
    )


PRIMITIVES: dict[str, tuple[Decode, Encode]] = {
    "null": (lambda data, at: (None, at), lambda value, out: None),
    "boolean": (lambda data, at: (bool(data[at]), at + 1), lambda value, out: out.append(bool(value))),
    "int": (_read_long, _write_long),
    "long": (_read_long, _write_long),
    "float": _number("<f"),
    "double": _number("<d"),
    "bytes": (_read_bytes, _write_bytes),
    "string": (_read_string, _write_string),
}
