"""How parameters stand in help."""

import pytest

from tests.kbroker.cli.commands import succeed


@pytest.mark.parametrize(
    ("words", "usage", "lines"),
    [
        ("topic create", "[OPTIONS] TOPIC", ["TOPIC  Name of the topic.  [required]", "-p, --partitions <int> "]),
        ("topic consume", "[OPTIONS] TOPIC...", ["-p, --partition <int> ", "-n, --count <int> ", "--to FILE "]),
        ("topic describe", "[OPTIONS] [TOPIC]...", ["[TOPIC]...  Names; default: all."]),
        ("quota set", "[OPTIONS] KEY=VALUE...", ["-u, --user <str> "]),
    ],
)
def test_names_and_types_are_shown_as_in_man_pages(words: str, usage: str, lines: list[str]) -> None:
    text = succeed(*words.split(), "--help")
    assert text.splitlines()[0] == f"Usage: kbroker {words} {usage}"
    for line in lines:
        assert f"\n  {line}" in text
    assert "{" not in text.splitlines()[0]
    assert "list[" not in text
