"""Tests for kbroker.verify.visibility: lost, unseen, torn, aborted and early reads."""

from tests.kbroker.verify.written import Written, read, sent


def test_what_lies_below_a_read_offset_and_was_not_read_is_lost() -> None:
    history = Written()
    history.do(0, "send", sent("x", [0, 1]))
    history.do(0, "send", sent("x", [1, 2], [3, 4]))
    history.do(1, "send", [["send", "x", 3]], "info")
    history.do(0, "poll", read(x=[[2, 3]]))
    found = history.findings()
    assert (found["lost-write"].count, found["unseen"].count) == (2, 1)
    text = "x: value 1 is acknowledged at offset 0, and missing; reads went up to offset 2"
    assert text in [example.text for example in found["lost-write"].examples]
    assert "unseen" not in history.findings(is_read_to_the_end=False)


def test_what_was_read_once_and_is_gone_at_the_end_is_lost() -> None:
    history = Written()
    history.do(0, "send", sent("x", [0, 1], [1, 2]))
    history.do(1, "poll", read(x=[[0, 1], [1, 2]]))
    assert not history.findings()
    history.do(2, "poll", read(x=[[1, 2]]), final=True)
    assert history.findings()["lost-write"].count == 1


def test_a_transaction_of_which_one_record_was_read_must_have_committed() -> None:
    history = Written()
    history.do(0, "txn", [["send", "x", 1], *sent("y", [0, 2])], "info")
    history.do(1, "send", [["send", "y", 3]], "info")
    history.do(2, "poll", read(y=[[1, 3]]))
    assert not history.findings(), "it may have been aborted"
    history.do(2, "poll", read(x=[[0, 1]]))
    found = history.findings()
    assert found["lost-write"].count == found["torn-transaction"].count == 1
    text = "of one transaction x (value 1) can be read, and y offset 0 (value 2) cannot"
    assert found["torn-transaction"].examples[0].text == text


def test_a_partition_ends_for_readers_before_the_first_open_transaction() -> None:
    cases = ((3, 5, "ok", False), (4, 5, "ok", True), (9, 5, "ok", True), (9, 2, "ok", False), (9, 5, "fail", True))
    others_may_have_ended_it = (9, 5, "info", False)
    for end, commit_time, type, is_wrong in (*cases, others_may_have_ended_it):
        history = Written()
        history.begin(0, "txn", [["send", "x", 1]])
        history.do(1, "ends", [["end", "x", end]])
        history.end(0, "txn", sent("x", [3, 1]), type, time=7, commit_time=commit_time)
        history.do(2, "poll", read(x=[[3, 1]]))
        assert ("end-beyond-stable" in history.findings()) is is_wrong


def test_a_read_of_what_failed_is_an_aborted_read_even_where_the_reader_failed() -> None:
    history = Written()
    history.do(0, "send", [["send", "x", 2]], "fail")
    history.do(1, "poll", read(x=[[0, 2]]), "info")
    text = "x offset 0: value 2 was read, and its send failed for sure"
    assert history.findings()["G1a"].examples[0].text == text


def test_a_transaction_reads_neither_itself_nor_what_has_not_begun_to_commit() -> None:
    own = Written()
    own.do(0, "txn", [*sent("x", [0, 1]), *read(x=[[0, 1]])])
    assert "precommitted-read" in own.findings()
    for commit_time, is_early in ((2, False), (4, True)):
        history = Written()
        history.begin(0, "txn", [["send", "x", 1]])
        history.do(1, "poll", read(x=[[0, 1]]))
        history.end(0, "txn", sent("x", [0, 1]), time=5, commit_time=commit_time)
        assert ("precommitted-read" in history.findings()) is is_early
