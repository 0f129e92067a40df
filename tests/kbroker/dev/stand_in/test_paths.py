"""Which paths ZooKeeper takes."""

import pytest

from kbroker.dev.stand_in.operations import Code, Refused
from kbroker.dev.stand_in.paths import name_of, parent_of, validate


@pytest.mark.parametrize("path", ["/", "/a", "/a/b.c", "/a/..b", "/ä ö/~", "/a/...", "/日本"])
def test_ordinary_paths_are_taken(path: str) -> None:
    validate(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "a/b",
        "/a/",
        "//",
        "/a//b",
        "/.",
        "/a/..",
        "/../a",
        "/a/./b",
        "/a\0",
        "/a\x1f",
        "/\x7f",
        "/\ue000",
        "/\U0001f600",
    ],
)
def test_what_java_refuses_is_refused(path: str) -> None:
    with pytest.raises(Refused) as refused:
        validate(path)
    assert refused.value.code is Code.BAD_ARGUMENTS


def test_a_path_has_a_parent_and_a_name() -> None:
    assert (parent_of("/a"), parent_of("/a/b"), parent_of("/")) == ("/", "/a", "/")
    assert (name_of("/a"), name_of("/a/b"), name_of("/")) == ("a", "b", "")
    for path in ("a", "/a\0"):
        with pytest.raises(Refused):
            parent_of(path)
