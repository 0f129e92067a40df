"""What a ledger says of batches, without brokers."""

import json

import pytest

from kbroker.client.plain_transactions import Owner
from kbroker.spark_connector.ledger import Entry, LedgerError, Participant, is_written, lost, not_open, read_entry

TASKS = tuple(Participant(Owner(f"id-{n}", 10 + n, n), 5, (("orders", n, 3, 7),)) for n in range(3))
ENTRY = Entry("query", 17, "host h, process 5", 1_700_000_000_000, TASKS)


def test_an_entry_is_read_as_it_was_written() -> None:
    assert read_entry(ENTRY.to_json()) == ENTRY
    done = read_entry(ENTRY.done().to_json())
    assert (done.is_done, done.batch, done.participants, done.rows) == (True, 17, (), 15)
    assert read_entry(done.to_json()) == done
    older = json.loads(done.to_json())
    del older["rows"]
    assert read_entry(json.dumps(older).encode()).rows is None


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"\xff", b'{"query":"q","batch":1,"state":"thought about"}'])
def test_what_is_no_entry_is_an_error(value: bytes) -> None:
    with pytest.raises(LedgerError, match="no entry"):
        read_entry(value)


def test_a_batch_is_written_again_only_where_it_was_not_decided() -> None:
    assert not is_written(None, "query", 0)
    assert not is_written(ENTRY, "query", 18)
    assert is_written(ENTRY, "query", 17)
    assert not is_written(ENTRY, "another query in the same place", 0)


def test_a_checkpoint_that_was_set_back_is_an_error_and_no_silence() -> None:
    with pytest.raises(
        LedgerError, match=r"batch 16 begins, but batch 17 .* host h, process 5: the checkpoint was set"
    ):
        is_written(ENTRY, "query", 16)


def test_what_cannot_be_decided_or_is_lost_is_named() -> None:
    states = {task.owner: "Ongoing" for task in TASKS} | {TASKS[1].owner: ""}
    said = str(not_open(17, TASKS, states, 60_000))
    assert "batch 17 is not written" in said
    assert "1 of its 3 tasks" in said
    assert "id-1" in said
    assert "60 s" in said
    said = str(lost(ENTRY, TASKS[1:], "a query"))
    assert "10 of its 15 rows, in 2 of 3 transactions" in said
    assert "orders-1 offsets 3 to 7 (producer id 11); orders-2 offsets 3 to 7 (producer id 12)" in said
    assert '"17 again"' in said
