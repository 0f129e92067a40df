"""Tests for kbroker.verify.edn: what Jepsen's checkers read."""

from kbroker.verify.edn import edn, edn_lines
from kbroker.verify.history import Event


def test_operations_become_what_jepsen_reads() -> None:
    events = [
        Event(0, 1, "invoke", "txn", [["poll"], ["send", "t:0", 5]], 10),
        Event(
            1, 1, "ok", "txn", [["poll", {"t:0": [[3, 4, "k"]]}], ["send", "t:0", [7, 5, "k"]]], 11, {"commit_time": 9}
        ),
        Event(2, 2, "ok", "poll", [["poll", {}]], 12, {"rebalances": ["t:0"]}),
        Event(3, 2, "ok", "assign", ["t:0"], 13, {"from_beginning": True}),
        Event(4, "nemesis", "info", "cut", [{"broker": 1}], 14),
        Event(5, 3, "info", "send", [["send", "t:0", [None, 8, "k"]]], 15),
    ]
    assert list(edn_lines(events)) == [
        '{:index 0, :time 10, :type :invoke, :process 1, :f :txn, :value [[:poll] [:send "t:0" 5]]}',
        '{:index 1, :time 11, :type :ok, :process 1, :f :txn, :value [[:poll {"t:0" [[3 4]]}] [:send "t:0" [7 5]]]}',
        '{:index 2, :time 12, :type :ok, :process 2, :f :poll, :value [[:poll {}]], :rebalance-log [{:keys ["t:0"]}]}',
        '{:index 3, :time 13, :type :ok, :process 2, :f :assign, :value ["t:0"], :seek-to-beginning? true}',
        '{:index 5, :time 15, :type :info, :process 3, :f :send, :value [[:send "t:0" 8]]}',
    ]
    everything = list(edn_lines(events, everything=True))
    assert ':process :nemesis, :f :cut, :value [{"broker" 1}]' in everything[4]


def test_plain_values_are_written_as_edn_has_them() -> None:
    assert edn([None, True, False, 1.5, 'a"b\\c\nd']) == '[nil true false 1.5 "a\\"b\\\\c\\nd"]'
