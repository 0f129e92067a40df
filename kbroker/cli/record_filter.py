"""Which records `topic consume` shows: `--key`, `--grep`, `--header`; all that are given must hold.

A pattern is RE2's, which takes time in proportion to the value, whatever the pattern. A value is looked at as UTF-8,
so that classes and letters without case mean characters; one that is no UTF-8 byte by byte, if the pattern is ASCII.
The partition of a key is not guessed, since clients place keys by hashes of their own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from kbroker.cli.record_format import FormattedRecord

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """None and () let everything through."""

    key: bytes | None = None
    grep: Callable[[bytes], bool] | None = None
    """Whether a value has what is looked for."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """(name, value); a value of None means any."""

    def holds(self, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        """Whether a record is wanted."""
        if self.key is not None and key != self.key:
            return False
        if self.grep is not None and (value is None or not self.grep(value)):
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
    found = None if grep is None else _search_of(grep)
    return RecordFilter(None if key is None else key.encode(), found, tuple(_header(text) for text in headers or ()))


def compiled(expression: str | bytes, option: str, encoding: str = "UTF8") -> Any:
    """Return RE2's pattern; a usage error for what is none."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.encoding = getattr(re2.Options.Encoding, encoding)
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise typer.BadParameter(f"{expression!r} is no regular expression: {text}", param_hint=option) from None


def _search_of(expression: str) -> Callable[[bytes], bool]:
    in_text = compiled(expression, "--grep")
    in_bytes = compiled(expression.encode(), "--grep", "LATIN1") if expression.isascii() else None

    def found(value: bytes) -> bool:
        if in_text.search(value) is not None:
            return True
        return in_bytes is not None and not _is_text(value) and in_bytes.search(value) is not None

    return found


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise typer.BadParameter(f"{text!r} is not NAME or NAME=VALUE", param_hint="--header")
    return name, value.encode() if equals else None
