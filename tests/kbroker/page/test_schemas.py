import json
import struct
import time

import pytest

from kbroker.client.producer import Producer
from kbroker.dev.broker_process import BrokerProcess
from kbroker.page.record_view import view_of
from kbroker.page.schemas import MOST_NEW, Schemas
from kbroker.protocol.records.record import Record
from tests.kbroker.page.visiting import visiting
from tests.spark_connector.registries import serving

FLIGHT = {
    "type": "record",
    "name": "F",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "tail", "type": "bytes"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}
ANSWERS = {"/schemas/ids/7": {"schema": json.dumps(FLIGHT)}, "/schemas/ids/8": {"schema": "no schema"}}
FRAMED = struct.pack(">bI", 0, 7) + b"\x0c<b>AA\x1b" + b"\x04\xff\x00" + b"\x02"


def record(value: bytes, key: bytes = b"k") -> Record:
    return Record(0, 0, 0, key, value, (), topic="t", partition=0)


async def test_framed_avro_is_written_out_and_what_cannot_be_says_why() -> None:
    unknown, broken, torn = (struct.pack(">bI", 0, number) + b"x" for number in (99, 8, 7))
    with serving(ANSWERS) as registry:
        schemas = Schemas(registry.url)
        views = [view_of(record(value), "auto") for value in (FRAMED, unknown, broken, torn, b"plain", b"\x00\x01")]
        good, *bad, plain, short = await schemas.read(views)
        assert (good.value.form, good.value.problem) == ("Avro, schema 7", "")
        assert json.loads(good.value.full) == {"carrier": "<b>AA\x1b", "tail": "ff00", "day": "1970-01-02"}
        for view, why in zip(bad, ("schemas/ids/99", "not JSON", "schema 7: "), strict=True):
            assert view.value.form == "hex"
            assert why in view.value.problem
        assert (plain.value.full, short.value.form, short.value.problem) == ("plain", "hex", "")
        asked = len(registry.asked)
        assert (await schemas.read(views))[0] == good
        assert len(registry.asked) == asked  # neither what is known nor what failed just now


async def test_a_registry_that_is_away_costs_little_and_is_named() -> None:
    with serving(ANSWERS) as registry:
        pass
    started = time.monotonic()
    [view] = await Schemas(registry.url).read([view_of(record(b"plain", FRAMED), "auto")])
    assert registry.url in view.key.problem
    assert view.key.form == "hex"
    assert time.monotonic() - started < 25


async def test_a_registry_that_fails_is_left_alone_whatever_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbroker.page.schemas.LEFT_ALONE_S", 3600)
    with serving(ANSWERS) as registry:
        registry.failures.append((403, b"no"))
        schemas = Schemas(registry.url)
        views = [view_of(record(struct.pack(">bI", 0, number)), "auto") for number in (1, 2, 3)]
        assert all("403" in view.value.problem for view in await schemas.read(views))
        [view] = await schemas.read([view_of(record(FRAMED), "auto")])
        assert ("403" in view.value.problem, len(registry.asked)) == (True, 1)
        schemas._problems = {each: (0.0, why) for each, (_, why) in schemas._problems.items()}  # the while is over
        [view] = await schemas.read([view_of(record(FRAMED), "auto")])
        assert view.value.form == "Avro, schema 7"


async def test_binary_that_only_looks_framed_asks_for_a_few_ids_and_few_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kbroker.page.schemas.MOST_PROBLEMS", 30)
    with serving(ANSWERS) as registry:
        schemas = Schemas(registry.url)
        views = [view_of(record(struct.pack(">bI", 0, number)), "auto") for number in range(100, 200)]
        for looks in (1, 2, 3):
            read = await schemas.read(views)
            assert all(view.value.problem for view in read)
            assert len(registry.asked) == looks * MOST_NEW
        assert len(schemas._problems) == 30


@pytest.mark.slow
async def test_a_search_shows_avro_where_a_registry_was_named(broker: BrokerProcess, topic_name: str) -> None:
    async with Producer(broker.bootstrap) as producer:
        await producer.send_and_wait(topic_name, FRAMED)
    address = f"/topics/{topic_name}/messages/stream?from=start"
    with serving(ANSWERS) as registry:
        async with visiting(broker.bootstrap, registry=registry.url) as visitor:
            told = (await visitor.get(address)).text
    assert "Avro, schema 7" in told
    assert "<b>AA" not in told
    async with visiting(broker.bootstrap) as visitor:
        assert "Avro" not in (await visitor.get(address)).text
