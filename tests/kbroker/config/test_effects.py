"""What a key says of its effect is true: nothing depends on those without, something on all others."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.config.broker_config import BROKER_KEYS, keys_without_effect, read_broker_config
from kbroker.segment.log_config import TOPIC_KEYS

ROOT = Path(__file__).parents[3]
GENERAL = {"broker.id": "1", "zookeeper.connect": "127.0.0.1:2181"}


def sources() -> Iterator[Path]:
    """All code that may depend on a value: not where keys are declared, nor where they are merely checked or shown."""
    for room in ("kbroker", "segment", "controller"):
        for file in (ROOT / room).rglob("*.py"):
            told = file.relative_to(ROOT).parts
            if not (told[0] == "kbroker" and told[1] in ("client", "cli", "dev", *LINKS)) and not is_declaration(file):
                yield file


REFUSING = ("_unsupported", "_classes_of_listeners", "_listeners", "_identity")
LINKS = ("segment", "controller", "protocol", "spark_connector")


def is_declaration(file: Path) -> bool:
    return file.parent.name == "config" and file.stem not in ("broker_config", "checks", "sasl", "shares")


def read_names(tree: ast.AST) -> Iterator[str]:
    """Attributes that are read, and keys that are named as texts; of the checks only what refuses to start."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def everything_read() -> set[str]:
    found: set[str] = set()
    for file in sources():
        tree = ast.parse(file.read_text())
        if file.stem == "checks":
            kept = [each for each in tree.body if getattr(each, "name", "") in REFUSING]
            tree = ast.Module(kept, [])
        elif file.stem == "log_config":  # what it declares names the brokers' keys of the same meaning
            tree = ast.Module([each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)], [])
        found.update(read_names(tree))
    return found


@pytest.mark.slow
def test_a_key_has_an_effect_where_it_is_read_and_nowhere_else() -> None:
    read = everything_read()
    of_topics = {name: key.field for key in TOPIC_KEYS.values() for name in key.broker_keys}
    wrong = []
    for key in BROKER_KEYS.values():
        is_read = key.field in read or key.name in read or of_topics.get(key.name) in read
        if is_read != key.has_effect:
            wrong.append(f"{key.name}: {'is read' if is_read else 'nobody reads it'}")
    for key in TOPIC_KEYS.values():
        if (key.field in read) != key.has_effect:
            wrong.append(f"{key.name} of topics: {'is read' if key.field in read else 'nobody reads it'}")
    assert not wrong, "\n".join(wrong)


def test_a_broker_says_which_of_the_keys_that_are_set_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    idle = {
        "metric.reporters": "a.b.C",
        "unstable.api.versions.enable": "true",
        "log.preallocate": "true",
        "listener.name.plaintext.ssl.protocol": "TLSv1.3",
    }
    read_broker_config({**GENERAL, **idle, "listener.name.plaintext.max.connections": "5", "num.io.threads": "3"})
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert line == f"these configuration keys are set, but have no effect here: {', '.join(sorted(idle))}"


def test_what_is_not_known_at_all_is_none_of_them() -> None:
    assert keys_without_effect({"my.own.key": "1", **GENERAL}) == []


def test_the_page_marks_keys_without_effect() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()):
        if not key.is_internal:
            (line,) = [
                each for each in page.splitlines() if each.startswith(f"| `{key.name}` |") and key.doc[:20] in each
            ]
            assert ("**No effect.**" in line) == (not key.has_effect), key.name
