r"""Java's regular expressions, in which subscribePattern is written, as Python's; for topic names, which are ASCII.

    \Q…\E            text as it stands              (?<name>…), \k<name>   (?P<name>…), (?P=name)
    \p{Alpha}, \PL   the ASCII characters of it

What Java reads otherwise than Python, or only one of them knows, is refused: a pattern that chose other topics than it
does in Spark's own source would go unnoticed.
"""

from __future__ import annotations

import functools
import re
import warnings

TOKEN = re.compile(
    r"""(?P<quoted>\\Q(?P<text>.*?)(?:\\E|$))
      | (?P<property>\\(?P<sign>[pP])(?:\{(?P<long>\w+)\}|(?P<short>\w)))
      | (?P<back>\\k<(?P<name>\w+)>)
      | (?P<escape>\\.)
      | (?P<named>\(\?<(?![=!]))
      | (?P<pythons>\(\?[P#(]|\{,)
      | (?P<opening>\[\^?\]?)
      | (?P<closing>\])
      | (?P<meeting>&&)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
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


@functools.lru_cache(maxsize=64)
def java_pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern of Java's; raises ValueError saying what of it cannot be had."""
    translated, in_class = [], False
    for token in TOKEN.finditer(text):
        kind = str(token.lastgroup)
        if kind == "opening" and in_class:
            raise ValueError(f"a set within a set, {token[0]!r} at {token.start()}: only Java has it")
        if kind == "meeting" and in_class:
            raise ValueError(f"an intersection of sets, '&&' at {token.start()}: only Java has it")
        if kind == "pythons" and not in_class:
            raise ValueError(f"{token[0]!r} at {token.start()} is Python's, and not Java's")
        in_class = (in_class or kind == "opening") and kind != "closing"
        translated.append(_translated(kind, token, in_class))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile("".join(translated), re.ASCII)
    except re.error as error:
        raise ValueError(str(error)) from error


def _translated(kind: str, token: re.Match[str], in_class: bool) -> str:
    if kind == "quoted":
        return re.escape(token["text"])
    if kind == "back":
        return f"(?P={token['name']})"
    if kind == "named":
        return "(?P<"
    if kind != "property":
        return token[0]
    name, negated = token["long"] or token["short"], token["sign"] == "P"
    if name not in PROPERTIES or (in_class and negated):
        raise ValueError(f"{token[0]!r} at {token.start()} cannot be had")
    return PROPERTIES[name] if in_class else f"[{'^' if negated else ''}{PROPERTIES[name]}]"
