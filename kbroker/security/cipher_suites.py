"""Java's names of cipher suites (those of IANA), as OpenSSL calls them.

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256  ->  ECDHE-RSA-AES128-GCM-SHA256

Those of TLS 1.3 have one name, but OpenSSL offers Python no choice among them: they are allowed all or not at all.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable

TLS13 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_SUITE = re.compile(r"(?:TLS|SSL)_(\w+?)_WITH_(\w+)")
_CIPHER = re.compile(r"(AES|CAMELLIA|ARIA)_(\d+)_(GCM|CBC|CCM_8|CCM)(?:_(SHA\d*))?")


class UnknownCipherSuite(ValueError):
    """A name that is none of TLS 1.2 or 1.3; the text is the reason."""


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a cipher suite of TLS 1.2."""
    match = _SUITE.fullmatch(suite)
    if match is None:
        raise UnknownCipherSuite(f"{suite} is no cipher suite")
    exchange, cipher = match[1].replace("_", "-"), match[2]
    prefix = "" if exchange == "RSA" else f"{exchange}-"
    if cipher == "CHACHA20_POLY1305_SHA256":
        return f"{prefix}CHACHA20-POLY1305"
    parts = _CIPHER.fullmatch(cipher)
    if parts is None:
        raise UnknownCipherSuite(f"{suite} is not supported")
    family, bits, mode, digest = parts[1], parts[2], parts[3].replace("_", ""), parts[4]
    words = [f"{family}{bits}", *([mode] if mode != "CBC" else []), *([digest] if digest else [])]
    return prefix + "-".join(words)


def allow(context: ssl.SSLContext, suites: Iterable[str]) -> None:
    """Let a context speak these cipher suites only; raises UnknownCipherSuite.

    TLS 1.3 is switched off where not all of its own are among them.
    """
    wanted = set(suites)
    if not wanted:
        return
    older = sorted(wanted - TLS13)
    if not wanted >= TLS13:
        if not older:
            raise UnknownCipherSuite(f"of TLS 1.3 all suites can be allowed or none: {', '.join(sorted(TLS13))}")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    names = [openssl_name(suite) for suite in older]
    try:
        context.set_ciphers(":".join(names))
    except ssl.SSLError as error:
        raise UnknownCipherSuite(f"OpenSSL knows none of {', '.join(older)}") from error
    known = {cipher["name"] for cipher in context.get_ciphers()}
    lacking = [suite for suite, name in zip(older, names, strict=True) if name not in known]
    if lacking:
        raise UnknownCipherSuite(f"OpenSSL does not offer {', '.join(lacking)}")
