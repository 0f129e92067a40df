"""Tests for kbroker.verify.compaction: a key's older value behind a newer one, and what compaction may take."""

from tests.kbroker.verify.written import Written, read


def keyed(offset: int, value: int, key: str) -> list[object]:
    return [["send", "x", [offset, value, key]]]


def test_an_older_value_behind_a_newer_one_of_its_key_is_named() -> None:
    history = Written()
    history.do(0, "send", keyed(5, 1, "k"))
    history.do(0, "send", keyed(4, 2, "k"))
    found = history.findings("compact")["compacted-older-after-newer"]
    text = "x, record key 'k': the newer value 2 is at offset 4, the older 1 behind it, at 5"
    assert found.examples[0].text == text


def test_only_what_has_a_newer_value_may_be_gone_from_a_compacted_topic() -> None:
    history = Written()
    for offset, (value, key) in enumerate(((1, "k"), (2, "other"), (3, "k"))):
        history.do(0, "send", keyed(offset, value, key))
    history.do(1, "poll", read(x=[[2, 3]]), final=True)
    found = history.findings("compact")
    assert found["lost-write"].count == 1
    assert "value 2" in found["lost-write"].examples[0].text
    assert "int-poll-skip" not in found
