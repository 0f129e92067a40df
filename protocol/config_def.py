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
import math
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

BLANKS = "".join(map(chr, range(0x21)))
"""What Java's `String.trim` takes off, with which Kafka trims values."""
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
    has_effect: bool = True
    """Whether anything depends on the value; if not, the documentation and the broker's log say so."""

    @property
    def is_sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str | None) -> Any:
        """Return the value a text stands for; raises ConfigError, worded as Kafka's own clients show it."""
        if text is None:
            if self.is_nullable:
                return None
            raise ConfigError(f"Invalid value null for configuration {self.name}: entry must be non null")
        value = _parse(self, text.strip(BLANKS))
        problem = self.check.problem(value) if self.check is not None and value is not None else None
        if problem:
            shown = "[hidden]" if self.is_sensitive else text.strip(BLANKS)
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
            return _show_double(float(value))
        return str(value)


def _parse(key: ConfigKey, text: str) -> Any:
    """Return the value a text without blanks around it stands for, its rule not yet checked."""
    kind = key.type
    if kind is ConfigType.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise ConfigError(
                f"Invalid value {text} for configuration {key.name}: Expected value to be either true or false"
            )
        return text.lower() == "true"
    if kind in _BITS or kind is ConfigType.DOUBLE:
        number = _parse_number(kind, text)
        if number is None:
            raise ConfigError(f"Invalid value {text} for configuration {key.name}: Not a number of type {kind.name}")
        return number
    if kind is ConfigType.LIST:
        return tuple(part.strip() for part in text.split(",")) if text else ()
    return text


def _parse_number(kind: ConfigType, text: str) -> int | float | None:
    """Return the number, or None for a text that is none or does not fit; 1_000 is Python's form, not Kafka's."""
    if "_" in text:
        return None
    try:
        if kind is ConfigType.DOUBLE:
            return float(text) if math.isfinite(float(text)) else None
        number = int(text)
    except ValueError:
        return None
    limit = 1 << (_BITS[kind] - 1)
    return number if -limit <= number < limit else None


def _show_double(value: float) -> str:
    """Return a number as Java writes it: with an exponent below 0.001 and from ten million on."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    forms = (f"{value:.{digits}e}" for digits in range(1, 18))
    mantissa, _, exponent = next(form for form in forms if float(form) == value).partition("e")
    return f"{mantissa}E{int(exponent)}"


def key(
    name: str,
    *,
    default: Any,
    check: Check | None = None,
    scope: Scope = Scope.READ_ONLY,
    doc: str = "",
    broker_key: str | tuple[str, ...] = (),
    internal: bool = False,
    effect: bool = True,
) -> Any:
    """Declare a key as a dataclass field.

    Args:
        name: Kafka's name, e.g. "segment.bytes".
        default: the value (not its text) when nothing is set.
        check: a rule beyond the type.
        scope: for broker keys, where it may be set.
        doc: one line for docs/configuration.md.
        broker_key: for topic keys, the broker key or keys they fall back to, first one first.
        internal: whether it is left out of what clients and the documentation are shown.
        effect: whether anything depends on the value.
    """
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
                "has_effect": effect,
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
        if not each.has_effect:
            doc = f"**No effect.** {doc}"
        lines.append(f"| `{each.name}` | {each.type.name.lower()} | {shown} | {valid} | {each.scope.value} | {doc} |")
    return "\n".join(lines) + "\n"
