"""Tests for kbroker.verify.own_client: what nobody answers; the rest is asked of both libraries beside."""

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.verify.clients import PATIENT, ClientProblem, Outgoing
from kbroker.verify.own_client import OwnLibrary


def test_a_cluster_that_is_not_there_is_a_problem_that_is_told(unused_tcp_port: int) -> None:
    library = OwnLibrary(f"127.0.0.1:{unused_tcp_port}", {"connect_timeout_ms": "200", "request_timeout_ms": "500"})
    with pytest.raises(ClientProblem):
        library.topics()
    reader = library.reader("group")
    reader.subscribe(["topic"])  # a group's consumer waits for a broker
    with pytest.raises(ClientProblem):
        reader.ends(["topic:0"])
    reader.crash()


def test_settings_go_before_what_the_test_would_choose(broker: BrokerProcess, topic_name: str) -> None:
    library = OwnLibrary(broker.bootstrap, {"request_timeout_ms": "60000"}, PATIENT)
    library.create_topic(topic_name, 1, 1, {})
    sender, reader = library.sender(), library.reader()
    (outcome,) = sender.send([Outgoing(f"{topic_name}:0", 1)])
    assert (outcome.error, outcome.offset) == (None, 0)
    assert reader.ends([f"{topic_name}:0"]) == {f"{topic_name}:0": 1}
    sender.crash()
    reader.crash()
