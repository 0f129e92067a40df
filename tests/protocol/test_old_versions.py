"""What an old version cannot say: dropped where Kafka's definition calls the field ignorable, else refused.

The flags themselves are held against Kafka's definitions in test_schema.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.protocol import codec, primitives
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.schema import Field, Message, Struct, VersionRange, schema_of
from tests.protocol.definitions import MESSAGES

OTHER = {
    primitives.BOOL: (True, False), primitives.FLOAT64: (1.5, 2.5), primitives.STRING: ("x", "y"),
    primitives.BYTES: (b"x", b"y"), primitives.RECORDS: (b"x", b"y"), primitives.UUID: (b"\1" * 16, b"\2" * 16),
    primitives.ERROR: (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE),
}  # fmt: skip
"""Two values for each kind: one of them is not the default."""


def another(field: Field, version: int) -> Any:
    """A value that is not the field's default, as plain as can be."""
    if field.struct is not None:
        value: Any = filled(field.struct, version, None)
    else:
        first, second = OTHER.get(field.kind, (7, 8))
        value = second if field.default == first else first
    return [value] if field.array else value


def filled(struct_type: type[Struct], version: int, wanted: tuple[type[Struct], str] | None) -> Any:
    """Every field of the version with a value other than its default, and one more that the version lacks."""
    values = {}
    for field in schema_of(struct_type).fields:
        if field.struct is not None and version in field.versions:
            inner = filled(field.struct, version, wanted)
            values[field.name] = [inner] if field.array else inner
        elif version in field.versions or (struct_type, field.name) == wanted:
            values[field.name] = another(field, version if version in field.versions else field.versions.first)
        else:
            values[field.name] = field.default
    return struct_type(**values)


def lacking(struct_type: type[Struct], version: int) -> Iterator[tuple[type[Struct], Field]]:
    """The fields that a version lacks, in the structs that it has."""
    for field in schema_of(struct_type).fields:
        if version not in field.versions:
            yield struct_type, field
        elif field.struct is not None:
            yield from lacking(field.struct, version)


def all_versions(versions: VersionRange) -> range:
    return range(versions.first, versions.last + 1)


@pytest.mark.parametrize("message_type", MESSAGES, ids=lambda message_type: message_type.__name__)
def test_what_a_version_lacks_is_dropped_or_refused_as_kafka_says(message_type: type[Message]) -> None:
    for version in all_versions(schema_of(message_type).versions):
        plain = codec.encode(filled(message_type, version, None), version)
        for struct_type, field in lacking(message_type, version):
            message = filled(message_type, version, (struct_type, field.name))
            if field.ignorable:
                assert codec.encode(message, version) == plain, (version, field.name)
                continue
            with pytest.raises(KafkaError, match=f"v{version} has no field {field.name}") as refused:
                codec.encode(message, version)
            assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
