"""Tests for kbroker.verify.report: the verdict first, and the smallest counterexample with its raw offsets."""

from kbroker.verify.checker import Settings, judge
from kbroker.verify.report import report_text, smallest
from tests.kbroker.verify.simulated import healthy
from tests.kbroker.verify.written import Written, read, sent


def lost() -> Written:
    history = Written()
    history.do(0, "send", sent("x", *([offset, 10 + offset] for offset in range(30))))
    history.do(1, "poll", read(x=[[offset, 10 + offset] for offset in range(30) if offset != 20]))
    return history


def test_the_verdict_and_the_smallest_counterexample_come_first() -> None:
    judgement = judge(lost().columns, Settings())
    lines = report_text(judgement).splitlines()
    assert lines[0] == "ANOMALY: lost-write (1), int-poll-skip (1)"
    assert lines[1] == "2 operations, 30 records sent, 29 read, 0 faults"
    assert lines[3].startswith("Smallest counterexample (int-poll-skip): x: process 1 read offset 19 and then 21")
    assert lines[4].startswith("  #2-#3 process 1 0.000000-0.000000 s ok poll: read x[16]=26; read x[17]=27")
    assert "x[3]" not in lines[4], "only what lies around it"
    text = "x: value 30 is acknowledged at offset 20, and missing; reads went up to offset 29"
    assert f"    {text}" in lines


def test_a_valid_history_is_told_with_what_is_allowed() -> None:
    judgement = judge(columns := Written().columns, Settings())
    assert report_text(judgement).startswith("UNKNOWN: nothing was acknowledged\n0 operations")
    assert smallest(judgement) is None
    assert len(columns.sends) == 0


def test_every_example_of_every_workload_can_be_told() -> None:
    import random

    from kbroker.verify.columns import columns_of
    from tests.kbroker.verify.edits import EDITS

    for edit, workloads in EDITS.values():
        events = healthy(4, workloads[0])
        edit(events, random.Random(4))
        text = report_text(judge(columns_of(events), Settings(workloads[0])))
        assert text.partition(":")[0] in ("VALID", "ANOMALY")
