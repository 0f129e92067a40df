from __future__ import annotations

import dataclasses

import pytest

from kbroker.client.errors import ConfigurationError
from kbroker.client.settings import check_settings, read_settings, setting, settings_of
from kbroker.protocol.config_def import at_least


@dataclasses.dataclass
class Config:
    linger_ms: int = setting(5, "How long.", at_least(0))
    compression: str = setting("none", "How.")
    is_on: bool | None = setting(None, "Whether.")


def test_names_are_read_with_dots_or_underscores_and_by_kafkas_names() -> None:
    found = read_settings(Config, {"kafka.linger.ms": "7", "compression.type": "zstd", "is_on": "True"})
    assert found == {"linger_ms": 7, "compression": "zstd", "is_on": True}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"linger": 1}, "Config|has no argument 'linger'; did you mean 'linger_ms'"),
        ({"linger_ms": "soon"}, "linger_ms is a whole number, not 'soon'"),
        ({"compression": 3}, "compression is text, not 3"),
        ({"is_on": "maybe"}, "is_on is True or False, not 'maybe'"),
    ],
)
def test_what_cannot_be_read_is_named(options: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        read_settings(Config, options)


def test_a_value_that_is_not_allowed_is_named_with_what_is() -> None:
    with pytest.raises(ConfigurationError, match="linger_ms=-1: allowed is ≥ 0"):
        check_settings(Config(linger_ms=-1))


def test_a_declaration_is_all_that_the_page_needs() -> None:
    first, second, _ = settings_of(Config)
    assert (first.name, first.kafka_name, first.type, first.default, first.doc) == (
        "linger_ms", "linger.ms", "int", 5, "How long.")  # fmt: skip
    assert second.kafka_name == "compression.type"
