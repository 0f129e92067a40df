import importlib
import inspect
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from kbroker.cli import COMMANDS, completion
from kbroker.cli.completion import VARIABLE, kind_of
from kbroker.client.blocking import Admin
from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.commands import kbroker, succeed, understand


@pytest.fixture
def tab(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the shell is proposed for a line whose last word is not finished."""

    def press(*words: str) -> list[str]:
        monkeypatch.setenv(VARIABLE, "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(("kbroker", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        try:
            done = kbroker()
        finally:
            monkeypatch.delenv(VARIABLE)
        assert done.stderr == ""
        return done.stdout.split()

    return press


def test_commands_and_options_are_completed(tab: Any) -> None:
    assert tab("to") == ["topic", "token"]
    assert tab("topic", "des") == ["describe"]
    assert tab("topic", "list", "--int") == ["--internal"]


@pytest.mark.slow
def test_topics_and_groups_of_the_cluster_are_completed(
    tab: Any, broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "ASKING_S", 30.0)
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name, 1)
        admin.alter_group_offsets(topic_name, {(topic_name, 0): 0})
    half = topic_name[:-3]
    assert tab("topic", "describe", "-b", broker.bootstrap, half) == [topic_name]
    assert tab("group", "reset", "-b", broker.bootstrap, half) == [topic_name]
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)
    assert tab("topic", "delete", "any", half) == [topic_name]
    assert tab("topic", "delete", "-X", "acks=all", "any", half) == [topic_name], "a setting of other clients"


def test_where_nobody_answers_nothing_is_proposed_or_said(tab: Any) -> None:
    assert tab("topic", "describe", "-b", "127.0.0.1:1", "x") == []
    assert tab("topic", "describe", "--profile", "no-such-profile", "x") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_a_shell_reads_names_the_variable(shell: str) -> None:
    assert VARIABLE in succeed("completion", shell)


@pytest.mark.parametrize(
    ("metavar", "kind"),
    [
        ("TOPIC", "topics"),
        ("[TOPIC]...", "topics"),
        ("TOPIC[:PARTITION,…]", "topics"),
        ("GROUP...", "groups"),
        ("NEW", ""),
    ],
)
def test_what_a_parameter_takes_is_seen_in_its_metavar(metavar: str, kind: str) -> None:
    assert kind_of(metavar) == kind
    assert kind_of(None) == ""


def _functions() -> list[Any]:
    found = []
    for command in COMMANDS.values():
        target = getattr(importlib.import_module(command.module), command.attribute)
        is_group = isinstance(target, typer.Typer)
        found += [each.callback for each in target.registered_commands] if is_group else [target]
    return found


@pytest.mark.parametrize("function", _functions(), ids=lambda each: f"{each.__module__}.{each.__name__}")
def test_each_command_has_an_example_that_it_understands(
    function: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.properties").touch()
    text = inspect.getdoc(function) or ""
    examples = [line for line in text.partition("\b")[2].splitlines() if "kbroker " in line]
    assert examples
    for example in examples:
        words = shlex.split(example.partition("kbroker ")[2].split(" | ")[0].split(" > ")[0].rstrip(")"), comments=True)
        understand(*words)
