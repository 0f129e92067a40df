"""Values of batches as text and as typed fields: on their own, and from a real broker."""

import datetime
import json
import pickle
from typing import Any

import pytest

from kbroker import Consumer, Producer
from kbroker.client.errors import ConfigurationError, MalformedValue
from kbroker.dev.broker_process import BrokerProcess

pa = pytest.importorskip("pyarrow")
typed_values = pytest.importorskip("kbroker.client.typed_values")


def batch_of(*values: bytes | None) -> Any:
    return pa.RecordBatch.from_pydict({"key": [b"k"] * len(values), "value": pa.array(values, pa.binary())})


def test_the_type_is_found_in_the_first_batch_and_kept() -> None:
    values = typed_values.TypedValues("json")
    first, malformed = values.parse(batch_of(b'{"a":1,"at":"2013-01-01T05:00:00Z","x":null}', None), "t")
    assert malformed == {}
    assert first.schema.names == ["key", "value"]
    assert first["value"].type == pa.struct([("a", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("x", pa.string())])
    moment = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)
    assert first["value"].to_pylist() == [{"a": 1, "at": moment, "x": None}, None]
    second, malformed = values.parse(batch_of(b'{"a":2}', b'{"a":"two"}', b'{"b":[1]}'), "t")
    assert second.schema == first.schema
    assert list(malformed) == [1, 2], "a field that the first batch has not is told, not lost"
    assert "b: not a field" in malformed[2]


def test_each_topic_has_its_own_type_and_tombstones_have_none() -> None:
    values = typed_values.TypedValues("json")
    assert values.parse(batch_of(None, None), "t")[0]["value"].to_pylist() == [None, None]
    assert values.parse(batch_of(b'{"a":1}'), "t")[0]["value"].type == pa.struct([("a", pa.int64())])
    assert values.parse(batch_of(b'{"a":"x"}'), "u")[0]["value"].type == pa.struct([("a", pa.string())])


def test_a_given_schema_takes_what_it_names() -> None:
    values = typed_values.TypedValues("json", pa.schema([("a", pa.float64()), ("day", pa.date32())]))
    typed, malformed = values.parse(batch_of(b'{"a":1,"b":2}', b'{"day":"2013-01-01"}'), "t")
    assert malformed == {}
    assert typed["value"].to_pylist() == [{"a": 1.0, "day": None}, {"a": None, "day": datetime.date(2013, 1, 1)}]


def test_text_is_utf8() -> None:
    typed, malformed = typed_values.TypedValues("string").parse(batch_of("ü".encode(), None, b"\xff"), "t")
    assert typed["value"].to_pylist() == ["ü", None, "�"]
    assert malformed == {2: "not UTF-8"}


def test_malformed_values_do_not_hide_the_type_of_the_others() -> None:
    values = [b'{"a":1}', b"no", b"{no}", b'{"a":2.5}']
    assert typed_values.inferred_type(pa.array(values, pa.binary())) == pa.struct([("a", pa.float64())])
    assert typed_values.inferred_type(pa.array([b"no", b"{no}"], pa.binary())) is None
    with pytest.raises(ValueError, match=r"no type in common .*value_schema"):
        typed_values.inferred_type(pa.array([b'{"a":1}', b'{"a":"x"}'], pa.binary()))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"value_format": "yaml"}, "binary, string or json, not 'yaml'"),
        ({"value_format": "json", "malformed": "drop"}, "'raise' or 'null', not 'drop'"),
        ({"value_format": "json", "value_schema": {"a": "int"}}, "a pyarrow Schema or struct type"),
        ({"value_format": "string", "value_schema": pa.schema([])}, "needs value_format='json'"),
    ],
)
def test_wrong_arguments_are_told_at_the_call(broker: BrokerProcess, arguments: dict[str, Any], reason: str) -> None:
    with Consumer(broker.bootstrap) as consumer, pytest.raises(ConfigurationError, match=reason):
        consumer.batches(**arguments)


@pytest.mark.slow
def test_batches_of_a_topic_are_typed_and_a_malformed_value_can_be_skipped(bootstrap: str, topic: str) -> None:
    texts = [json.dumps({"n": number}).encode() for number in range(50)]
    texts[20] = b"poison"
    with Producer(bootstrap) as producer:
        for text in texts:
            producer.send(topic, text, partition=0)
        producer.flush(30)
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        before: list[Any] = []
        for _ in range(2):
            batches = consumer.batches(timeout=30, value_format="json")
            with pytest.raises(MalformedValue, match=rf"{topic}-0 at offset 20: .*seek to 21") as caught:
                before.extend(value["n"] for batch in batches for value in batch["value"].to_pylist())
            assert before == list(range(20))
            assert consumer.position((topic, 0)) == 20
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        consumer.seek((topic, 0), caught.value.offset + 1)
        schema = pa.schema([("n", pa.int32())])
        behind = [batch["value"] for batch in consumer.batches(9, 2, value_format="json", value_schema=schema)]
        assert [value["n"] for values in behind for value in values.to_pylist()] == list(range(21, 50))
        consumer.seek_to_beginning()
        read = [batch["value"] for batch in consumer.batches(9, 2, value_format="json", malformed="null")]
        assert [value and value["n"] for values in read for value in values.to_pylist()] == [
            None if number == 20 else number for number in range(50)
        ]
        consumer.seek((topic, 0), 20)
        assert next(consumer.batches(timeout=30, value_format="string"))["value"][0].as_py() == "poison"
