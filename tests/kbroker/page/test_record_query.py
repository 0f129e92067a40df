from typing import Any

import pytest

from kbroker.page.record_query import MOST_SHOWN, SHOWN_BY_DEFAULT, RecordQuery, WrongQuery, read_query, read_time
from kbroker.protocol.records.partitioner import partition_for_key
from kbroker.protocol.records.record import Record

NOW = 1_700_000_000_000


def read(**asked: str) -> RecordQuery:
    return read_query({name.rstrip("_"): value for name, value in asked.items()}, NOW)


def test_without_wishes_the_newest_are_shown() -> None:
    query = read()
    assert (query.start, query.limit, query.matcher()) == ("end", SHOWN_BY_DEFAULT, None)
    assert query.partitions(3) == [0, 1, 2]


def test_a_place_to_begin_is_an_offset_or_a_time() -> None:
    assert read_query({"from": "offset", "at": "12"}, NOW).at == 12
    assert read_query({"from": "offset"}, NOW).at == 0
    assert read_query({"from": "time", "at": "30m ago"}, NOW).at == NOW - 1_800_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1357034645123", 1357034645123),
        ("2013-01-01T10:04:05", 1357034645000),
        ("2013-01-01", 1356998400000),
        ("2013-01-01T11:04:05+01:00", 1357034645000),
        ("90s", NOW - 90_000),
        ("-2d", NOW - 2 * 86_400_000),
    ],
)
def test_a_time_is_read_in_utc(text: str, expected: int) -> None:
    assert read_time(text, NOW) == expected


def test_a_key_is_looked_for_where_producers_put_it() -> None:
    assert read(key="UA").partitions(12) == [partition_for_key(b"UA", 12)]
    assert read(key="UA", partitioner="consistent_random").partitions(12) == [partition_for_key(b"UA", 12, 1)]
    assert read(key="UA", partitioner="").partitions(12) == list(range(12))
    assert read(key="UA", partition="4").partitions(12) == [4]


def matching(query: RecordQuery, **fields: Any) -> bool:
    matcher = query.matcher()
    assert matcher is not None
    return matcher(Record(0, 0, 0, **{"key": None, "value": None, **fields}))


def test_a_text_is_looked_for_everywhere_in_a_record() -> None:
    query = read(text="ü<")
    wanted = "xü<y".encode()
    assert matching(query, value=wanted)
    assert matching(query, key=wanted)
    assert matching(query, headers=(("h", wanted),))
    assert matching(query, headers=(("ü<", None),))
    assert not matching(query, key=b"u", value=b"<", headers=(("h", None),))


def test_all_wishes_hold_together() -> None:
    query = read(key="k", text="x", where="value.n > 1")
    assert matching(query, key=b"k", value=b'{"n": 2, "x": 0}')
    assert not matching(query, key=b"k", value=b'{"n": 1, "x": 0}')
    assert not matching(query, key=b"kk", value=b'{"n": 2, "x": 0}')
    assert not matching(query, value=b'{"n": 2, "x": 0}')


@pytest.mark.parametrize(
    "asked",
    [
        {"from": "middle"},
        {"from": "offset", "at": "x"},
        {"from": "time", "at": "yesterday"},
        {"from": "time", "at": ""},
        {"partition": "-1"},
        {"partition": "²"},
        {"limit": "many"},
        {"partitioner": "mine"},
        {"where": "value."},
    ],
)
def test_what_cannot_be_asked_is_said(asked: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_query(asked, NOW)


def test_a_partition_that_is_not_there_is_said() -> None:
    with pytest.raises(WrongQuery, match="3 partitions"):
        read(partition="3").partitions(3)


def test_what_is_shown_has_a_limit_and_a_download_has_none() -> None:
    assert read(limit="999999").limit == MOST_SHOWN
    download = read(limit="5").for_download()
    assert (download.start, download.limit) == ("start", None)
    assert read_query({"from": "offset", "at": "7"}, NOW).for_download().at == 7
