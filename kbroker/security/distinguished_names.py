"""Principals of certificates: the subject's name as Java writes it (RFC 2253), and the rules that shorten it.

subject    C=DE, O=Bank, CN=Pay                     in the order of the certificate
name       CN=Pay,O=Bank,C=DE                       the other way round
rule       RULE:^CN=([^,]+),.*$/$1/L                makes it `pay`
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

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
_TO_ESCAPE = re.compile(r'[,=+<>#;"\\]')
_RULE = re.compile(r"DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_ESCAPED_OR_SET = re.compile(r"\\.|\[(?P<set>\^?\]?(?:\\.|[^\\\]])*)", re.DOTALL)
_NESTED_OR_INTERSECTED = re.compile(r"(?:\\.|[^\\])*?(?:\[|&&)", re.DOTALL)
_BETWEEN = ", \t\r\n"
_GROUP = re.compile(r"\\(.)|\$(\d)")


def subject_of(certificate: bytes) -> str:
    """Return the distinguished name of a certificate (DER); raises StoreError without the library for it."""
    try:
        from cryptography import x509
    except ImportError as error:
        raise missing("cryptography", "a client's certificate") from error
    parts = [
        "+".join(map(_attribute, relative)) for relative in x509.load_der_x509_certificate(certificate).subject.rdns
    ]
    return ",".join(reversed(parts))


def alternative_names_of(certificate: bytes) -> frozenset[str]:
    """Return the host names and addresses of a certificate (DER), by their kinds; raises StoreError as `subject_of`."""
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


def _attribute(attribute: Any) -> str:
    keyword = KEYWORDS.get(attribute.oid.dotted_string)
    if keyword is None or isinstance(attribute.value, bytes):
        return f"{keyword or attribute.oid.dotted_string}=#{_der_of(attribute).hex()}"
    text = _TO_ESCAPE.sub(r"\\\g<0>", attribute.value).replace("\0", "\\00")
    if text.startswith(" "):
        text = "\\" + text
    if text.endswith(" ") and len(text) > 1 and not text.endswith("\\ "):
        text = text[:-1] + "\\ "
    return f"{keyword}={text}"


def _der_of(attribute: Any) -> bytes:
    """The value as it is encoded: what follows the type's identifier in a name that is nothing but this attribute."""
    from cryptography import x509

    encoded = x509.Name([attribute]).public_bytes()
    start = 0
    for _ in range(3):  # a sequence of sets of sequences
        start, _size = _content(encoded, start)
    start, size = _content(encoded, start)
    return encoded[start + size :]


def _content(encoded: bytes, position: int) -> tuple[int, int]:
    """Return where the content of what is encoded there begins, and its size."""
    size = encoded[position + 1]
    if size < 0x80:
        return position + 2, size
    start = position + 2 + (size & 0x7F)
    return start, int.from_bytes(encoded[position + 2 : start])


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
