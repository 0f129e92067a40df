"""What made a multi fail."""

import pytest

from kbroker.controller.broker_store import BrokerStore
from kbroker.controller.controller_store import ControllerStore
from kbroker.controller.znode_operations import NodeExists, RolledBack, failure
from kbroker.controller.zookeeper import ZooKeeper


def test_the_failed_operation_is_found_among_those_rolled_back() -> None:
    refused = NodeExists("/a")
    assert failure(["/a", None]) is None
    assert failure([RolledBack("/x"), refused, RolledBack("/y")]) == (1, refused)
    rolled_back = RolledBack("/x")
    assert failure([rolled_back, RolledBack("/y")]) == (0, rolled_back)


async def test_what_lacks_an_operation_on_the_tree_cannot_be_made() -> None:
    operations = BrokerStore.__abstractmethods__
    assert {"get", "get_many", "multi", "session_id", "watch"} <= operations == ControllerStore.__abstractmethods__
    for missing in operations:
        lacking = type("Lacking", (ZooKeeper,), {missing: getattr(BrokerStore, missing)})
        with pytest.raises(TypeError, match=missing):
            lacking("127.0.0.1:1")
    ZooKeeper("127.0.0.1:1")
