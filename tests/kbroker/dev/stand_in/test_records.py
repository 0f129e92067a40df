"""Records of the stand-in's files: read as written, and nothing else is taken for one."""

import pytest

from kbroker.dev.stand_in.jute import Malformed
from kbroker.dev.stand_in.operations import (
    OPEN_ACL,
    AclSet,
    Create,
    Created,
    DataSet,
    Deleted,
    Mode,
    SessionClosed,
    SessionOpened,
    SetData,
    Transaction,
)
from kbroker.dev.stand_in.records import (
    decode_transaction,
    decode_tree,
    encode_transaction,
    encode_tree,
    framed,
    is_torn,
    record_at,
)
from kbroker.dev.stand_in.tree import Client, Tree

TRANSACTION = Transaction(
    7,
    8,
    (
        SessionOpened(1, 6000, b"password"),
        Created("/a", None, OPEN_ACL, 1),
        DataSet("/a", b""),
        AclSet("/a", OPEN_ACL),
        Deleted("/a"),
        SessionClosed(1),
    ),
)


def test_a_transaction_is_read_as_it_was_written() -> None:
    payload = encode_transaction(TRANSACTION)
    assert decode_transaction(payload) == TRANSACTION
    for size in range(len(payload)):
        with pytest.raises(Malformed):
            decode_transaction(payload[:size])


def test_a_record_with_any_bit_wrong_or_any_byte_missing_is_none() -> None:
    record = framed(b"payload")
    assert record_at(record, 0) == (b"payload", len(record))
    assert record_at(b"x" + record + b"y", 1) == (b"payload", len(record) + 1)
    for at in range(len(record)):
        assert record_at(record[:at], 0) is None
        assert record_at(record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :], 0) is None
    assert record_at(bytes(64), 0) is None


def test_torn_is_what_nothing_intact_follows() -> None:
    record = framed(b"payload")
    assert is_torn(record[:-1], 0)
    assert is_torn(record[:-1] + bytes(50), 0)
    for at in range(len(record)):
        assert not is_torn(record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :] + record, 0)


def test_a_snapshot_is_the_whole_tree_or_nothing() -> None:
    tree = Tree()
    tree.open_session(1, 6000, b"p", now_ms=0)
    tree.write(Create("/a", None), Client(1), now_ms=1)
    tree.write(SetData("/a", b"x"), Client(1), now_ms=2)
    tree.write(Create("/a/e-", b"", Mode.EPHEMERAL_SEQUENTIAL), Client(1), now_ms=3)
    payloads = list(encode_tree(tree))
    again = decode_tree(iter(payloads))
    again.check()
    assert again.zxid == tree.zxid
    assert {path: (node.stat(), node.data, node.cversion) for path, node in again.nodes.items()} == {
        path: (node.stat(), node.data, node.cversion) for path, node in tree.nodes.items()
    }
    assert again.sessions[1].password == b"p"
    assert list(encode_tree(again)) == payloads
    for size in range(len(payloads)):
        with pytest.raises(Malformed):
            decode_tree(iter(payloads[:size]))
    with pytest.raises(Malformed):
        decode_tree(iter([*payloads[:2], *payloads[3:]]))
