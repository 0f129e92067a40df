"""One class per message, for all its versions: how messages and their fields are declared.

    @request(key=12, versions="0-4", flexible="4+")
    class HeartbeatRequest(Message):
        group_id: Str
        generation_id: Int32
        member_id: Str
        group_instance_id: NullableStr = since(3, default=None)

Fields stand in wire order. A field without `since`, `until` or `field` is in every version. Nested structs are
classes inside their message; a message module uses `from __future__ import annotations`, so that structs may stand
below the fields that name them (`topics: Array[FetchTopic]`, and from within another struct
`Array[FetchRequest.FetchPartition]`): annotations are read as text, by name.

Instances have slots, a keyword constructor, equality and a repr. By convention nobody changes one after building it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, dataclass_transform

from kbroker.protocol import primitives

NEWEST = 32767
"""Stands for "and later" in a range of versions."""

REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "REQUIRED"})()
"""The default of a field that has none: the constructor asks for it."""

DEFAULTS: Any = type("Defaults", (), {"__repr__": lambda self: "DEFAULTS"})()
"""The default of a struct that has all its defaults; replaced by that struct once its message is complete."""

Secret: TypeAlias = primitives.Bytes
"""Never shown: a message that is printed leaves it out."""
NullableSecretStr: TypeAlias = primitives.NullableStr
"""May be a password, and is never shown."""

KIND_BY_ANNOTATION = {
    "Bool": primitives.BOOL,
    "Int8": primitives.INT8,
    "Int16": primitives.INT16,
    "Int32": primitives.INT32,
    "Int64": primitives.INT64,
    "Float64": primitives.FLOAT64,
    "Str": primitives.STRING,
    "NullableStr": primitives.STRING,
    "Bytes": primitives.BYTES,
    "Secret": primitives.BYTES,
    "NullableSecretStr": primitives.STRING,
    "NullableBytes": primitives.BYTES,
    "Records": primitives.RECORDS,
    "Uuid": primitives.UUID,
    "Error": primitives.ERROR,
}


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions `first` to `last`, both included; empty when first > last."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __str__(self) -> str:
        return f"{self.first}+" if self.last == NEWEST else f"{self.first}-{self.last}"


NEVER = VersionRange(0, -1)
ALWAYS = VersionRange(0, NEWEST)


def parse_versions(text: str) -> VersionRange:
    """Return the range written as "3", "3-5", "3+" or "none"."""
    if text == "none":
        return NEVER
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), NEWEST)
    first, _, last = text.partition("-")
    return VersionRange(int(first), int(last or first))


@dataclass(slots=True)
class Field:
    """One field of a message or struct, in all versions."""

    name: str
    kind: int
    """One of the numbers in protocol.primitives."""
    array: bool
    struct_name: str | None
    """The struct a field of kind STRUCT holds; `struct` is that class once its message is complete."""
    default: Any
    versions: VersionRange
    nullable: VersionRange
    tag: int | None
    ignorable: bool
    struct: "type[Struct] | None" = None
    is_secret: bool = False
    """Never shown."""


@dataclass(slots=True)
class Schema:
    """What the decorators say about a message, or nothing but the fields for a nested struct."""

    name: str
    fields: tuple[Field, ...]
    role: str = "struct"
    """request, response, data or struct."""
    api_key: int = -1
    versions: VersionRange = NEVER
    flexible: VersionRange = NEVER
    answers: "type[Message] | None" = None
    """For a response: its request."""


@dataclass(frozen=True, slots=True)
class _Declared:
    """The right-hand side of a field declaration, until the class is complete."""

    default: Any
    versions: VersionRange
    nullable: VersionRange | None
    tag: int | None
    ignorable: bool


def field(
    *,
    default: Any = REQUIRED,
    versions: str = "0+",
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field that is not simply in every version.

    Args:
        default: value where the version on the wire lacks the field. Required unless the field is in all versions.
        versions: the versions that have the field.
        nullable: the versions in which null is legal, where they are not those of the field.
        tag: number of a tagged field: optional on the wire, left out when it has its default.
        ignorable: another value than the default may be dropped when a version lacks the field; else encoding fails.
    """
    allowed = None if nullable is None else parse_versions(nullable)
    return _Declared(default, parse_versions(versions), allowed, tag, ignorable)


def since(
    first: int,
    *,
    default: Any,
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field that is new in version `first`."""
    return field(default=default, versions=f"{first}+", nullable=nullable, tag=tag, ignorable=ignorable)


def until(last: int, *, default: Any, nullable: str | None = None, ignorable: bool = False) -> Any:
    """Declare a field that is gone after version `last`."""
    return field(default=default, versions=f"0-{last}", nullable=nullable, ignorable=ignorable)


class SchemaType(type):
    """Makes a class from a declaration: slots from annotations, defaults taken out, structs linked by name."""

    __schema__: Schema
    __layout__: tuple[tuple[str, Any], ...]

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> "SchemaType":
        """Make the class of one declaration."""
        annotations: dict[str, str] = namespace.get("__annotations__", {})
        fields = tuple(_field(key, text, namespace.pop(key, REQUIRED)) for key, text in annotations.items())
        namespace["__slots__"] = tuple(annotations)
        namespace["__schema__"] = Schema(name, fields)
        namespace["__layout__"] = tuple((item.name, item.default) for item in fields)
        cls = super().__new__(mcls, name, bases, namespace)
        structs = {key: value for key, value in namespace.items() if isinstance(value, SchemaType)}
        for owner in (*structs.values(), cls):
            _link(owner, structs)
        return cls


def _link(owner: SchemaType, structs: dict[str, SchemaType]) -> None:
    """Find the classes that the struct fields of a class name."""
    for item in owner.__schema__.fields:
        if item.struct_name in structs and item.struct is None:
            item.struct = structs[item.struct_name]  # type: ignore[assignment]
            if item.default is DEFAULTS:
                item.default = structs[item.struct_name]()
    owner.__layout__ = tuple((item.name, item.default) for item in owner.__schema__.fields)


def _field(name: str, annotation: str, declared: Any) -> Field:
    """Read one line of a declaration."""
    if not isinstance(declared, _Declared):
        declared = _Declared(declared, ALWAYS, None, None, False)
    text = annotation.removesuffix(" | None")
    array = text.endswith("]")
    element = text[text.index("[") + 1 : -1] if array else text
    kind = KIND_BY_ANNOTATION.get(element, primitives.STRUCT)
    struct_name = element.rpartition(".")[2] if kind == primitives.STRUCT else None
    may_be_null = text.startswith("Nullable") or text == "Records" or annotation.endswith(" | None")
    nullable = declared.nullable or (declared.versions if may_be_null else NEVER)
    found = Field(
        name, kind, array, struct_name, declared.default, declared.versions, nullable, declared.tag, declared.ignorable
    )
    found.is_secret = "Secret" in element
    return found


def _constructor(cls: SchemaType) -> Callable[..., None]:
    """Return an __init__ that takes the fields of a class by keyword."""
    defaults = {f"_{name}": default for name, default in cls.__layout__ if default is not REQUIRED}
    parameters = (f"{name}=_{name}" if f"_{name}" in defaults else name for name, _ in cls.__layout__)
    signature = ", ".join(("self", "*", *parameters)) if cls.__layout__ else "self"
    body = "".join(f"\n    self.{name} = {name}" for name, _ in cls.__layout__) or "\n    pass"
    namespace: dict[str, Any] = defaults
    exec(f"def __init__({signature}):{body}", namespace)
    constructor: Callable[..., None] = namespace["__init__"]
    constructor.__qualname__ = f"{cls.__qualname__}"
    return constructor


def _same(one: Any, other: Any) -> bool:
    """Compare field values; an array read from the wire is a list, one that was built may be a tuple."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return list(one) == list(other)
    return bool(one == other)


@dataclass_transform(kw_only_default=True, field_specifiers=(field, since, until))
class Struct(metaclass=SchemaType):
    """A group of fields inside a message."""

    def __init__(self, **values: Any) -> None:
        # The first instance of a class gives it a constructor of its own: three times as quick as a loop over fields,
        # and answers are made by the thousand. Making all of them at import would cost every start 50 ms.
        cls = type(self)
        cls.__init__ = _constructor(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_same(getattr(self, name), getattr(other, name)) for name, _ in type(self).__layout__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(
            f"{each.name}={'…' if each.is_secret else repr(getattr(self, each.name))}"
            for each in type(self).__schema__.fields
        )
        return f"{type(self).__qualname__}({values})"


class Message(Struct):
    """A request, a response, or a record of an internal topic."""


M = TypeVar("M", bound=type[Message])


@dataclass(frozen=True, slots=True)
class Api:
    """One API: a request with its response."""

    key: int
    name: str
    """Kafka's name, e.g. "Fetch"."""
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int
    flexible_from: int
    """First version with compact encoding; above max_version for an API that has none."""


API_BY_KEY: dict[int, Api] = {}
"""Of the messages that are loaded; protocol.apis loads all."""
DATA: list[type[Message]] = []


def schema_of(message_type: type[Struct]) -> Schema:
    """Return the declaration of a message or struct."""
    return message_type.__schema__


def api_of(request_type: type[Message]) -> Api:
    """Return the API of a request's (or response's) class."""
    return API_BY_KEY[schema_of(request_type).api_key]


def request(*, key: int, versions: str, flexible: str) -> Callable[[M], M]:
    """Declare a request: its API key, the versions served, and from which one on the encoding is compact."""

    def declare(cls: M) -> M:
        schema = schema_of(cls)
        schema.role, schema.api_key = "request", key
        schema.versions, schema.flexible = parse_versions(versions), parse_versions(flexible)
        return cls

    return declare


def response(*, to: type[Message]) -> Callable[[M], M]:
    """Declare the response to a request; it has the same versions."""

    def declare(cls: M) -> M:
        schema, asked = schema_of(cls), schema_of(to)
        schema.role, schema.api_key, schema.answers = "response", asked.api_key, to
        schema.versions, schema.flexible = asked.versions, asked.flexible
        last = asked.versions.last
        API_BY_KEY[asked.api_key] = Api(
            key=asked.api_key,
            name=asked.name.removesuffix("Request"),
            request=to,
            response=cls,
            min_version=asked.versions.first,
            max_version=last,
            flexible_from=last + 1 if asked.flexible == NEVER else asked.flexible.first,
        )
        return cls

    return declare


def data(*, versions: str, flexible: str = "none") -> Callable[[M], M]:
    """Declare a message that is no request: a record of an internal topic, or a blob inside another message."""

    def declare(cls: M) -> M:
        schema = schema_of(cls)
        schema.role = "data"
        schema.versions, schema.flexible = parse_versions(versions), parse_versions(flexible)
        DATA.append(cls)
        return cls

    return declare
