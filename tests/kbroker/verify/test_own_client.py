"""Tests for kbroker.verify.own_client: what nobody answers; the rest is asked of both libraries beside."""

import pytest

from kbroker.verify.clients import ClientProblem
from kbroker.verify.own_client import OwnLibrary


def test_a_cluster_that_is_not_there_is_a_problem_that_is_told(unused_tcp_port: int) -> None:
    library = OwnLibrary(f"127.0.0.1:{unused_tcp_port}", {"connect_timeout_ms": "200"})
    with pytest.raises(ClientProblem):
        library.topics()
    reader = library.reader("group")
    with pytest.raises(ClientProblem):
        reader.subscribe(["topic"])
    reader.crash()
