"""The numbers are ZooKeeper's."""

from kazoo import exceptions
from kazoo.protocol.states import ZnodeStat
from kazoo.security import Permissions

from kbroker.dev.stand_in import operations
from kbroker.dev.stand_in.operations import Code, Mode, Refused, Stat


def test_the_codes_are_those_that_clients_know() -> None:
    known = {code: kind.__name__ for code, kind in exceptions.EXCEPTIONS.items()}
    assert known[Code.NO_NODE] == "NoNodeError"
    assert known[Code.NO_AUTH] == "NoAuthError"
    assert known[Code.BAD_VERSION] == "BadVersionError"
    assert known[Code.NODE_EXISTS] == "NodeExistsError"
    assert known[Code.NOT_EMPTY] == "NotEmptyError"
    assert known[Code.INVALID_ACL] == "InvalidACLError"
    assert known[Code.RUNTIME_INCONSISTENCY] == "RuntimeInconsistency"
    assert known[Code.NO_CHILDREN_FOR_EPHEMERALS] == "NoChildrenForEphemeralsError"


def test_permissions_and_stat_have_the_places_that_clients_expect() -> None:
    assert (operations.READ, operations.ADMIN, operations.ALL) == (
        Permissions.READ,
        Permissions.ADMIN,
        Permissions.ALL,
    )
    assert len(Stat._fields) == len(ZnodeStat._fields)
    assert Stat._fields.index("ephemeral_owner") == ZnodeStat._fields.index("ephemeralOwner")


def test_a_mode_says_whether_its_node_ends_with_the_session_and_is_numbered() -> None:
    assert [mode for mode in Mode if mode.is_ephemeral] == [Mode.EPHEMERAL, Mode.EPHEMERAL_SEQUENTIAL]
    assert [mode for mode in Mode if mode.is_sequential] == [Mode.PERSISTENT_SEQUENTIAL, Mode.EPHEMERAL_SEQUENTIAL]


def test_a_refusal_says_what_and_where() -> None:
    assert str(Refused(Code.NO_NODE, "/a")) == "NO_NODE /a"
