"""Configuration keys: declared in a dataclass; parsed, checked and shown as Kafka does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from kbroker.protocol.config_def import (
    MAX_DOUBLE,
    Class,
    ConfigError,
    ConfigKey,
    ConfigType,
    Double,
    Int,
    List,
    Long,
    Password,
    Scope,
    Short,
    at_least,
    between,
    config_keys,
    key,
    markdown_table,
    one_of,
    parse_values,
    read_config,
    satisfies,
    unknown_keys,
)

EVEN = satisfies("even", lambda value: "odd" if len(value) % 2 else None)


@dataclass(frozen=True, slots=True)
class Settings:
    """One key of each type; one field that is no key."""

    enabled: bool = key("enabled", default=True)
    name: str | None = key("name", default=None, doc="this | that")
    size: Int = key("size", default=7, check=at_least(1), broker_key="log.size", scope=Scope.CLUSTER_WIDE)
    factor: Short = key("factor", default=1, check=between(1, 9), broker_key=("a", "b"))
    age: Long = key("age", default=-1, scope=Scope.PER_BROKER)
    ratio: Double = key("ratio", default=0.5)
    policy: List = key("policy", default=("delete",), check=one_of("delete", "compact"))
    plugin: Class = key("plugin", default="")
    secret: Password | None = key("secret", default=None, check=EVEN)
    hidden: int = key("hidden", default=3, internal=True)
    remembered: int = 0


KEYS = config_keys(Settings)


def problem(name: str, text: str | None) -> str:
    """What parsing a bad value says."""
    with pytest.raises(ConfigError) as refused:
        KEYS[name].parse(text)
    return str(refused.value)


def test_a_key_is_all_that_its_declaration_says() -> None:
    assert " ".join(KEYS) == "enabled name size factor age ratio policy plugin secret hidden"
    assert KEYS["size"] == ConfigKey(
        name="size", field="size", type=ConfigType.INT, default=7, is_nullable=False, check=KEYS["size"].check,
        scope=Scope.CLUSTER_WIDE, doc="", broker_keys=("log.size",), is_internal=False,
    )  # fmt: skip
    assert KEYS["factor"].broker_keys == ("a", "b")
    assert KEYS["name"].is_nullable
    assert [key.name for key in KEYS.values() if key.is_sensitive] == ["secret"]
    assert [int(each.type) for each in KEYS.values()] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 3]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("enabled", " TRUE ", True),
        ("enabled", "False", False),
        ("name", " some text ", "some text"),
        ("name", None, None),
        ("size", "+5", 5),
        ("size", "2147483647", 2147483647),
        ("age", "-9223372036854775808", -(1 << 63)),
        ("ratio", "1e3", 1000.0),
        ("policy", "compact , delete", ("compact", "delete")),
        ("policy", " ", ()),
        ("secret", " safe ", "safe"),
        ("secret", "\x1f\xa0pw\u3000\t ", "\xa0pw\u3000"),
    ],
)
def test_a_value_is_read_from_its_text(name: str, text: str | None, value: Any) -> None:
    assert KEYS[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "text_of_kafka"),
    [
        ("enabled", "yes", "Invalid value yes for configuration enabled: Expected value to be either true or false"),
        ("size", "many", "Invalid value many for configuration size: Not a number of type INT"),
        ("size", "1.0", "Invalid value 1.0 for configuration size: Not a number of type INT"),
        ("size", "1_000", "Invalid value 1_000 for configuration size: Not a number of type INT"),
        ("size", "", "Invalid value  for configuration size: Not a number of type INT"),
        ("size", "2147483648", "Invalid value 2147483648 for configuration size: Not a number of type INT"),
        ("factor", "32768", "Invalid value 32768 for configuration factor: Not a number of type SHORT"),
        ("age", "1" + "0" * 19, f"Invalid value {10**19} for configuration age: Not a number of type LONG"),
        ("ratio", "half", "Invalid value half for configuration ratio: Not a number of type DOUBLE"),
        ("ratio", "1_0.5", "Invalid value 1_0.5 for configuration ratio: Not a number of type DOUBLE"),
        ("ratio", "nan", "Invalid value nan for configuration ratio: Not a number of type DOUBLE"),
        ("size", "0", "Invalid value 0 for configuration size: Value must be at least 1"),
        ("factor", "0", "Invalid value 0 for configuration factor: Value must be at least 1"),
        ("factor", "10", "Invalid value 10 for configuration factor: Value must be no more than 9"),
        ("policy", "keep", "Invalid value keep for configuration policy: String must be one of: delete, compact"),
        ("size", None, "Invalid value null for configuration size: entry must be non null"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_in_kafkas_words(name: str, text: str | None, text_of_kafka: str) -> None:
    assert problem(name, text) == text_of_kafka


def test_a_refused_password_is_not_shown() -> None:
    assert problem("secret", "hunter2") == "Invalid value [hidden] for configuration secret: odd"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("enabled", True, "true"),
        ("enabled", False, "false"),
        ("name", None, None),
        ("size", 7, "7"),
        ("policy", ("compact", "delete"), "compact,delete"),
        ("policy", (), ""),
        ("ratio", 0.5, "0.5"),
        ("ratio", 0.0, "0.0"),
        ("ratio", 3, "3.0"),
        ("ratio", 1e-4, "1.0E-4"),
        ("ratio", -2.5e7, "-2.5E7"),
        ("ratio", MAX_DOUBLE, "1.7976931348623157E308"),
    ],
)
def test_a_value_is_shown_as_java_writes_it(name: str, value: Any, text: str | None) -> None:
    assert KEYS[name].show(value) == text
    assert KEYS[name].parse(text) == value


def test_a_configuration_is_read_from_properties_of_which_some_are_not_its_own() -> None:
    properties = {"size": "9", "name": "n", "strange.key": "1"}
    assert parse_values(Settings, properties) == {"size": 9, "name": "n"}
    assert read_config(Settings, properties) == Settings(size=9, name="n")
    assert unknown_keys(Settings, properties) == ["strange.key"]
    with pytest.raises(ConfigError, match="size"):
        read_config(Settings, {"size": "-1"})


def test_the_table_for_the_documentation_has_a_line_for_each_key_that_is_not_internal() -> None:
    lines = markdown_table(KEYS.values()).splitlines()
    assert len(lines) == 2 + len(KEYS) - 1
    assert lines[3] == "| `name` | string | (none) |  | read-only | this \\| that |"
    assert lines[4] == "| `size` | int | `7` | ≥ 1 | cluster-wide |  |"
    assert lines[9].startswith('| `plugin` | class | "" |')
