r"""Java's regular expressions, in which subscribePattern is written, as Python's; for topic names, which are ASCII.

    \Q…\E            text as it stands              (?<name>…), \k<name>   (?P<name>…), (?P=name)
    \p{Alpha}, \PL   the ASCII characters of it     [a-z&&[^b]]            the ASCII characters of it (java_sets)

What Java reads otherwise than Python, or only one of them knows, is refused: a pattern that chose other topics than it
does in Spark's own source would go unnoticed.
"""

from __future__ import annotations

import functools
import re
import warnings

from kbroker.spark_connector.java_sets import JavaSet, octal, property_of

QUOTED = re.compile(r"\\Q(?P<text>.*?)(?:\\E|\Z)|\\.", re.DOTALL)
"""Or another escape, for `\\\\Q` is a backslash and a Q."""
TOKEN = re.compile(
    r"""(?P<property>\\[pP](?:\{\w+\}|\w))
      | (?P<octal>\\0(?:[0-3][0-7]{2}|[0-7]{1,2}))
      | (?P<back>\\k<(?P<name>\w+)>)
      | (?P<escape>\\.)
      | (?P<named>\(\?<(?![=!]))
      | (?P<pythons>\(\?[P#(]|\{,)
      | (?P<set>\[)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
IGNORES_CASE = re.compile(r"\(\?[a-zA-Z]*i")


@functools.lru_cache(maxsize=64)
def java_pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern of Java's; raises ValueError saying what of it cannot be had."""
    try:
        return _compiled(text)
    except RecursionError:
        raise ValueError("its groups or sets are nested too deeply") from None
    except (re.error, OverflowError) as error:
        raise ValueError(str(error)) from error


def _compiled(text: str) -> re.Pattern[str]:
    plain = QUOTED.sub(lambda found: found[0] if found["text"] is None else re.escape(found["text"]), text)
    translated, at = [], 0
    while token := TOKEN.match(plain, at):
        kind, at = str(token.lastgroup), token.end()
        if kind == "pythons":
            raise ValueError(f"{token[0]!r} at {token.start()} is Python's, and not Java's")
        if kind == "set":
            found = JavaSet(plain, token.start())
            if found.is_mixed and IGNORES_CASE.search(plain):
                raise ValueError(f"sets within the one at {token.start()}, where case is ignored: only Java has them")
            at = found.end
            translated.append(found.python())
        else:
            translated.append(_translated(kind, token))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile("".join(translated), re.ASCII)


def _translated(kind: str, token: re.Match[str]) -> str:
    if kind == "back":
        return f"(?P={token['name']})"
    if kind == "named":
        return "(?P<"
    if kind == "octal":
        return re.escape(octal(token[0]))
    if kind == "property":
        return f"[{'^' if token[0][1] == 'P' else ''}{property_of(token[0])}]"
    return token[0]
