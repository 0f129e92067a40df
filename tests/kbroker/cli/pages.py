"""What the pages of the documentation tell their readers to type: commands, and Python."""

from __future__ import annotations

import ast
import contextlib
import itertools
import re
import shlex
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
GENERATED = ("client-settings.md", "commands.md", "configuration.md")
SHELL_LINE = re.compile(
    r"(?:\$ )?(?:source <\((?P<inner>kbroker [^)]*)\)|(?:echo (?P<given>.*?) \| )?(?P<line>kbroker .*))"
)


@dataclass(frozen=True, slots=True)
class Typed:
    """One line of a page: the words behind `kbroker`, and what is piped in."""

    page: str
    words: tuple[str, ...]
    given: bytes = b""

    def __str__(self) -> str:
        return f"{self.page}: kbroker {shlex.join(self.words)}"

    def begins_with(self, text: str) -> bool:
        """Whether the line is this one, or this one with more behind it."""
        words = text.split()
        return list(self.words[: len(words)]) == words


def pages() -> dict[str, str]:
    """All pages that people have written, by name."""
    found = [*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md"]
    return {page.name: page.read_text() for page in sorted(found) if page.name not in GENERATED}


def python_of(text: str) -> list[str]:
    """The blocks of Python of a page."""
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def indented_python_of(text: str) -> list[str]:
    """The blocks of a page that are indented, and Python."""
    found = []
    for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", text, re.MULTILINE):
        code = textwrap.dedent(block).strip("\n")
        with contextlib.suppress(SyntaxError):
            ast.parse(code)
            found.append(code)
    return found


def typed_in(page: str, text: str) -> list[Typed]:
    """The commands of a page that stand on lines of their own: in blocks of code, fenced or indented."""
    found = []
    fence: str | None = None
    for line in text.splitlines():
        if line.startswith("```"):
            fence = None if fence is not None else line[3:]
        elif fence in ("bash", "sh") or (fence is None and line.startswith("    ")):
            match = SHELL_LINE.fullmatch(line.strip())
            if match:
                words = shlex.split(match["inner"] or match["line"], comments=True)[1:]
                found.append(Typed(page, tuple(words), b"\n".join(_echoed(match["given"]))))
    return found


def _echoed(given: str | None) -> list[bytes]:
    return [*(word.encode() for word in shlex.split(given)), b""] if given else []


def named_in(page: str, text: str) -> list[Typed]:
    """The commands that a page names within its sentences."""
    found = []
    for span in re.findall(r"`(kbroker [^`\n]*)`", text):
        words = [word for word in shlex.split(span.replace("…", "")) if word not in ("COMMAND", "kbroker")]
        found += [Typed(page, each) for each in itertools.product(*(word.split("|") for word in words))]
    return found
