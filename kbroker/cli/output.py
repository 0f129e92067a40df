"""Rows to standard output: `--format table` or `wide` for people, `json` or `yaml` for programs.

In a terminal a table has colours and is as wide as the window. Elsewhere it is plain text with each column as wide as
its widest value, so that `grep` and `awk` see whole lines; so is a wide one, which has all that is known of each row.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from unicodedata import category

from kbroker.cli.options import OutputFormat

STEERING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters above the space that command a terminal, or turn the direction of what follows."""
NOT_PLAIN = re.compile(r"[^\n\t -~]+")

GAP = 3
"""Between two columns of a table in a terminal."""
FOLDED = 12
"""So wide at least are texts that go on in the next line."""

Row = Mapping[str, Any]
"""Column name (snake_case) to value: text, number, bool, None, a list of these, or names and values once more."""


def print_rows(
    rows: Sequence[Row],
    columns: Sequence[str],
    output_format: OutputFormat,
    empty: str = "",
    *,
    one_of_many: bool = False,
) -> None:
    """Print rows; `empty` is what a table says (on stderr) when there are none; `one_of_many`: as for an object."""
    if is_table(output_format):
        if rows and output_format == "wide":
            _print_lines(rows, list(dict.fromkeys((*columns, *(name for row in rows for name in row)))))
        elif rows:
            _print_table(rows, columns)
        elif empty:
            print(empty, file=sys.stderr)
    else:
        print_object([dict(row) for row in rows], output_format, one_of_many=one_of_many)


def is_table(output_format: str) -> bool:
    """Whether it is for people."""
    return output_format in ("table", "wide")


def print_object(value: Any, output_format: OutputFormat, *, one_of_many: bool = False) -> None:
    """Print one JSON or YAML document; where more follow, a YAML one says where it begins."""
    if output_format == "json":
        print(json_text(value, indent=2), flush=True)
    else:
        print(yaml_text([value], explicit_start=one_of_many), end="", flush=True)


def json_text(value: Any, indent: int | None = None) -> str:
    """Return JSON in which what would steer a terminal is escaped, as JSON itself demands only below the space."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return text if text.isascii() else STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def yaml_text(values: Sequence[Any], *, explicit_start: bool) -> str:
    """Return YAML documents; where something would steer a terminal, all that is not ASCII is escaped."""
    import yaml

    def text(with_unicode: bool) -> str:
        return yaml.safe_dump_all(values, sort_keys=False, allow_unicode=with_unicode, explicit_start=explicit_start)

    plain = text(True)
    return text(False) if STEERING.search(plain) else plain


def say(text: str, err: bool = False) -> None:
    """Print a line that holds names and words of others."""
    print(printable(text), file=sys.stderr if err else sys.stdout, flush=True)


def for_terminal(data: bytes) -> bytes:
    """Return records for a terminal: lines and tabs as they are, what would steer it and what is no text as escapes."""
    text = data.decode("utf-8", "backslashreplace")
    return NOT_PLAIN.sub(lambda found: printable(found[0]), text).encode()


def printable(text: str) -> str:
    """Text for a terminal: what would steer it, or begin a line, is written as an escape."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or category(each) == "Zs" else each.encode("unicode_escape").decode()
        for each in text
    )


def _print_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        table = rich_table(rows, columns, console.width)
        if table is not None:
            console.print(table)
            return
    _print_lines(rows, columns)


def _print_lines(rows: Sequence[Row], columns: Sequence[str]) -> None:
    titles, cells, numeric = _cells(rows, columns)
    widths = [max(len(line[at]) for line in (titles, *cells)) for at in range(len(columns))]
    sides = [str.rjust if is_number else str.ljust for is_number in numeric]
    for line in (titles, *cells):
        print("  ".join([side(text, width) for side, text, width in zip(sides, line, widths, strict=True)]).rstrip())


def _cells(rows: Sequence[Row], columns: Sequence[str]) -> tuple[list[str], list[list[str]], list[bool]]:
    """Return the titles, the texts, and which columns are numbers."""
    cells = [[_text(row.get(column)) for column in columns] for row in rows]
    numeric = [all(_is_number(row.get(column)) for row in rows) for column in columns]
    return [column.replace("_", " ") for column in columns], cells, numeric


def rich_table(rows: Sequence[Row], columns: Sequence[str], room: int | None = None) -> Any:
    """Return rich's table of rows, for a terminal; None where numbers or words would be cut to make it so narrow."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    titles, cells, numeric = _cells(rows, columns)
    widths: Sequence[int | None] | None = [None] * len(titles)
    if room is not None:
        widths = _widths(titles, cells, numeric, room - GAP * (len(titles) - 1))
    if widths is None:
        return None
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title, is_number, width in zip(titles, numeric, widths, strict=True):
        table.add_column(title, justify="right" if is_number else "left", overflow="fold", width=width)
    for line in cells:
        table.add_row(*(escape(text) for text in line))
    return table


def _widths(
    titles: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool], room: int
) -> list[int] | None:
    """Return how wide each column is: the widest give way first, down to a title's longest word and a whole number."""
    from rich.cells import cell_len

    content = [max((cell_len(line[at]) for line in cells), default=0) for at in range(len(titles))]
    widths = [max(cell_len(title), width) for title, width in zip(titles, content, strict=True)]
    least = [
        max(*map(cell_len, title.split()), width if is_number else min(width, FOLDED))
        for title, width, is_number in zip(titles, content, numeric, strict=True)
    ]
    if sum(least) > room:
        return None
    widths = [min(width, room) for width in widths]
    while sum(widths) > room:
        widths[max((width, at) for at, width in enumerate(widths) if width > least[at])[1]] -= 1
    return widths


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if type(value) is str:
        return printable(value)
    if type(value) is int:
        return str(value)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return " ".join(f"{printable(str(name))}={_inner(item)}" for name, item in value.items())
    if isinstance(value, list | tuple | set) and any(isinstance(item, Mapping) for item in value):
        return " ".join(_inner(item) for item in value)
    if isinstance(value, list | tuple | set):
        return ",".join(_text(item) for item in value) or "-"
    return printable(str(value))


def _inner(value: Any) -> str:
    return f"{{{_text(value)}}}" if isinstance(value, Mapping) else _text(value)
