# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Walks a message's fields to read or write one version of it.

For each message (or struct) and version a `Plan` is made once: the fields which that version has, in wire order,
each a `Step` with everything decided that can be decided beforehand; and what the version lacks. Reading and writing
walk the steps.

A body in a flexible version ends, as does every struct in it, with its tagged fields: UV count, then tag, size and
value of each.
Bytes behind a body are ignored, as Kafka ignores them.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from kbroker.protocol import slots
from kbroker.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from kbroker.protocol.primitives import (
    BOOL,
    ERROR,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    NO_LIMIT,
    RECORDS,
    STRING,
    STRUCT,
    UUID,
    BytesLike,
    Part,
    Reader,
    Writer,
    size_of,
)
from kbroker.protocol.schema import Field, Message, Schema, Struct

M = TypeVar("M", bound=Message)

_FIXED_SIZES = {BOOL: 1, INT8: 1, INT16: 2, INT32: 4, INT64: 8, FLOAT64: 8, UUID: 16, ERROR: 2}

NUMBERS_PER_ELEMENT = 4
"""So many plain numbers cost as much as one struct or text."""

_ERRORS = [ErrorCode.of(code) for code in range(-1, max(ErrorCode) + 1)]
_KNOWN_ERRORS = len(_ERRORS)


class Step:
    """How one field stands on the wire in one version."""

    def __init__(
        self, struct_type: type[Struct], field: Field, version: int, flexible: bool, plan: "Plan | None"
    ) -> None:
        self.name = field.name
        self.place = slots.place_of(struct_type, field.name)
        self.kind = field.kind
        self.array = field.array
        self.nullable = version in field.nullable
        self.flexible = flexible
        self.plan: Any = plan
        self.tag = -1 if field.tag is None else field.tag
        self.default = field.default
        self.element_size = _smallest(field.kind, flexible, plan)


class Plan:
    """One version of a message or struct, ready to be walked."""

    def __init__(self, struct_type: type[Struct], version: int, flexible: bool) -> None:
        fields = struct_type.__schema__.fields
        steps = [(item, _step(struct_type, item, version, flexible)) for item in fields]
        present = [(item, step) for item, step in steps if version in item.versions]
        lacking = [(item, step) for item, step in steps if version not in item.versions]
        self.name = struct_type.__qualname__
        self.struct_type = struct_type
        self.version = version
        self.flexible = flexible
        self.steps = tuple(step for item, step in present if item.tag is None)
        self.tagged = tuple(sorted((step for item, step in present if item.tag is not None), key=_tag_of))
        self.preset = (*(step for _, step in lacking), *self.tagged)
        self.refused = tuple(step for item, step in lacking if not item.ignorable)
        self.smallest = sum(_smallest_field(step) for step in self.steps) + (1 if flexible else 0)


def _tag_of(step: Step) -> int:
    return step.tag


def _step(struct_type: type[Struct], field: Field, version: int, flexible: bool) -> Step:
    """Return a field's step, with the plan of the struct it holds, if it holds one and is in the version."""
    plan = None
    if field.kind == STRUCT and version in field.versions:
        assert field.struct is not None, f"{field.name}: no struct {field.struct_name} in its message"
        plan = Plan(field.struct, version, flexible)
    return Step(struct_type, field, version, flexible, plan)


def _smallest(kind: int, flexible: bool, plan: Plan | None) -> int:
    """Return the least number of bytes that one value of a kind takes: what bounds the count of an array."""
    if plan is not None:
        return max(plan.smallest, 1)
    if kind in _FIXED_SIZES:
        return _FIXED_SIZES[kind]
    if flexible:
        return 1
    return 2 if kind == STRING else 4


def _smallest_field(step: Step) -> int:
    """Return the least number of bytes that a field takes."""
    if step.array:
        return 1 if step.flexible else 4
    if step.plan is not None:
        return 1 if step.nullable else step.plan.smallest
    return step.element_size


_plans: dict[Any, Plan] = {}


def _plan(message_type: type[Message], version: int) -> Plan:
    """Return the plan of a message in a version; raises UNSUPPORTED_VERSION for one it does not have."""
    plan = _plans.get((message_type, version))
    if plan is None:
        schema: Schema = message_type.__schema__
        if version not in schema.versions:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{schema.name} has versions {schema.versions}, not {version}",
            )
        plan = _plans[(message_type, version)] = Plan(message_type, version, version in schema.flexible)
    return plan


def decode(
    message_type: type[M], buffer: BytesLike, version: int, position: int = 0, most_elements: int = NO_LIMIT
) -> M:
    """Read a message that starts at a position of a buffer.

    Records are views on the buffer. `most_elements` bounds the elements of all its arrays together. Raises
    MalformedMessage, and KafkaError(UNSUPPORTED_VERSION) for a version the message does not have.
    """
    plan = _plan(message_type, version)
    try:
        message: M = _read_struct(Reader(buffer, position, most_elements), plan)
    except MalformedMessage as error:
        raise MalformedMessage(f"{plan.name} v{version}: {error}") from None
    return message


def encode(message: Message, version: int) -> bytes:
    """Return a message's bytes; raises UNSUPPORTED_VERSION when the version cannot say what the message says."""
    writer = Writer()
    _write_struct(writer, message, _plan(type(message), version))
    return writer.to_bytes()


class EncodedArray:
    """An array whose elements are encoded already, for one version: what is told again and again is encoded once."""

    def __init__(self, count: int, parts: Sequence[bytes]) -> None:
        self.count = count
        self.parts = parts

    def __len__(self) -> int:
        return self.count


def encode_elements(structs: Iterable[Struct], message_type: type[Message], version: int) -> bytes:
    """Return the bytes of a message's structs as they stand in an array: a part for `EncodedArray`."""
    writer = Writer()
    for struct in structs:
        _write_struct(writer, struct, _element_plan(type(struct), message_type, version))
    return writer.to_bytes()


def _element_plan(struct_type: type[Struct], message_type: type[Message], version: int) -> Plan:
    key = struct_type, version
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = Plan(struct_type, version, version in message_type.__schema__.flexible)
    return plan


class ElementWriter:
    """Encodes an array's elements one by one, for what makes them one by one: `array()` stands for all of them."""

    def __init__(self, message_type: type[Message], version: int) -> None:
        self.message_type = message_type
        self.version = version
        self.count = 0
        self.writer = Writer()
        self.plan: Any = None

    def append(self, struct: Struct) -> None:
        """Add an element; all are of one type."""
        if self.plan is None:
            self.plan = _element_plan(type(struct), self.message_type, self.version)
        _write_struct(self.writer, struct, self.plan)
        self.count += 1

    def array(self) -> Any:
        """Return the array of all that was added."""
        return EncodedArray(self.count, [self.writer.to_bytes()])


def encode_parts(message: Message, version: int) -> list[Part]:
    """Return a message as pieces to be sent in this order; large records are pieces of their own, not copied."""
    writer = Writer()
    _write_struct(writer, message, _plan(type(message), version))
    return writer.parts()


def write_message(writer: Writer, message: Message, version: int) -> None:
    """Write a message behind what a writer already holds (its header)."""
    _write_struct(writer, message, _plan(type(message), version))


def _read_struct(reader: Reader, plan: Plan) -> Any:
    """Read the fields of a message or struct."""
    struct = slots.new(plan.struct_type)
    for step in plan.steps:
        if step.array:
            slots.store(struct, step.place, _read_array(reader, step))
        else:
            slots.store(struct, step.place, _read_value(reader, step))
    for step in plan.preset:
        slots.store(struct, step.place, step.default)
    if plan.flexible:
        _read_tagged(reader, plan, struct)
    return struct


def _read_value(reader: Reader, step: Step) -> Any:
    """Read one value that is no array."""
    kind = step.kind
    if kind == INT32:
        return reader.read_int32()
    if kind == STRING:
        return _read_string(reader, step)
    if kind == INT64:
        return reader.read_int64()
    if kind == STRUCT:
        if step.nullable and reader.read_int8() < 0:
            return None
        return _read_struct(reader, step.plan)
    if kind == ERROR:
        code = reader.read_int16() + 1
        return _ERRORS[code] if 0 <= code < _KNOWN_ERRORS else ErrorCode.UNKNOWN_SERVER_ERROR
    if kind == INT16:
        return reader.read_int16()
    if kind == INT8:
        return reader.read_int8()
    if kind == BOOL:
        return reader.read_bool()
    if kind == UUID:
        return reader.read_bytes(16)
    if kind == FLOAT64:
        return reader.read_float64()
    return _read_blob(reader, step)


def _read_string(reader: Reader, step: Step) -> Any:
    """Read a string; any negative length is null."""
    length = reader.read_varint() - 1 if step.flexible else reader.read_int16()
    if length < 0:
        return _null(step)
    return reader.read_text(length)


def _read_blob(reader: Reader, step: Step) -> Any:
    """Read bytes (a copy) or records (a view)."""
    length = reader.read_varint() - 1 if step.flexible else reader.read_int32()
    if length < 0:
        return _null(step)
    if step.kind == RECORDS:
        return reader.read_view(length)
    return reader.read_bytes(length)


def _null(step: Step) -> None:
    """Refuse null where the version has no null."""
    if not step.nullable:
        raise MalformedMessage(f"null in {step.name}")


def _read_array(reader: Reader, step: Step) -> Any:
    """Read an array; its count is believed only as far as the bytes that are left could hold so many elements."""
    count = reader.read_varint() - 1 if step.flexible else reader.read_int32()
    if count < 0:
        return _null(step)
    if count > reader.remaining() // step.element_size:
        raise MalformedMessage(f"{count} elements announced in {step.name}, {reader.remaining()} bytes are left")
    kind = step.kind
    if kind == INT32:
        reader.count_elements(count // NUMBERS_PER_ELEMENT)
        return reader.read_int32s(count)
    reader.count_elements(count)
    elements = []
    if kind == STRUCT:
        plan = step.plan
        for _index in range(count):
            elements.append(_read_struct(reader, plan))
    else:
        for _index in range(count):
            elements.append(_read_element(reader, step))
    return elements


def _read_element(reader: Reader, step: Step) -> Any:
    """Read an array's element: never null, also where the array itself may be."""
    if step.kind == STRING:
        length = reader.read_varint() - 1 if step.flexible else reader.read_int16()
        if length < 0:
            raise MalformedMessage(f"null among the elements of {step.name}")
        return reader.read_text(length)
    return _read_value(reader, step)


def _read_tagged(reader: Reader, plan: Plan, struct: Any) -> None:
    """Read the tagged fields: unknown ones are skipped by their size, known ones end where their value does.

    The size announced for a known one is not looked at, as in Kafka.
    """
    count = reader.read_varint()
    if count > reader.remaining() // 2:
        raise MalformedMessage(f"{count} tagged fields announced, {reader.remaining()} bytes are left")
    reader.count_elements(count)
    for _index in range(count):
        tag = reader.read_varint()
        size = reader.read_varint()
        for step in plan.tagged:
            if step.tag == tag:
                slots.store(struct, step.place, _read_tagged_value(reader, step))
                break
        else:
            reader.advance(size)


def _read_tagged_value(reader: Reader, step: Step) -> Any:
    """Read a tagged field's value; a nullable struct has a varint before it where elsewhere it has an int8."""
    if step.array:
        return _read_array(reader, step)
    if step.kind == STRUCT and step.nullable:
        return _read_struct(reader, step.plan) if reader.read_varint() > 0 else None
    return _read_value(reader, step)


def _write_struct(writer: Writer, struct: Any, plan: Plan) -> None:
    """Write the fields of a message or struct."""
    if type(struct) is not plan.struct_type:
        raise TypeError(f"{type(struct).__qualname__} where {plan.name} should be")
    for step in plan.refused:
        value = slots.load(struct, step.place)
        if not _is_default(value, step.default):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{plan.name} v{plan.version} has no field {step.name}, which is {value!r}",
            )
    for step in plan.steps:
        value = slots.load(struct, step.place)
        if step.array:
            _write_array(writer, value, step)
        else:
            _write_value(writer, value, step)
    if plan.flexible:
        _write_tagged(writer, struct, plan)


def _is_default(value: Any, default: Any) -> bool:
    """Whether a field needs not be written; an empty list is as good as an empty tuple."""
    if value is default:
        return True
    if isinstance(default, tuple):
        return value is not None and len(value) == 0
    return bool(value == default)


def _write_value(writer: Writer, value: Any, step: Step) -> None:
    """Write one value that is no array."""
    kind = step.kind
    if kind == INT32:
        writer.write_int32(value)
    elif kind == STRING:
        _write_string(writer, value, step)
    elif kind == INT64:
        writer.write_int64(value)
    elif kind == STRUCT:
        if step.nullable:
            writer.write_int8(-1 if value is None else 1)
        if value is not None:
            _write_struct(writer, value, step.plan)
        elif not step.nullable:
            _refuse_null(step)
    elif kind in (INT16, ERROR):
        writer.write_int16(value)
    elif kind == INT8:
        writer.write_int8(value)
    elif kind == BOOL:
        writer.write_bool(value)
    elif kind == UUID:
        if len(value) != 16:
            raise ValueError(f"{step.name}: a uuid has 16 bytes, not {len(value)}")
        writer.write_raw(bytes(value))
    elif kind == FLOAT64:
        writer.write_float64(value)
    else:
        _write_blob(writer, value, step)


def _write_length(writer: Writer, length: int, step: Step) -> None:
    """Write a length or count (-1: null) in the form of the version."""
    if length < 0 and not step.nullable:
        _refuse_null(step)
    if step.flexible:
        writer.write_varint(length + 1)
    else:
        writer.write_int32(length)


def _write_string(writer: Writer, value: Any, step: Step) -> None:
    """Write a string; Kafka allows it 32767 bytes in every form."""
    if value is None:
        if not step.nullable:
            _refuse_null(step)
        if step.flexible:
            writer.write_varint(0)
        else:
            writer.write_int16(-1)
        return
    text: bytes = value.encode()
    if len(text) > 32767:
        raise ValueError(f"{step.name}: text of {len(text)} bytes, 32767 are allowed")
    if step.flexible:
        writer.write_varint(len(text) + 1)
    else:
        writer.write_int16(len(text))
    writer.write_raw(text)


def _write_blob(writer: Writer, value: Any, step: Step) -> None:
    """Write bytes, or records in any of their forms."""
    if value is None:
        _write_length(writer, -1, step)
    elif step.kind == RECORDS:
        _write_length(writer, size_of(value), step)
        writer.write_records(value)
    else:
        _write_length(writer, len(value), step)
        writer.write_raw(bytes(value))


def _write_array(writer: Writer, value: Any, step: Step) -> None:
    """Write an array: a list, a tuple, or whatever has a length and can be walked."""
    if value is None:
        _write_length(writer, -1, step)
        return
    _write_length(writer, len(value), step)
    if type(value) is EncodedArray:
        for part in value.parts:
            writer.write_records(part)
    elif step.kind == STRUCT:
        plan = step.plan
        for element in value:
            _write_struct(writer, element, plan)
    elif step.kind == INT32:
        for element in value:
            writer.write_int32(element)
    else:
        for element in value:
            if element is None:
                raise TypeError(f"None among the elements of {step.name}")
            _write_value(writer, element, step)


def _write_tagged(writer: Writer, struct: Any, plan: Plan) -> None:
    """Write the tagged fields that differ from their default, by ascending tag."""
    count = 0
    for step in plan.tagged:
        if not _is_default(slots.load(struct, step.place), step.default):
            count += 1
    writer.write_varint(count)
    if count == 0:
        return
    for step in plan.tagged:
        field = slots.load(struct, step.place)
        if not _is_default(field, step.default):
            inner = Writer()
            _write_tagged_value(inner, field, step)
            value = inner.to_bytes()
            writer.write_varint(step.tag)
            writer.write_varint(len(value))
            writer.write_raw(value)


def _write_tagged_value(writer: Writer, value: Any, step: Step) -> None:
    """Write a tagged field's value (see `_read_tagged_value`)."""
    if step.array:
        _write_array(writer, value, step)
    elif step.kind == STRUCT and step.nullable:
        writer.write_varint(0 if value is None else 1)
        if value is not None:
            _write_struct(writer, value, step.plan)
    else:
        _write_value(writer, value, step)


def _refuse_null(step: Step) -> None:
    """Null where this version has none: another version's meaning, or a mistake of the caller."""
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{step.name} cannot be null in this version")
