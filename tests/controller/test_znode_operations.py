"""What made a multi fail."""

from kbroker.controller.znode_operations import NodeExists, RolledBack, failure


def test_the_failed_operation_is_found_among_those_rolled_back() -> None:
    refused = NodeExists("/a")
    assert failure(["/a", None]) is None
    assert failure([RolledBack("/x"), refused, RolledBack("/y")]) == (1, refused)
    rolled_back = RolledBack("/x")
    assert failure([rolled_back, RolledBack("/y")]) == (0, rolled_back)
