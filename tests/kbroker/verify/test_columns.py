"""Tests for kbroker.verify.columns: what becomes of each kind of event."""

from kbroker.verify.columns import INFO_CODE, NEVER, OK_CODE, UNKNOWN_OFFSET
from tests.kbroker.verify.written import Written, read, sent


def test_records_and_operations_become_rows_in_the_order_of_completions() -> None:
    history = Written()
    history.begin(1, "send", [["send", "a", 10]])
    history.do(2, "poll", read(a=[[5, 10], [6, 11]]))
    history.end(1, "send", sent("a", [5, 10]))
    columns = history.columns
    assert columns.operations.process.tolist() == [0, 1]
    assert (columns.processes, columns.keys) == ([2, 1], ["a"])
    assert columns.reads.offset.tolist() == [5, 6]
    assert (columns.sends.operation[0], columns.sends.offset[0], columns.sends.value[0]) == (1, 5, 10)
    assert columns.operations.invoke_index.tolist() == [1, 0]


def test_what_never_completed_is_what_nobody_knows() -> None:
    history = Written()
    history.begin(1, "send", [["send", "a", 10]])
    columns = history.columns
    assert columns.operations.type.tolist() == [INFO_CODE]
    assert columns.operations.complete_time.tolist() == [NEVER]
    assert columns.sends.offset.tolist() == [UNKNOWN_OFFSET]


def test_values_that_are_no_integers_are_numbered_below_zero() -> None:
    history = Written()
    history.do(1, "send", [["send", "a", [0, "x"]], ["send", "a", [1, -5]], ["send", "a", [2, "x"]]])
    assert history.columns.sends.value.tolist() == [-2, -3, -2]
    assert history.columns.odd_values == ["'x'", "-5"]


def test_positions_move_where_an_assignment_leaves_a_key_out_and_by_a_seek() -> None:
    history = Written()
    history.do(1, "assign", ["a", "b"])
    history.do(1, "assign", ["b"])
    history.do(1, "seek", ["b"])
    history.do(1, "assign", ["b"], "fail")
    history.do(1, "assign", ["b"], from_beginning=True)
    columns = history.columns
    moved = [columns.keys[key] for key in columns.moves.key]
    assert list(zip(columns.moves.operation.tolist(), moved, strict=True)) == [(1, "a"), (2, "b"), (4, "b")]


def test_faults_admin_changes_and_group_offsets_are_kept() -> None:
    history = Written()
    history.end("nemesis", "cut", [{"broker": 1}], "info")
    history.do(1, "admin", [["create-topic", "t", 1]])
    history.do(1, "commit", [["commit", "g", "a", 7]])
    history.do(1, "committed", [["committed", "g", "a", 7]], final=True)
    columns = history.columns
    assert [(fault.name, fault.operations) for fault in columns.faults] == [("cut", [{"broker": 1}])]
    assert columns.admin == [(0, [["create-topic", "t", 1]])]
    assert (columns.groups, columns.commits.offset.tolist(), columns.fetches.offset.tolist()) == (["g"], [7], [7])
    assert columns.operations.final.tolist() == [0, 0, 1]
    assert columns.operations.type.tolist() == [OK_CODE] * 3
