"""Java's notation for log-in modules, as it stands in `sasl.jaas.config` and in JAAS files.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="…";

    KafkaServer { <one or more such entries> };         a JAAS file: entries by the name of their context

Words are letters, digits, `_ - $ .` and all signs from U+00A0 on; anything else is quoted, with backslashes, as
java.io.StreamTokenizer has it. Comments are those of Java. What is wrong is said without the values: those are secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

FLAGS = ("required", "requisite", "sufficient", "optional")
REFUSED = ("com.sun.security.auth.module.JndiLoginModule",)
"""What could make Java load code from elsewhere: refused here, too, so that a configuration means the same."""
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-$.")
_FIRST_BEYOND = "\xa0"
"""It and what comes behind it is part of words."""
_FIRST_OF_NUMBERS = "0123456789-."
"""No word begins so."""
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasError(ValueError):
    """Text that is not in the notation; says where, never what stands there in quotes."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One entry: the Java class that says which mechanism it is for, and its options."""

    name: str
    options: Mapping[str, str] = field(repr=False)
    """Never shown: they are passwords."""


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_quoted: bool
    line: int


def parse_jaas(text: str) -> LoginModule:
    """Read the one entry of a `sasl.jaas.config`; raises JaasError."""
    reader = _Reader(text)
    module = reader.entry()
    if not reader.is_at_end:
        raise JaasError("there is more than one log-in module: exactly one is allowed")
    return module


def parse_jaas_file(text: str) -> dict[str, list[LoginModule]]:
    """Read the entries of a JAAS file by their contexts; raises JaasError."""
    reader = _Reader(text)
    contexts: dict[str, list[LoginModule]] = {}
    while not reader.is_at_end:
        name = reader.word("the name of a context")
        reader.sign("{")
        entries = contexts.setdefault(name, [])
        while not reader.skip("}"):
            entries.append(reader.entry())
        reader.sign(";")
    return contexts


_CLASS = re.compile(r"(?:[a-z]\w*\.){2,}[A-Z]\w*")


class _Reader:
    """Takes tokens one after the other."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = 0

    @property
    def is_at_end(self) -> bool:
        return self._next == len(self._tokens)

    def entry(self) -> LoginModule:
        """Read class, flag, options and the semicolon."""
        name = self.word("the class of a log-in module")
        if name in REFUSED:
            raise JaasError(f"the log-in module {name} is not allowed")
        flag = self.word(f"one of {', '.join(FLAGS)} after {shown(name)}")
        if flag.lower() not in FLAGS:
            raise JaasError(f"the control flag after {shown(name)} is none of {', '.join(FLAGS)}")
        options: dict[str, str] = {}
        while not self.skip(";"):
            key = self.word(f"an option of {shown(name)}, or the final semicolon")
            self.sign("=")
            value = self._take(f"the value of option {key}")
            if not value.is_quoted and (value.text in "={};" or value.text[0] in _FIRST_OF_NUMBERS):
                raise JaasError(f"line {value.line}: the value of option {key} has to be in quotes")
            options[key] = value.text
        return LoginModule(name, options)

    def word(self, wanted: str) -> str:
        token = self._take(wanted)
        if not token.text or (not token.is_quoted and token.text[0] in f"={{}};{_FIRST_OF_NUMBERS}"):
            raise JaasError(f"line {token.line}: expected {wanted}")
        return token.text

    def sign(self, sign: str) -> None:
        token = self._take(f"'{sign}'")
        if token.is_quoted or token.text != sign:
            raise JaasError(f"line {token.line}: expected '{sign}'")

    def skip(self, sign: str) -> bool:
        """Take the next token if it is this sign."""
        found = not self.is_at_end and self._tokens[self._next] == _Token(sign, False, self._tokens[self._next].line)
        self._next += found
        return found

    def _take(self, wanted: str) -> _Token:
        if self.is_at_end:
            raise JaasError(f"the text ends where {wanted} is expected")
        self._next += 1
        return self._tokens[self._next - 1]


def _tokens(text: str) -> list[_Token]:
    tokens = []
    place, line = 0, 1
    while place < len(text):
        sign = text[place]
        if sign <= " ":
            line += sign == "\n"
            place += 1
        elif sign == "/":
            end = _end_of_comment(text, place, line)
            line += text.count("\n", place, end)
            place = end
        elif sign in "\"'":
            value, end = _quoted(text, place, line)
            tokens.append(_Token(value, True, line))
            line += text.count("\n", place, end)
            place = end
        elif sign in "={};":
            tokens.append(_Token(sign, False, line))
            place += 1
        elif _is_of_word(sign):
            end = place
            while end < len(text) and _is_of_word(text[end]):
                end += 1
            tokens.append(_Token(text[place:end], False, line))
            place = end
        else:
            raise JaasError(f"line {line}: a sign that only stands in quotes")
    return tokens


def _is_of_word(sign: str) -> bool:
    return sign in _WORD or sign >= _FIRST_BEYOND


def _end_of_comment(text: str, place: int, line: int) -> int:
    if text.startswith("//", place):
        end = text.find("\n", place)
        return len(text) if end < 0 else end
    if text.startswith("/*", place):
        end = text.find("*/", place + 2)
        if end < 0:
            raise JaasError(f"line {line}: a comment that does not end")
        return end + 2
    raise JaasError(f"line {line}: a lone '/' outside of quotes")


def _quoted(text: str, place: int, line: int) -> tuple[str, int]:
    quote, parts = text[place], []
    place += 1
    while place < len(text) and text[place] != quote:
        escape = _ESCAPE.match(text, place)
        parts.append(text[place] if escape is None else _meant(escape[1]))
        place += 1 if escape is None else len(escape[0])
    if place >= len(text):
        raise JaasError(f"line {line}: a quote that does not end")
    return "".join(parts), place + 1


def _meant(escaped: str) -> str:
    """The sign that stands behind a backslash, by itself or as its number, which is octal."""
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPES.get(escaped, escaped)


def shown(name: str) -> str:
    """Return a class's name as it may be told; what stands in its place may be a password in the wrong one."""
    return name if _CLASS.fullmatch(name) else "what is no class"
