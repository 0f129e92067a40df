"""What holds of every ZooKeeper that is a child process; those of each kind are in the tests of their modules."""

from pathlib import Path

import pytest

from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper
from kbroker.dev.stand_in_zookeeper import StandInZooKeeper
from kbroker.dev.zookeeper_child import ZooKeeperChild


@pytest.mark.parametrize("kind", [EmbeddedZooKeeper, StandInZooKeeper])
def test_one_that_was_not_started_says_so_and_may_be_stopped(kind: type[ZooKeeperChild], tmp_path: Path) -> None:
    server = kind(tmp_path, 2181)
    assert server.connect_string == "127.0.0.1:2181"
    assert server.log_file == tmp_path / "zookeeper.log"
    assert not server.is_running
    for ask in (lambda: server.pid, server.pause, server.resume):
        with pytest.raises(AssertionError, match=f"{server.name} is not started"):
            ask()
    server.stop()
    server.kill()
    assert not server.is_running
