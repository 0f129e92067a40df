"""`kbroker cluster` on a real broker."""

import json

from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.commands import kbroker, rows, succeed


def test_the_clusters_id_and_its_brokers_are_shown(broker: BrokerProcess) -> None:
    described = json.loads(succeed("cluster", "info", "-b", broker.bootstrap, "--format", "json"))
    (shown,) = described["brokers"]
    assert [shown[key] for key in ("broker", "host", "port", "rack", "controller")] == [
        1,
        "127.0.0.1",
        broker.port,
        None,
        True,
    ]
    assert shown["leads"] == shown["replicas"] == shown["in_sync"] == described["partitions"]
    assert described["under_replicated"] == described["offline"] == 0
    first_line = succeed("cluster", "info", "-b", broker.bootstrap).splitlines()[0]
    assert first_line == f"cluster {described['cluster_id']}"


def test_where_every_leader_is_the_preferred_one_nothing_is_elected(broker: BrokerProcess, topic_name: str) -> None:
    succeed("topic", "create", topic_name, "-p", "2", "-b", broker.bootstrap)
    assert rows("cluster", "elect-leaders", topic_name, "-b", broker.bootstrap) == []
    assert rows("cluster", "elect-leaders", topic_name, "--unclean", "--dry-run", "-b", broker.bootstrap) == []
    done = kbroker("cluster", "elect-leaders", topic_name, "-b", broker.bootstrap)
    assert done.returncode == 0
    assert "no election is needed" in done.stderr
