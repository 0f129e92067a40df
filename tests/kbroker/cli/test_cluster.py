"""`kbroker cluster` on a real broker."""

import json

from kbroker.broker_process import BrokerProcess
from tests.kbroker.cli.commands import succeed


def test_the_clusters_id_and_its_brokers_are_shown(broker: BrokerProcess) -> None:
    described = json.loads(succeed("cluster", "info", "-b", broker.bootstrap, "--format", "json"))
    assert described["brokers"] == [
        {"broker": 1, "host": "127.0.0.1", "port": broker.port, "rack": None, "controller": True}
    ]
    first_line = succeed("cluster", "info", "-b", broker.bootstrap).splitlines()[0]
    assert first_line == f"cluster {described['cluster_id']}"
