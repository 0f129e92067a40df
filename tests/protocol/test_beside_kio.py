"""Every message in every version beside kio: the same bytes for the same values, both ways.

kio's classes are generated from Kafka's definitions by other people; fields stand in the same order in both. It lacks
what Kafka 4 has dropped (Produce before 3, the controller's requests): those are pinned elsewhere.
"""

import dataclasses
import datetime
import io
import random
import typing
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.protocol import codec, primitives, schema
from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.schema import Field, Message, Struct, schema_of

kio_index = pytest.importorskip("kio.index", reason="kio is not installed")
kio_serial = pytest.importorskip("kio.serial", reason="kio is not installed")

DROPPED_BY_KAFKA_4 = {4, 5, 6, 7}
MESSAGES = [
    *(api.request for key, api in API_BY_KEY.items() if key not in DROPPED_BY_KAFKA_4),
    *(api.response for key, api in API_BY_KEY.items() if key not in DROPPED_BY_KAFKA_4),
]
EXAMPLES_PER_VERSION = 4
BITS = {primitives.INT8: 8, primitives.INT16: 16, primitives.INT32: 32, primitives.INT64: 64}
YEAR_3000_MS = 32503680000000
"""kio turns times into Python's datetime, which ends early."""


def kio_class(message_type: type[Message], version: int) -> Any:
    """kio's class for one version of a message; None where it has none."""
    declared = schema_of(message_type)
    try:
        return getattr(kio_index, f"load_{declared.role}_schema")(declared.api_key, version)
    except kio_index.KioIndexError:
        assert version <= 2, f"kio has no {declared.name} v{version}"
        return None


OUR_OWN = {"last_rebalance", "include_history", "history", "include_software", "software", "scrub_id", "scrubs"}
"""Tagged fields that others pass over."""


def pairs(struct_type: type[Struct], theirs: Any, version: int) -> list[tuple[Field, Any]]:
    """Our fields beside kio's."""
    ours = [item for item in schema_of(struct_type).fields if version in item.versions and item.name not in OUR_OWN]
    return list(zip(ours, dataclasses.fields(theirs), strict=True))


def inner_class(field: Any) -> Any:
    """The class behind `X`, `X | None`, `tuple[X, ...]`, `tuple[X, ...] | None`."""
    kind = field.type
    while typing.get_args(kind):
        kind = next(each for each in typing.get_args(kind) if each not in (type(None), ...))
    return kind


def random_struct(rng: random.Random, struct_type: type[Struct], theirs: Any, version: int) -> Any:
    """An instance with a random value in each field of the version."""
    return struct_type(
        **{ours.name: random_field(rng, ours, kio, version) for ours, kio in pairs(struct_type, theirs, version)}
    )


def random_field(rng: random.Random, field: Field, kio: Any, version: int) -> Any:
    if version in field.nullable and rng.random() < 0.3:
        return None
    if field.array:
        return [random_value(rng, field, kio, version) for _ in range(rng.choice((0, 1, 2)))]
    if field.default is not schema.REQUIRED and rng.random() < 0.2:
        return field.default
    return random_value(rng, field, kio, version)


def random_value(rng: random.Random, field: Field, kio: Any, version: int) -> Any:
    kind = field.kind
    if field.struct is not None:
        return random_struct(rng, field.struct, inner_class(kio), version)
    if kind in BITS:
        if issubclass(inner_class(kio), (datetime.datetime, datetime.timedelta)):
            return rng.randrange(YEAR_3000_MS if kind == primitives.INT64 else 1 << 31)
        return rng.choice((0, -1, 1, rng.randrange(-(1 << BITS[kind] - 1), 1 << BITS[kind] - 1)))
    if kind == primitives.BOOL:
        return rng.random() < 0.5
    if kind == primitives.FLOAT64:
        return rng.uniform(-1e300, 1e300)
    if kind == primitives.STRING:
        return rng.choice(("", "a", "gruß", "\x00", "日本" * 60))
    if kind == primitives.UUID:
        return rng.choice((bytes(16), rng.randbytes(16)))
    if kind == primitives.ERROR:
        return ErrorCode(rng.randrange(-1, 100))
    return rng.randbytes(rng.choice((0, 1, 130, 1500)))


def plain(value: Any) -> Any:
    """A value of kio's as ours has it."""
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value


def differences(ours: Any, theirs: Any, version: int) -> Iterator[str]:
    """The fields whose values differ."""
    for field, kio in pairs(type(ours), type(theirs), version):
        one, other = getattr(ours, field.name), getattr(theirs, kio.name)
        place = f"{type(ours).__qualname__}.{field.name}"
        if field.struct is None:
            expected = [plain(each) for each in other] if field.array and other is not None else plain(other)
            if field.kind == primitives.UUID:
                one, expected = without_zero(one), without_zero(expected)
            if one != expected and not (expected is None and one == -1):
                yield f"{place}: {one!r}, kio {expected!r}"
        elif one is None or other is None:
            if one is not other:
                yield f"{place}: {one!r}, kio {other!r}"
        else:
            for our, their in zip(one, other, strict=True) if field.array else [(one, other)]:
                yield from differences(our, their, version)


def without_zero(value: Any) -> Any:
    """Uuids as kio has them: None for the zero uuid."""
    if isinstance(value, list):
        return [without_zero(each) for each in value]
    return None if value == primitives.ZERO_UUID else value


@pytest.mark.slow
@pytest.mark.parametrize("message_type", MESSAGES, ids=lambda message_type: message_type.__name__)
def test_a_message_has_kios_bytes_and_values_in_every_version(message_type: type[Message]) -> None:
    rng = random.Random(message_type.__name__)
    versions = schema_of(message_type).versions
    compared = 0
    for version in range(versions.first, versions.last + 1):
        theirs = kio_class(message_type, version)
        if theirs is None:
            continue
        read, write = kio_serial.entity_reader(theirs), kio_serial.entity_writer(theirs)
        for _ in range(EXAMPLES_PER_VERSION):
            message = random_struct(rng, message_type, theirs, version)
            encoded = codec.encode(message, version)
            found, size = read(encoded, 0)
            assert size == len(encoded)
            assert not list(differences(message, found, version)), version
            with io.BytesIO() as written:
                write(written, found)
                assert written.getvalue() == encoded, version
            assert codec.decode(message_type, encoded, version) == message
            compared += 1
    assert compared


def test_kio_has_all_other_apis() -> None:
    assert len(MESSAGES) == 2 * (len(API_BY_KEY) - len(DROPPED_BY_KAFKA_4))
