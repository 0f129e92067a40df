"""How the data source's options are taken apart: names whatever their case, values checked, the nearest name in errors.

`kafka.*` goes to the client without its prefix. What a Java client knows and this one has no use for (buffer sizes,
session timeouts, metrics) is let through without effect, so that a job moves by changing the format's name.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping

log = logging.getLogger(__name__)

BOOTSTRAP = "kafka.bootstrap.servers"
PREFIX = "kafka."
USE_INSTEAD = {
    "auto.offset.reset": "startingOffsets says where a query begins",
    "key.deserializer": "keyFormat says how keys are read",
    "value.deserializer": "valueFormat says how values are read",
    "key.serializer": "keyFormat says how keys are written",
    "value.serializer": "valueFormat says how values are written",
    "enable.auto.commit": "commitOffsetsToGroup names a group that follows the query",
    "interceptor.classes": "there are no interceptors in Python",
    "transactional.id": "exactlyOnce=true writes in transactions, under ids of its own",
}
"""Options of a Java client that cannot be given, with what to do."""
WITHOUT_EFFECT = frozenset(
    {
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partition.assignment.strategy",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class OptionError(ValueError):
    """An option of the data source is missing, unknown, contradictory or malformed."""


class GivenOptions:
    """The options of one query, found by name; each method raises OptionError naming the option it read."""

    def __init__(self, options: Mapping[str, str], known: Iterable[str]) -> None:
        """Refuse a name that is neither known nor `kafka.*`, with the nearest that exists."""
        self._values = {name.lower(): str(value) for name, value in options.items()}
        by_lower = {name.lower(): name for name in (*known, BOOTSTRAP)}
        for name in options:
            if name.lower() not in by_lower and not name.lower().startswith(PREFIX):
                import difflib

                near = difflib.get_close_matches(name.lower(), by_lower, n=1)
                hint = f'; did you mean "{by_lower[near[0]]}"?' if near else ""
                names = ", ".join(by_lower.values())
                raise OptionError(f'the option "{name}" is not known to kbroker{hint} Known: {names}, kafka.*')

    def given(self, *names: str) -> list[str]:
        """Return which of these options have a value."""
        return [name for name in names if self._values.get(name.lower(), "").strip()]

    def text(self, name: str, default: str = "") -> str:
        """Return the value without surrounding blanks."""
        return self._values.get(name.lower(), default).strip()

    def boolean(self, name: str, default: bool) -> bool:
        """Return true or false."""
        text = self.text(name, str(default)).lower()
        if text not in ("true", "false"):
            raise OptionError(f'{name} is {text!r}: it must be "true" or "false"')
        return text == "true"

    def number(self, name: str, minimum: int) -> int | None:
        """Return a whole number; None when the option is not given."""
        if not self.given(name):
            return None
        text = self.text(name)
        if not WHOLE_NUMBER.fullmatch(text) or int(text) < minimum:
            raise OptionError(f"{name} is {text!r}: it must be a whole number, at least {minimum}")
        return int(text)

    def duration_ms(self, name: str) -> int | None:
        """Return a time such as `15m`, `30s` or `500` (milliseconds); None when the option is not given."""
        if not self.given(name):
            return None
        match = DURATION.fullmatch(self.text(name).lower())
        if match is None:
            raise OptionError(f"{name} is {self.text(name)!r}: it must be a time such as 15m, 30s or 500ms")
        return int(match[1]) * MILLISECONDS[match[2] or "ms"]

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """Return one of a few words."""
        text = self.text(name, default)
        found = [word for word in allowed if word.lower() == text.lower()]
        if not found:
            raise OptionError(f"{name} is {text!r}: it must be {', '.join(allowed[:-1])} or {allowed[-1]}")
        return found[0]

    def registry(self, name: str) -> str:
        """Return a schema registry's address, maybe with name and password; empty when the option is not given."""
        text = self.text(name)
        if text:
            from kbroker.client.schema_registry import address_and_login

            try:
                address_and_login(text)
            except ValueError as error:
                raise OptionError(f"{name}: {error}") from error
        return text

    def bootstrap(self) -> str:
        """Return the brokers to begin with."""
        if not self.given(BOOTSTRAP):
            raise OptionError(f'the option "{BOOTSTRAP}" is missing: host:port of one or more brokers')
        return self.text(BOOTSTRAP)

    def client(self) -> dict[str, str]:
        """Return the `kafka.*` options for the client: without prefix, bootstrap.servers and group.id."""
        client = {}
        for name, value in self._values.items():
            key = name.removeprefix(PREFIX)
            if not name.startswith(PREFIX) or name in (BOOTSTRAP, "kafka.group.id"):
                continue
            if key in USE_INSTEAD:
                raise OptionError(f'the option "{name}" cannot be given: {USE_INSTEAD[key]}')
            if key in WITHOUT_EFFECT:
                log.info("%s has no effect here", name)
                continue
            client[key] = value
        return client
