r"""Java's sets of characters, `[a-f[x-z]&&[^b]]`, as Python's; over ASCII, which topic names are.

[ab-d]   [^ab]   [a[bc]]   union    [a-f&&[^b]]   intersection    \d \p{Alpha} \P{Alpha} \x41   within them
"""

from __future__ import annotations

import functools
import re

ALL = frozenset(map(chr, range(128)))
ESCAPES = re.compile(r"\\(?:[pP](?:\{\w+\}|\w)|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|0(?:[0-3][0-7]{2}|[0-7]{1,2})|.)", re.S)
ONLY_PYTHONS = ("\\b", "\\N", "\\U", *(f"\\{digit}" for digit in range(10)))
PROPERTIES = {
    **dict.fromkeys(("Lower", "javaLowerCase", "IsLowercase", "Ll", "IsLl"), "a-z"),
    **dict.fromkeys(("Upper", "javaUpperCase", "IsUppercase", "Lu", "IsLu"), "A-Z"),
    **dict.fromkeys(("Alpha", "IsAlphabetic", "L", "IsL"), "a-zA-Z"),
    **dict.fromkeys(("Digit", "IsDigit", "N", "Nd", "IsN", "IsNd"), "0-9"),
    "Alnum": "a-zA-Z0-9",
    "XDigit": "0-9a-fA-F",
    "ASCII": r"\x00-\x7f",
    "Punct": r"!-/:-@\[-`{-~",
}


class JavaSet:
    """Reads one set from its opening bracket on; `end` is the position behind it. Raises ValueError."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._at = start + 1
        self.is_negated = text.startswith("^", self._at)
        """Of the set as a whole."""
        self.is_mixed = False
        """Whether there is more in it than a list: what ignores case in Java is not what ignores it afterwards."""
        self._at += self.is_negated
        self.members = self._union(start)
        """Before they are negated."""
        self.end = self._at + 1

    def python(self) -> str:
        """Return the set in Python's form."""
        listed = "".join(map(re.escape, sorted(self.members)))
        if not listed:
            return r"[\x00-\x7f]" if self.is_negated else "(?!)"
        return f"[{'^' if self.is_negated else ''}{listed}]"

    def _union(self, start: int) -> frozenset[str]:
        """Read up to the closing bracket, which is left; a first one is a member."""
        found: frozenset[str] | None = None
        while True:
            following = self._text[self._at : self._at + 1]
            if not following:
                raise ValueError(f"the set that begins at {start} does not end")
            if following == "]" and found is not None:
                return found
            if self._text.startswith("&&", self._at):
                found = self._right_side(start) if found is None else found & self._right_side(start)
            elif following == "[":
                found = (found or frozenset()) | self._nested()
            else:
                found = (found or frozenset()) | self._range()

    def _right_side(self, start: int) -> frozenset[str]:
        """Read what stands behind `&&`, up to the next one or the end: sets, then all else."""
        self._at += 2
        self.is_mixed = True
        if self._text[self._at : self._at + 1] in ("]", "&"):
            raise ValueError(f"an intersection with nothing, at {self._at}")
        found: frozenset[str] = frozenset()
        while self._text[self._at : self._at + 1] not in ("]", "&", ""):
            found |= self._nested() if self._text[self._at] == "[" else self._union(start)
        if self._text.startswith("&", self._at) and not self._text.startswith("&&", self._at):
            raise ValueError(f"'&' behind an intersection, at {self._at}, cannot be had")
        return found

    def _nested(self) -> frozenset[str]:
        inner = JavaSet(self._text, self._at)
        self._at, self.is_mixed = inner.end, True
        return ALL - inner.members if inner.is_negated else inner.members

    def _range(self) -> frozenset[str]:
        first = self._one()
        follows = self._text[self._at + 1 : self._at + 2]
        if len(first) != 1 or not self._text.startswith("-", self._at) or follows in ("", "[", "]"):
            return first
        self._at += 1
        last = self._one()
        if len(last) != 1 or min(last) < min(first):
            raise ValueError(f"a range that ends at {self._at} is none")
        return frozenset(map(chr, range(ord(min(first)), ord(min(last)) + 1)))

    def _one(self) -> frozenset[str]:
        """Read a character, or an escape."""
        token = self._text[self._at]
        if token == "\\":
            match = ESCAPES.match(self._text, self._at)
            token = match[0] if match else token
        self._at += len(token)
        if token[:2] in ("\\p", "\\P"):
            self.is_mixed |= token[1] == "P"
            inside = property_of(token)
            return _members(f"[^{inside}]" if token[1] == "P" else f"[{inside}]")
        if token.startswith("\\0") and len(token) > 2:
            return frozenset(octal(token))
        if token in ONLY_PYTHONS:
            raise ValueError(f"{token!r} in a set cannot be had")
        return _members(token if len(token) > 1 else re.escape(token))


def octal(token: str) -> str:
    r"""Return the character of \0103, of which Python would take two digits."""
    return chr(int(token[2:], 8))


def property_of(token: str) -> str:
    r"""Return what a set holds for \p{…}, \P{…}, \pL; raises ValueError."""
    name = token[2:].strip("{}")
    if name not in PROPERTIES:
        raise ValueError(f"{token!r} cannot be had")
    return PROPERTIES[name]


@functools.lru_cache(maxsize=256)
def _members(pattern: str) -> frozenset[str]:
    try:
        wanted = re.compile(pattern, re.ASCII)
    except re.error as error:
        raise ValueError(str(error)) from error
    return frozenset(filter(wanted.fullmatch, ALL))
