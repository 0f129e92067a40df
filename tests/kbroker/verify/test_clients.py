"""Tests for kbroker.verify.clients: keys, and which library a name means."""

from kbroker.verify.clients import make_library, split_key
from kbroker.verify.confluent_client import ConfluentLibrary
from kbroker.verify.own_client import OwnLibrary


def test_a_key_is_a_topic_that_may_have_colons_and_a_number() -> None:
    assert split_key("a:b:12") == ("a:b", 12)


def test_a_name_means_a_library() -> None:
    assert isinstance(make_library("confluent", "127.0.0.1:1", {}), ConfluentLibrary)
    assert isinstance(make_library("kbroker", "127.0.0.1:1", {}), OwnLibrary)
