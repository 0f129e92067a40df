"""What a client's setting is: declared once as a dataclass field, read, checked and documented from there.

    linger_ms: int = setting(5, "How long …", at_least(0))

Names are keyword arguments in snake_case; Kafka's dotted names and values as text are read too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kbroker.client.errors import ConfigurationError
from kbroker.client.other_clients import ALIASES, INSTEAD
from kbroker.protocol.config_def import Check

RENAMED = {
    "bootstrap_servers": "bootstrap",
    "compression_type": "compression",
    "max_in_flight_requests_per_connection": "max_in_flight",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_plain_password": "sasl_password",
    "sasl_plain_username": "sasl_username",
    "ssl_ca_location": "ssl_cafile",
    "ssl_certificate_location": "ssl_certfile",
    "ssl_key_location": "ssl_keyfile",
    "ssl_key_password": "ssl_password",
}
"""Other names for what is shorter here: Java's, librdkafka's, kafka-python's."""


def setting(default: Any, doc: str, check: Check | None = None, *, is_secret: bool = False) -> Any:
    """Declare a setting as a dataclass field; the text goes to docs/client-settings.md. A secret is never shown."""
    return dataclasses.field(default=default, repr=not is_secret, metadata={"doc": doc, "check": check})


class Setting(NamedTuple):
    """All about one setting."""

    name: str
    type: str
    default: Any
    doc: str
    check: Check | None
    is_secret: bool

    @property
    def kafka_name(self) -> str:
        """What Kafka's clients call it, or would."""
        long = {short: name for name, short in RENAMED.items()}.get(self.name, self.name)
        return long.replace("_", ".")


def settings_of(config_type: type) -> Iterator[Setting]:
    """Give the settings in the order of their declaration."""
    for field in dataclasses.fields(config_type):
        doc, check = field.metadata["doc"], field.metadata["check"]
        yield Setting(field.name, str(field.type), field.default, doc, check, not field.repr)


def setting_name(option: str) -> str:
    """Return what a setting is called here, of snake_case or dotted names, with or without `kafka.` in front."""
    name = option.removeprefix("kafka.").replace(".", "_").lower()
    return RENAMED.get(name) or ALIASES.get(name, name)


def read_settings(config_type: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return name -> value of options given by snake_case or dotted names, with or without `kafka.` in front.

    Raises ConfigurationError for a name nobody knows, with the nearest that exists, and for a value of another type.
    """
    known = {each.name: each for each in settings_of(config_type)}
    values: dict[str, Any] = {}
    for option, value in options.items():
        name = setting_name(option)
        if name not in known:
            raise ConfigurationError(_unknown(config_type, option, name, list(known)))
        values[name] = _parsed(option, value, known[name])
    return values


def check_settings(config: Any) -> None:
    """Raise ConfigurationError for the first value that its declaration does not allow."""
    for each in settings_of(type(config)):
        value = getattr(config, each.name)
        if each.check is not None and value is not None and each.check.problem(value) is not None:
            raise ConfigurationError(f"{each.name}={value!r}: allowed is {each.check.text}")


def text_problem(config_types: Iterable[type], option: str, text: str) -> str | None:
    """Return what is wrong with a setting that was given as text, in dotted names; None where a client takes it so."""
    name = setting_name(option)
    known = {each.name: each for config_type in config_types for each in settings_of(config_type)}
    found = known.get(name)
    if found is None:
        nearest = [known[each].kafka_name for each in _nearest(name, known)]
        why = INSTEAD.get(name) or (f"did you mean {nearest[0]}?" if nearest else "docs/client-settings.md lists them")
        return f"no client has the setting {option}: {why}"
    try:
        value = _parsed(option, text, found)
    except ConfigurationError as error:
        return str(error)
    # Of some names clients make capitals themselves.
    spellings = (value, value.upper()) if isinstance(value, str) else (value,)
    if found.check is None or None in map(found.check.problem, spellings):
        return None
    return f"{option}={'…' if found.is_secret else text}: allowed is {found.check.text}"


def _nearest(name: str, known: Iterable[str]) -> list[str]:
    import difflib

    return difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)


def _unknown(config_type: type, option: str, name: str, known: list[str]) -> str:
    if name in INSTEAD:
        return f"{config_type.__name__.removesuffix('Config')} has no argument {option!r}: {INSTEAD[name]}"
    nearest = _nearest(name, known)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else f"; known are {', '.join(sorted(known))}"
    return f"{config_type.__name__.removesuffix('Config')} has no argument {option!r}{hint}"


def _parsed(option: str, value: Any, known: Setting) -> Any:
    """Read text as the field's type, and check the type of what is no text."""
    wanted = known.type
    shown = "this secret" if known.is_secret else repr(value)
    if value is None and "None" in wanted:
        return None
    if wanted.startswith("int"):
        if isinstance(value, str) and value.strip().lstrip("-").isdigit():
            return int(value)
        if not isinstance(value, int):
            raise ConfigurationError(f"{option} is a whole number, not {shown}")
        return int(value) if isinstance(value, bool) else value
    if wanted.startswith("bool"):
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise ConfigurationError(f"{option} is True or False, not {shown}")
    elif wanted in ("str", "str | None") and not isinstance(value, str):
        raise ConfigurationError(f"{option} is text, not {shown}")
    return value
