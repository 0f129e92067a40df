"""Which records `topic consume` shows: `--key`, `--grep`, `--header`; all that are given must hold.

A filter looks at bytes as they are, so that it works with any encoding; the partition of a key is not guessed, since
clients place keys by hashes of their own.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import typer

from kbroker.cli.record_format import FormattedRecord

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """None and () let everything through."""

    key: bytes | None = None
    grep: re.Pattern[bytes] | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """(name, value); a value of None means any."""

    def holds(self, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        """Whether a record is wanted."""
        if self.key is not None and key != self.key:
            return False
        if self.grep is not None and (value is None or self.grep.search(value) is None):
            return False
        return all(
            any(name == wanted and (text is None or value == text) for name, value in headers)
            for wanted, text in self.headers
        )

    def records(self, records: "Sequence[FormattedRecord]") -> list[Any]:
        """Return those that are wanted."""
        return [record for record in records if self.holds(record.key, record.value, record.headers)]

    def rows(self, batch: Any) -> Any:
        """Return the rows of a batch of Arrow columns that are wanted."""
        from kbroker.cli.table_output import chosen_rows

        keys, values = batch["key"].to_pylist(), batch["value"].to_pylist()
        wanted = [
            self.holds(key, value, [(each["key"], each["value"]) for each in headers or ()])
            for key, value, headers in zip(keys, values, batch["headers"].to_pylist(), strict=True)
        ]
        return chosen_rows(batch, wanted)

    def apply(self, found: Any) -> Any:
        """Return what is wanted of records, or of a batch."""
        return self.records(found) if isinstance(found, list) else self.rows(found)


def parse_filter(key: str | None, grep: str | None, headers: Sequence[str] | None) -> RecordFilter | None:
    """Read the options; None when none is given, a usage error for one that is wrong."""
    if key is None and grep is None and not headers:
        return None
    try:
        pattern = None if grep is None else re.compile(grep.encode())
    except re.error as error:
        raise typer.BadParameter(f"{grep!r} is no regular expression: {error}", param_hint="--grep") from None
    return RecordFilter(None if key is None else key.encode(), pattern, tuple(_header(text) for text in headers or ()))


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise typer.BadParameter(f"{text!r} is not NAME or NAME=VALUE", param_hint="--header")
    return name, value.encode() if equals else None
