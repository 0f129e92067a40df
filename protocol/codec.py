# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Walks a message's fields to read or write one version of it, as the version's plan (plans.py) lists them.

A body in a flexible version ends, as does every struct in it, with its tagged fields: UV count, then tag, size and
value of each.
Bytes behind a body are ignored, as Kafka ignores them.

What is large is read and written in steps by whoever has others to serve in between: generators that yield after each
few elements, STEP_ELEMENTS at most.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Any, TypeVar

from kbroker.protocol import slots
from kbroker.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from kbroker.protocol.plans import Plan, Step, element_plan, plan_of
from kbroker.protocol.primitives import (
    BOOL,
    ERROR,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    LONGEST_STRING,
    MOST_ANSWER_BYTES,
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
from kbroker.protocol.schema import Message, Struct

M = TypeVar("M", bound=Message)

NUMBERS_PER_ELEMENT = 4
"""So many plain numbers cost as much as one struct or text."""
STEP_ELEMENTS = 64
"""Structs read or written in one step; of what is no struct NUMBERS_PER_ELEMENT times as many."""

MOST_COPIED = 1 << 20
"""Bytes of an array that are put together: it takes less than a millisecond."""

_ERRORS = [ErrorCode.of(code) for code in range(-1, max(ErrorCode) + 1)]
_KNOWN_ERRORS = len(_ERRORS)


def decode(
    message_type: type[M], buffer: BytesLike, version: int, position: int = 0, most_elements: int = NO_LIMIT
) -> M:
    """Read a message that starts at a position of a buffer.

    Records are views on the buffer. `most_elements` bounds the elements of all its arrays together. Raises
    MalformedMessage (TooManyElements when that is what is wrong), and KafkaError(UNSUPPORTED_VERSION) for a version the
    message does not have.
    """
    plan = plan_of(message_type, version)
    try:
        message: M = _read_struct(Reader(buffer, position, most_elements), plan)
    except MalformedMessage as error:
        raise type(error)(f"{plan.name} v{version}: {error}") from None
    return message


def decode_in_steps(
    message_type: type[M], buffer: BytesLike, version: int, position: int = 0, most_elements: int = NO_LIMIT
) -> Generator[None, None, M]:
    """Read a message as `decode` does, in steps; the generator returns it."""
    plan = plan_of(message_type, version)
    try:
        message: M = yield from _read_struct_in_steps(Reader(buffer, position, most_elements), plan)
    except MalformedMessage as error:
        raise type(error)(f"{plan.name} v{version}: {error}") from None
    return message


def encode(message: Message, version: int) -> bytes:
    """Return a message's bytes; raises UNSUPPORTED_VERSION when the version cannot say what the message says."""
    writer = Writer()
    _write_struct(writer, message, plan_of(type(message), version))
    return writer.to_bytes()


class EncodedArray:
    """An array whose elements are encoded already, for one version: what is told again and again is encoded once."""

    def __init__(self, count: int, parts: Sequence[Part]) -> None:
        self.count = count
        self.parts = parts

    def __len__(self) -> int:
        return self.count


def encode_elements(structs: Iterable[Struct], message_type: type[Message], version: int) -> bytes:
    """Return the bytes of a message's structs as they stand in an array: a part for `EncodedArray`."""
    writer = Writer()
    for struct in structs:
        _write_struct(writer, struct, element_plan(type(struct), message_type, version))
    return writer.to_bytes()


class ElementWriter:
    """Encodes an array's elements one by one, for what makes them one by one: `array()` stands for all of them.

    Raises AnswerTooLarge rather than hold more than `most_bytes`.
    """

    def __init__(self, message_type: type[Message], version: int, most_bytes: int = MOST_ANSWER_BYTES) -> None:
        self.message_type = message_type
        self.version = version
        self.count = 0
        self.writer = Writer(most_bytes=most_bytes)
        self.plan: Any = None

    def append(self, struct: Struct) -> None:
        """Add an element; all are of one type."""
        if self.plan is None:
            self.plan = element_plan(type(struct), self.message_type, self.version)
        _write_struct(self.writer, struct, self.plan)
        self.writer.check_size()
        self.count += 1

    def append_encoded(self, element: bytes) -> None:
        """Add an element as such a writer of this type and version has written it: `to_bytes` of it alone."""
        self.writer.write_raw(element)
        self.count += 1

    def to_bytes(self) -> bytes:
        """Return what was written, without the array's length."""
        return self.writer.to_bytes()

    def array(self) -> Any:
        """Return the array of all that was added, which ends this writer: what is large is not copied."""
        is_large = self.writer.size() > MOST_COPIED
        return EncodedArray(self.count, self.writer.parts() if is_large else [self.writer.to_bytes()])


def write_message(writer: Writer, message: Message, version: int) -> None:
    """Write a message behind what a writer already holds (its header)."""
    _write_struct(writer, message, plan_of(type(message), version))


def write_message_in_steps(writer: Writer, message: Message, version: int) -> Generator[None, None, None]:
    """Write a message as `write_message` does, in steps."""
    yield from _write_struct_in_steps(writer, message, plan_of(type(message), version))


def _read_struct(reader: Reader, plan: Plan) -> Any:
    """Read the fields of a message or struct."""
    struct = slots.new(plan.struct_type)
    if plan.is_flat:
        slots.untrack(struct)
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


def _read_struct_in_steps(reader: Reader, plan: Plan) -> Generator[None, None, Any]:
    """Read a message or struct; yields within its arrays."""
    struct = slots.new(plan.struct_type)
    for step in plan.steps:
        if step.array:
            count = _read_count(reader, step)
            if count > STEP_ELEMENTS or (count > 0 and step.plan and step.plan.holds_arrays):
                value = yield from _read_elements_in_steps(reader, step, count)
            else:
                value = _read_elements(reader, step, count)
        elif step.plan and step.plan.holds_arrays and not step.nullable:
            value = yield from _read_struct_in_steps(reader, step.plan)
        else:
            value = _read_value(reader, step)
        slots.store(struct, step.place, value)
    for step in plan.preset:
        slots.store(struct, step.place, step.default)
    if plan.flexible:
        _read_tagged(reader, plan, struct)
    return struct


def _read_elements_in_steps(reader: Reader, step: Step, count: int) -> Generator[None, None, Any]:
    """Read so many elements of an array."""
    elements: list[Any] = []
    if step.plan and step.plan.holds_arrays:
        for number in range(count):
            if number % STEP_ELEMENTS == 0:
                yield
            elements.append((yield from _read_struct_in_steps(reader, step.plan)))
        return elements
    portion = STEP_ELEMENTS if step.plan else STEP_ELEMENTS * NUMBERS_PER_ELEMENT
    while len(elements) < count:
        yield
        elements += _read_elements(reader, step, min(portion, count - len(elements)))
    return elements


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
    if length > LONGEST_STRING:
        _refuse_long(length, step)
    return reader.read_text(length)


def _refuse_long(length: int, step: Step) -> None:
    """A text that fits into flexible versions alone, as Kafka refuses it."""
    raise MalformedMessage(f"text of {length} bytes in {step.name}, {LONGEST_STRING} are allowed")


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
    """Read an array, or null."""
    return _read_elements(reader, step, _read_count(reader, step))


def _read_count(reader: Reader, step: Step) -> int:
    """Read an array's count, -1 for null; it is believed only as far as the bytes left could hold so many elements."""
    count = reader.read_varint() - 1 if step.flexible else reader.read_int32()
    if count < 0:
        _null(step)
        return -1
    if count > reader.remaining() // step.element_size:
        raise MalformedMessage(f"{count} elements announced in {step.name}, {reader.remaining()} bytes are left")
    reader.count_elements(count // NUMBERS_PER_ELEMENT if step.kind == INT32 else count)
    return count


def _read_elements(reader: Reader, step: Step, count: int) -> Any:
    """Read so many elements of an array; None for less than none."""
    if count < 0:
        return None
    kind = step.kind
    if kind == INT32:
        return reader.read_int32s(count)
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
        if length > LONGEST_STRING:
            _refuse_long(length, step)
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
    _check_struct(struct, plan)
    for step in plan.steps:
        value = slots.load(struct, step.place)
        if step.array:
            _write_array(writer, value, step)
        else:
            _write_value(writer, value, step)
    if plan.flexible:
        _write_tagged(writer, struct, plan)


def _check_struct(struct: Any, plan: Plan) -> None:
    """Refuse a struct of another class, and one that says what the version cannot say."""
    if type(struct) is not plan.struct_type:
        raise TypeError(f"{type(struct).__qualname__} where {plan.name} should be")
    for step in plan.refused:
        value = slots.load(struct, step.place)
        if not _is_default(value, step.default):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{plan.name} v{plan.version} has no field {step.name}, which is {value!r}",
            )


def _write_struct_in_steps(writer: Writer, struct: Any, plan: Plan) -> Generator[None, None, None]:
    """Write a message or struct; yields within its arrays."""
    _check_struct(struct, plan)
    for step in plan.steps:
        value = slots.load(struct, step.place)
        if step.array and value is not None and type(value) is not EncodedArray:
            yield from _write_elements_in_steps(writer, value, step)
        elif step.array:
            _write_array(writer, value, step)
        else:
            _write_value(writer, value, step)
    if plan.flexible:
        _write_tagged(writer, struct, plan)


def _write_elements_in_steps(writer: Writer, value: Any, step: Step) -> Generator[None, None, None]:
    """Write an array that is there."""
    _write_length(writer, len(value), step)
    for number, element in enumerate(value, start=1):
        if step.plan and step.plan.holds_arrays:
            yield from _write_struct_in_steps(writer, element, step.plan)
        else:
            _write_element(writer, element, step)
        if number % STEP_ELEMENTS == 0:
            yield


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
    """Write a string; Kafka allows it LONGEST_STRING bytes in every form."""
    if value is None:
        if not step.nullable:
            _refuse_null(step)
        if step.flexible:
            writer.write_varint(0)
        else:
            writer.write_int16(-1)
        return
    text: bytes = value.encode()
    if len(text) > LONGEST_STRING:
        raise ValueError(f"{step.name}: text of {len(text)} bytes, {LONGEST_STRING} are allowed")
    if step.flexible:
        writer.write_varint(len(text) + 1)
    else:
        writer.write_int16(len(text))
    writer.write_text(text)


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
        return
    writer.count_elements(len(value) // NUMBERS_PER_ELEMENT if step.kind == INT32 else len(value))
    for element in value:
        _write_element(writer, element, step)


def _write_element(writer: Writer, element: Any, step: Step) -> None:
    """Write an array's element: never null, also where the array itself may be."""
    if step.kind == STRUCT:
        _write_struct(writer, element, step.plan)
    elif step.kind == INT32:
        writer.write_int32(element)
    elif element is None:
        raise TypeError(f"None among the elements of {step.name}")
    else:
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
