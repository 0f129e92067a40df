from kbroker.client.record_objects import as_object, readable
from kbroker.protocol.records.record import Record


def test_bytes_that_are_no_text_come_in_base64() -> None:
    assert readable(b"\xff\xfe") == {"base64": "//4="}
    assert (readable("ü".encode()), readable(None)) == ("ü", None)


def test_a_record_is_an_object_with_all_that_it_has() -> None:
    record = Record(1, 2, 0, None, b"v", (("h", b"\x80"),), topic="t", partition=3)
    assert as_object(record) == {
        "topic": "t",
        "partition": 3,
        "offset": 1,
        "timestamp": 2,
        "key": None,
        "value": "v",
        "headers": [["h", {"base64": "gA=="}]],
    }
