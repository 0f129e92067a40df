r"""kcat's format strings: how `topic consume -f` writes a record.

%t topic    %p partition  %o offset    %T timestamp (ms since 1970)
%k key      %K its length              %s or %v value   %S its length (-1: null)
%R the value's length as a big-endian 32-bit number     %h headers (name=value,…)
%k{hex}  %v{hex}  the bytes as hexadecimal digits
%%  a percent sign     \n \r \t \0 \\  \xHH  characters
"""

import re
import struct
from collections.abc import Callable, Sequence
from typing import Protocol

ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
TOKEN = re.compile(rb"%([ksv]\{hex\}|.)|\\x([0-9a-fA-F]{1,2})|\\(.)|([^%\\]+)|([%\\])", re.DOTALL)


class FormattedRecord(Protocol):
    """What a format can show of a record."""

    @property
    def topic(self) -> str:
        """Where it is."""
        ...

    @property
    def partition(self) -> int:
        """Where it is."""
        ...

    @property
    def offset(self) -> int:
        """Its number in the partition."""
        ...

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970."""
        ...

    @property
    def key(self) -> bytes | None:
        """None is null."""
        ...

    @property
    def value(self) -> bytes | None:
        """None is null."""
        ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Names may repeat."""
        ...


Formatter = Callable[[FormattedRecord], bytes]


def compile_format(text: str, null: bytes = b"", shown: Callable[[bytes], bytes] | None = None) -> Formatter:
    """Return a function from a record to the bytes to write; ValueError names a wrong escape.

    `null` stands for a key or value that is null; `shown` makes of what a record holds what is written of it.
    """
    writers: list[Formatter] = []
    literal = bytearray()
    for match in TOKEN.finditer(text.encode()):
        token, hexadecimal, escape, plain, lonely = match.groups()
        if token == b"%":
            literal += b"%"
        elif token is not None:
            if literal:
                writers.append(_constant(bytes(literal)))
                literal.clear()
            writer = _writer(token.decode(errors="replace"), null)
            writers.append(writer if shown is None else _filtered(writer, shown))
        elif hexadecimal is not None:
            literal.append(int(hexadecimal, 16))
        elif escape is not None:
            literal += _escaped(escape.decode(errors="replace"))
        elif plain is not None:
            literal += plain
        else:
            raise ValueError(f"the format ends with a lonely {lonely.decode()!r}")
    if literal:
        writers.append(_constant(bytes(literal)))
    return lambda record: b"".join([write(record) for write in writers])


def parse_delimiter(text: str) -> bytes:
    """Read a delimiter, with the format's escapes."""
    return compile_format(text.replace("%", "%%"))(_NO_RECORD)


def _constant(text: bytes) -> Formatter:
    return lambda record: text


def _filtered(write: Formatter, shown: Callable[[bytes], bytes]) -> Formatter:
    return lambda record: shown(write(record))


def _escaped(character: str) -> bytes:
    try:
        return ESCAPES[character]
    except KeyError:
        raise ValueError(f"unknown escape \\{character} in a format") from None


def _writer(token: str, null: bytes) -> Formatter:
    writers: dict[str, Formatter] = {
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "T": lambda record: b"%d" % record.timestamp,
        "k": lambda record: null if record.key is None else bytes(record.key),
        "K": lambda record: b"%d" % _length(record.key),
        "s": lambda record: null if record.value is None else bytes(record.value),
        "S": lambda record: b"%d" % _length(record.value),
        "R": lambda record: struct.pack(">i", _length(record.value)),
        "h": lambda record: b",".join(
            name.encode() + b"=" + (b"NULL" if value is None else bytes(value)) for name, value in record.headers
        ),
    }
    writers["v"] = writers["s"]
    writers["k{hex}"] = lambda record: null if record.key is None else bytes(record.key).hex().encode()
    writers["s{hex}"] = lambda record: null if record.value is None else bytes(record.value).hex().encode()
    writers["v{hex}"] = writers["s{hex}"]
    try:
        return writers[token]
    except KeyError:
        raise ValueError(f"unknown token %{token} in a format: choose from %t %p %o %T %k %K %s %S %R %h") from None


def _length(value: bytes | None) -> int:
    return -1 if value is None else len(value)


class _NoRecord:
    topic = ""
    partition = offset = timestamp = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


_NO_RECORD = _NoRecord()
