"""Tests for kbroker.verify.cycles: which cycles are found, and what they are called."""

from tests.kbroker.verify.written import Written, read, sent


def names(history: Written) -> set[str]:
    return {name for name in history.findings(is_read_to_the_end=False) if name.startswith("G")}


def test_transactions_that_read_each_other_are_a_circle() -> None:
    history = Written()
    history.begin(0, "txn", [])
    history.begin(1, "txn", [])
    history.end(0, "txn", [*sent("x", [0, 1]), *read(y=[[0, 2]])])
    history.end(1, "txn", [*sent("y", [0, 2]), *read(x=[[0, 1]])])
    assert "G1c" in names(history)
    assert history.findings()["G1c"].examples[0].text == "T1 was read by T2; T2 was read by T1"


def test_a_read_from_the_future_is_a_cycle_with_real_time_or_its_process() -> None:
    future = Written()
    future.do(0, "poll", read(x=[[0, 1]]))
    future.do(1, "send", sent("x", [0, 1]))
    assert names(future) == {"G1c-realtime"}
    own = Written()
    own.do(0, "poll", read(x=[[0, 1]]))
    own.do(0, "send", sent("x", [0, 1]))
    assert names(own) == {"G1c-process", "G1c-realtime"}


def test_a_send_that_never_ended_cannot_have_been_read_before_it_began() -> None:
    history = Written()
    history.do(0, "poll", read(x=[[0, 1]]))
    history.begin(1, "send", [["send", "x", 1]])
    assert names(history) == {"G1c-realtime"}


def test_what_was_sent_before_nobody_knew_is_no_cycle() -> None:
    history = Written()
    history.begin(1, "send", [["send", "x", 1]])
    history.do(0, "poll", read(x=[[0, 1]]))
    history.do(0, "poll", read())
    assert not names(history)


def test_interleaved_writes_are_told_and_allowed() -> None:
    history = Written()
    history.begin(0, "txn", [])
    history.begin(1, "txn", [])
    history.end(0, "txn", [*sent("x", [0, 1]), *sent("y", [1, 2])])
    history.end(1, "txn", [*sent("x", [1, 3]), *sent("y", [0, 4])])
    assert {"G0"} <= names(history)
    assert not names(history) & {"G1c", "G1c-process", "G1c-realtime"}


def test_read_skew_and_write_skew_are_told_and_allowed() -> None:
    skew = Written()
    skew.begin(0, "txn", [])
    skew.begin(1, "txn", [])
    skew.end(1, "txn", [*sent("x", [1, 3]), *sent("y", [0, 4])])
    skew.end(0, "txn", [*read(x=[[0, 1]], y=[[0, 4]]), *sent("z", [0, 9])])
    skew.do(2, "send", sent("x", [0, 1]), "info")
    assert "G-single" in names(skew)
    write = Written()
    write.do(2, "send", sent("x", [0, 1]))
    write.do(2, "send", sent("y", [0, 2]))
    write.begin(0, "txn", [])
    write.begin(1, "txn", [])
    write.end(0, "txn", [*read(x=[[0, 1]]), *sent("y", [1, 3])])
    write.end(1, "txn", [*read(y=[[0, 2]]), *sent("x", [1, 4])])
    assert "G2" in names(write)
