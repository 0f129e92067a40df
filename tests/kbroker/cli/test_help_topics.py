import re

import pytest

from kbroker.cli.help_topics import TOPICS
from tests.kbroker.cli.commands import kbroker, succeed


def test_help_lists_subjects_and_commands() -> None:
    said = succeed("help")
    assert said == succeed("help", "topics")
    for name in (*TOPICS, "cluster", "page"):
        assert f"\n  {name} " in said


@pytest.mark.parametrize("subject", TOPICS)
def test_each_subject_is_told(subject: str) -> None:
    said = succeed("help", subject)
    assert len(said) > 100
    assert not re.search(r"\b(ASKING_S|VARIABLE|modules?)\b", said), "a text for who reads the code"


def test_help_of_a_command_is_its_own() -> None:
    assert "Usage: kbroker topic" in succeed("help", "topic")
    assert kbroker("help", "nonsense").returncode == 2
