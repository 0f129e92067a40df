"""What a configuration key is: declared once as a dataclass field, read, checked, shown and documented from there.

    @dataclass(frozen=True, slots=True)
    class LogConfig:
        segment_bytes: Int = key("segment.bytes", default=1 << 30, broker_key="log.segment.bytes",
                                 check=at_least(14), scope=Scope.CLUSTER_WIDE, doc="…")

A key's type is its annotation: `bool`, `str`, `Int` (or `int`), `Short`, `Long`, `Double`, `List`, `Class` or
`Password`, each also `| None`. The values are plain Python values (a List is a tuple of str); the names only tell
Kafka's types apart.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, TypeVar

Int = int
Short = int
Long = int
Double = float
List = tuple[str, ...]
Class = str
Password = str

MAX_INT = (1 << 31) - 1
MAX_LONG = (1 << 63) - 1
MAX_DOUBLE = 1.7976931348623157e308


class ConfigError(ValueError):
    """A key or value that cannot be; the text is one line that names it."""


class Scope(Enum):
    """Where a broker key may be set."""

    READ_ONLY = "read-only"
    """server.properties only."""
    CLUSTER_WIDE = "cluster-wide"
    """Also dynamically, for one broker or as the default of all."""
    PER_BROKER = "per-broker"
    """Also dynamically, but only for one broker."""


class ConfigType(IntEnum):
    """Kafka's types, numbered as in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_TYPES = {
    "bool": ConfigType.BOOLEAN,
    "str": ConfigType.STRING,
    "int": ConfigType.INT,
    "Int": ConfigType.INT,
    "Short": ConfigType.SHORT,
    "Long": ConfigType.LONG,
    "float": ConfigType.DOUBLE,
    "Double": ConfigType.DOUBLE,
    "List": ConfigType.LIST,
    "Class": ConfigType.CLASS,
    "Password": ConfigType.PASSWORD,
}
_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


@dataclass(frozen=True, slots=True)
class Check:
    """A rule for values: `problem(value)` is None or says what is wrong; `text` describes it for the documentation."""

    text: str
    problem: Callable[[Any], str | None]


def at_least(minimum: float) -> Check:
    """The value must not be smaller."""
    return Check(f"≥ {minimum}", lambda v: f"Value must be at least {minimum}" if v < minimum else None)


def between(minimum: float, maximum: float) -> Check:
    """The value must lie in the range, both ends included."""

    def problem(value: Any) -> str | None:
        if value < minimum:
            return f"Value must be at least {minimum}"
        return f"Value must be no more than {maximum}" if value > maximum else None

    return Check(f"{minimum}…{maximum}", problem)


def one_of(*allowed: str) -> Check:
    """The value, or each of a list's values, must be one of these."""
    text = ", ".join(allowed)

    def problem(value: Any) -> str | None:
        values = value if isinstance(value, tuple) else (value,)
        return None if all(v in allowed for v in values) else f"String must be one of: {text}"

    return Check(text, problem)


def satisfies(text: str, problem: Callable[[Any], str | None]) -> Check:
    """A rule of one's own."""
    return Check(text, problem)


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """All about one key."""

    name: str
    field: str
    type: ConfigType
    default: Any
    is_nullable: bool
    check: Check | None
    scope: Scope
    doc: str
    broker_keys: tuple[str, ...]
    """For topic keys: the broker keys it falls back to, first one first."""
    is_internal: bool

    @property
    def is_sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str | None) -> Any:
        """Return the value a text stands for; raises ConfigError."""
        if text is None:
            if self.is_nullable:
                return None
            raise ConfigError(f"Invalid value null for configuration {self.name}: entry must be non null")
        value = _parse(self, text.strip())
        problem = self.check.problem(value) if self.check is not None and value is not None else None
        if problem:
            shown = "[hidden]" if self.is_sensitive else text.strip()
            raise ConfigError(f"Invalid value {shown} for configuration {self.name}: {problem}")
        return value

    def show(self, value: Any) -> str | None:
        """Return the text that stands for a value, as Kafka writes it."""
        if value is None:
            return None
        if self.type is ConfigType.BOOLEAN:
            return "true" if value else "false"
        if self.type is ConfigType.LIST:
            return ",".join(value)
        if self.type is ConfigType.DOUBLE:
            return repr(float(value)).replace("e+", "E")
        return str(value)


def _parse(key: ConfigKey, text: str) -> Any:
    kind = key.type
    if kind is ConfigType.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise ConfigError(
                f"Invalid value {text} for configuration {key.name}: Expected value to be either true or false"
            )
        return text.lower() == "true"
    if kind in _BITS:
        try:
            number = int(text)
        except ValueError:
            number = None
        limit = 1 << (_BITS[kind] - 1)
        if number is None or "_" in text or not -limit <= number < limit:
            raise ConfigError(f"Invalid value {text} for configuration {key.name}: Not a number of type {kind.name}")
        return number
    if kind is ConfigType.DOUBLE:
        try:
            return float(text)
        except ValueError:
            raise ConfigError(
                f"Invalid value {text} for configuration {key.name}: Not a number of type DOUBLE"
            ) from None
    if kind is ConfigType.LIST:
        return tuple(part.strip() for part in text.split(",")) if text else ()
    return text


def key(
    name: str,
    *,
    default: Any,
    check: Check | None = None,
    scope: Scope = Scope.READ_ONLY,
    doc: str = "",
    broker_key: str | tuple[str, ...] = (),
    internal: bool = False,
) -> Any:
    """Declare a key as a dataclass field."""
    broker_keys = (broker_key,) if isinstance(broker_key, str) else broker_key
    return dataclasses.field(
        default=default,
        metadata={
            "key": {
                "name": name,
                "check": check,
                "scope": scope,
                "doc": doc,
                "broker_keys": broker_keys,
                "is_internal": internal,
            }
        },
    )


@functools.cache
def config_keys(config_type: type) -> dict[str, ConfigKey]:
    """Return the keys declared in a dataclass by their names, in order."""
    keys = {}
    for field in dataclasses.fields(config_type):
        declared = field.metadata.get("key")
        if declared is None:
            continue
        annotation = str(field.type if isinstance(field.type, str) else getattr(field.type, "__name__", field.type))
        name, _, nullable = annotation.partition(" | ")
        keys[declared["name"]] = ConfigKey(
            field=field.name,
            type=_TYPES[name],
            default=field.default,
            is_nullable=nullable == "None",
            **declared,
        )
    return keys


Config = TypeVar("Config")


def parse_values(config_type: type, properties: Mapping[str, str | None]) -> dict[str, Any]:
    """Return field -> value of the known keys among the properties; raises ConfigError for the first bad value."""
    keys = config_keys(config_type)
    return {keys[name].field: keys[name].parse(text) for name, text in properties.items() if name in keys}


def unknown_keys(config_type: type, names: Iterable[str]) -> list[str]:
    """Return the names that are no keys of this configuration."""
    keys = config_keys(config_type)
    return [name for name in names if name not in keys]


def read_config(config_type: type[Config], properties: Mapping[str, str | None]) -> Config:
    """Make a configuration of the known keys among the properties, defaults for the rest; raises ConfigError."""
    return config_type(**parse_values(config_type, properties))


def markdown_table(keys: Iterable[ConfigKey]) -> str:
    """Return the keys as a table for docs/configuration.md."""
    lines = ["| key | type | default | valid | dynamic | meaning |", "| --- | --- | --- | --- | --- | --- |"]
    for each in keys:
        if each.is_internal:
            continue
        default = each.show(each.default)
        shown = "(none)" if default is None else f"`{default}`" if default else '""'
        valid = each.check.text if each.check is not None else ""
        doc = each.doc.replace("|", "\\|")
        lines.append(f"| `{each.name}` | {each.type.name.lower()} | {shown} | {valid} | {each.scope.value} | {doc} |")
    return "\n".join(lines) + "\n"
