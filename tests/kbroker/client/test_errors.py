import importlib
import pickle
import pkgutil
import re
from pathlib import Path

import kbroker.client
from kbroker.client import errors
from kbroker.protocol.errors import ErrorCode

PRIVATE = {"Misfit"}
"""Errors that never leave their module."""


def test_each_code_has_a_class_of_its_own() -> None:
    assert len(set(errors.BrokerError.by_code.values())) == len(ErrorCode) - 1
    assert errors.BrokerError.by_code[ErrorCode.NOT_ENOUGH_REPLICAS] is errors.NotEnoughReplicasError


def test_an_error_names_its_place_and_survives_pickling() -> None:
    error = errors.error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved", topic="t", partition=3, broker=1)
    again = pickle.loads(pickle.dumps(error))
    assert str(error) == str(again) == "NOT_LEADER_OR_FOLLOWER: t-3 at broker 1: moved"
    assert again.retriable
    assert (again.topic, again.partition, again.broker) == ("t", 3, "1")


def modules() -> list[str]:
    return [name for _, name, _ in pkgutil.walk_packages(kbroker.client.__path__, "kbroker.client.")]


def test_everything_the_clients_raise_on_purpose_has_one_base() -> None:
    for name in modules():
        module = importlib.import_module(name)
        for found in vars(module).values():
            if isinstance(found, type) and issubclass(found, Exception) and found.__module__ == name:
                assert issubclass(found, errors.ClientError) or found.__name__ in PRIVATE, found


def test_no_builtin_error_is_raised_where_the_clients_have_their_own() -> None:
    builtin = re.compile(r"raise (ConnectionError|TimeoutError|RuntimeError|OSError|Exception)\(")
    for name in modules():
        source = Path(importlib.import_module(name).__file__ or "").read_text()
        assert not builtin.search(source), f"{name}: {builtin.findall(source)}"
