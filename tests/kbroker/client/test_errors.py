import pickle

from kbroker.client import errors
from kbroker.protocol.errors import ErrorCode


def test_each_code_has_a_class_of_its_own() -> None:
    assert len(set(errors.CLASS_BY_CODE.values())) == len(ErrorCode) - 1
    assert errors.CLASS_BY_CODE[ErrorCode.NOT_ENOUGH_REPLICAS] is errors.NotEnoughReplicasError


def test_an_error_names_its_place_and_survives_pickling() -> None:
    error = errors.error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved", topic="t", partition=3, broker=1)
    again = pickle.loads(pickle.dumps(error))
    assert str(error) == str(again) == "NOT_LEADER_OR_FOLLOWER: t-3 at broker 1: moved"
    assert again.retriable
    assert (again.topic, again.partition, again.broker) == ("t", 3, "1")
