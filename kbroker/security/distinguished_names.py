"""Principals of certificates: the subject's name as Java writes it (RFC 2253), and the rules that shorten it.

subject    C=DE, O=Bank, CN=Pay                     in the order of the certificate
name       CN=Pay,O=Bank,C=DE                       the other way round
rule       RULE:^CN=([^,]+),.*$/$1/L                makes it `pay`
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kbroker.security.stores import missing

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
TEXTS = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E)
"""Tags of what Java takes for text, and for UTF-8 whatever it is: UTF8, Printable, T61, IA5, General, BMP."""
VERSION = 0xA0
"""The tag of the first field of a certificate, which may be missing."""
LONG_TAG, NO_SIZE = 0x1F, 0x80
"""Of several bytes, which no certificate needs; not told, which is not DER. Above NO_SIZE the size itself follows."""
_TO_ESCAPE = re.compile(r'[,=+<>#;"\\]')
_BLANKS = " \r"
_RULE = re.compile(r"DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_ESCAPED_OR_SET = re.compile(r"\\.|\[(?P<set>\^?\]?(?:\\.|[^\\\]])*)", re.DOTALL)
_NESTED_OR_INTERSECTED = re.compile(r"(?:\\.|[^\\])*?(?:\[|&&)", re.DOTALL)
_BETWEEN = ", \t\r\n"
_GROUP = re.compile(r"\\(.)|\$(\d)")


def subject_of(certificate: bytes) -> str:
    """Return the distinguished name of a certificate (DER); raises ValueError where that cannot be read."""
    try:
        ((_, parts, _),) = _elements(certificate)
        (_, certified, _), _, _ = _elements(parts)
        _, _, _, _, (_, subject, _), *_ = (each for each in _elements(certified) if each[0] != VERSION)
        names = ["+".join(_attribute(each) for _, each, _ in _elements(kin)) for _, kin, _ in _elements(subject)]
    except ValueError as error:
        raise ValueError("the subject of a certificate cannot be read: its encoding (DER) is broken") from error
    return ",".join(reversed(names))


def alternative_names_of(certificate: bytes) -> frozenset[str]:
    """Return the host names and addresses of a certificate (DER), by their kinds.

    Raises StoreError without the library for it.
    """
    try:
        from cryptography import x509
    except ImportError as error:
        raise missing("cryptography", "another certificate while the broker runs") from error
    try:
        kind = x509.SubjectAlternativeName
        found = x509.load_der_x509_certificate(certificate).extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(f"{type(name).__name__} {name.value}" for name in found)


def _attribute(encoded: bytes) -> str:
    """A kind and a value: text is written with the escapes of Java, anything else in hexadecimal digits."""
    (_, identifier, _), (tag, content, value) = _elements(encoded)
    kind = _dotted(identifier)
    keyword = KEYWORDS.get(kind)
    if keyword is None or tag not in TEXTS:
        return f"{keyword or kind}=#{value.hex()}"
    text = _TO_ESCAPE.sub(r"\\\g<0>", content.decode(errors="replace")).replace("\0", "\\00")
    first = len(text) - len(text.lstrip(_BLANKS))
    end = max(first, len(text.rstrip(_BLANKS)))
    return f"{keyword}={_each_escaped(text[:first])}{text[first:end]}{_each_escaped(text[end:])}"


def _each_escaped(blanks: str) -> str:
    return "".join("\\" + each for each in blanks)


def _dotted(identifier: bytes) -> str:
    """An object identifier: numbers of seven bits a byte, of which the first holds two."""
    numbers = [0]
    for byte in identifier:
        numbers[-1] = numbers[-1] << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(0)
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:-1])))


def _elements(encoded: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """What stands in DER, one after the other: its tag, its content, and the whole of it; raises ValueError."""
    start = 0
    while start < len(encoded):
        tag, size, begin = encoded[start], int.from_bytes(encoded[start + 1 : start + 2]), start + 2
        is_unknown = tag & LONG_TAG == LONG_TAG or size == NO_SIZE
        if size > NO_SIZE:
            begin += size - NO_SIZE
            size = int.from_bytes(encoded[start + 2 : begin])
        end = begin + size
        if is_unknown or end > len(encoded):
            raise ValueError(f"no element of DER at byte {start} of {len(encoded)}")
        yield tag, encoded[begin:end], encoded[start:end]
        start = end


@dataclass(frozen=True, slots=True)
class _Rule:
    """One of the rules; without a pattern: the name as it is."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return what becomes of a name, None where the rule is not for it."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(self._filled, name)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    def _filled(self, match: re.Match[str]) -> str:
        def part(found: re.Match[str]) -> str:
            if found[1] is not None:
                return str(found[1])
            number = int(found[2])
            return (match[number] or "") if number <= match.re.groups else str(found[0])

        return _GROUP.sub(part, self.replacement)


class PrincipalRules:
    """ssl.principal.mapping.rules: the first rule that fits the whole name says what becomes of it."""

    def __init__(self, text: str = "DEFAULT") -> None:
        """Raises ValueError naming what is no rule."""
        self._rules: list[_Rule] = []
        rest = text.strip(_BETWEEN)
        while rest:
            match = _RULE.match(rest)
            follows = rest[match.end() :].lstrip() if match else ""
            if match is None or (follows and not follows.startswith(",")):
                raise ValueError(f"ssl.principal.mapping.rules: '{rest}' is neither DEFAULT nor RULE:pattern/result/")
            self._rules.append(_rule_of(match))
            rest = follows.lstrip(_BETWEEN)

    def apply(self, name: str) -> str | None:
        """Return the principal's name, None where no rule fits."""
        for rule in self._rules:
            result = rule.apply(name)
            if result is not None:
                return result
        return None


def _rule_of(match: re.Match[str]) -> _Rule:
    if match[1] is None:
        return _Rule(None)
    text = match[1].replace("\\/", "/")
    if any(_NESTED_OR_INTERSECTED.match(found["set"] or "") for found in _ESCAPED_OR_SET.finditer(text)):
        raise ValueError(
            f"ssl.principal.mapping.rules: '{match[1]}' means something else in Java, which joins [ ] within [ ] and "
            "intersects at &&: list the signs that are meant, these two as \\[ and \\&"
        )
    try:
        pattern = re.compile(text, re.ASCII)  # Java's \w, \d and (?i) know no others
    except (re.error, ValueError) as error:
        raise ValueError(f"ssl.principal.mapping.rules: '{match[1]}' is no pattern: {error}") from error
    return _Rule(pattern, match[2].replace("\\/", "/"), match[3])
