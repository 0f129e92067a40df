"""Kafka's rules for topic names."""

import pytest

from kbroker.cluster.topic_names import colliding, name_problem


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "...", "x" * 249, "__consumer_offsets"])
def test_a_legal_name_has_no_problem(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "empty string"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, "longer than the max allowed length 249"),
        ("a b", "other than ASCII alphanumerics"),
        ("a/b", "other than ASCII alphanumerics"),
        ("größe", "other than ASCII alphanumerics"),
        ("a\n", "other than ASCII alphanumerics"),
    ],
)
def test_an_illegal_name_is_explained(name: str, said: str) -> None:
    problem = name_problem(name)
    assert problem is not None
    assert said in problem


def test_names_that_differ_only_by_dot_and_underscore_collide() -> None:
    topics = ["my.topic", "my-topic", "my_topic.x", "other"]
    assert colliding("my_topic", topics) == ["my.topic"]
    assert colliding("my.topic", topics) == []
    assert colliding("other", topics) == []
