"""Tests for kbroker.verify.versions: what logs held, and what proves it."""

import numpy as np

from kbroker.verify.versions import ValueIndex, find_versions
from tests.kbroker.verify.written import Written, read, sent


def test_an_unknown_send_counts_only_when_something_proves_it() -> None:
    history = Written()
    history.do(0, "txn", [*sent("x", [0, 1]), ["send", "y", 1_000]], "info")
    history.do(1, "send", sent("x", [0, 2]))
    assert "inconsistent-offsets" not in history.findings()
    history.do(2, "poll", read(y=[[5, 1_000]]))
    found = history.findings()["inconsistent-offsets"]
    assert found.examples[0].text == "x offset 0: value 1, and value 2 too"


def test_a_told_offset_outside_of_a_transaction_is_an_acknowledgement() -> None:
    history = Written()
    history.do(0, "send", [*sent("x", [0, 1]), ["send", "x", 2]], "info")
    history.do(1, "send", sent("x", [0, 3]))
    assert "inconsistent-offsets" in history.findings()


def test_a_value_at_two_offsets_is_a_duplicate_with_its_raw_offsets() -> None:
    history = Written()
    history.do(0, "send", sent("x", [4, 1]))
    history.do(1, "poll", read(x=[[4, 1], [9, 1]]))
    assert history.findings()["duplicate"].examples[0].text == "x: value 1 stands at offsets [4, 9]"


def test_a_value_in_a_partition_it_was_not_sent_to_is_unexpected() -> None:
    history = Written()
    history.do(0, "send", sent("x", [0, 1]))
    history.do(1, "poll", read(y=[[0, 1]], x=[[0, 1]]))
    found = history.findings()
    assert list(found) == ["unexpected-value"]
    assert found["unexpected-value"].examples[0].text == "y offset 0: value 1 was read, and nobody sent it there"


def test_values_are_found_wherever_they_lie() -> None:
    for values in ([7, 3, 5], [2**60, 3, 5], [-2, 3]):
        index = ValueIndex(np.array(values))
        assert index.rows(np.array([3, 4, values[0], -9])).tolist() == [1, -1, 0, -1]
    assert ValueIndex(np.array([], dtype=np.int64)).rows(np.array([1])).tolist() == [-1]


def test_only_keyed_records_with_a_later_one_are_superseded() -> None:
    history = Written()
    history.do(0, "send", [["send", "x", [0, 1, "k"]], ["send", "x", [1, 2, "k"]], ["send", "x", [2, 3]]])
    assert find_versions(history.columns, is_compacted=True).is_superseded.tolist() == [True, False, False]
    assert not find_versions(history.columns).is_superseded.any()
