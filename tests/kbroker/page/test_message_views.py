import io
import json
import threading
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, quote

import pyarrow.parquet
import pytest

from kbroker.client.admin import Admin
from kbroker.client.consumer import Consumer
from kbroker.client.producer import Producer
from kbroker.client.types import TopicDescription
from kbroker.dev.broker_process import BrokerProcess
from kbroker.page import message_views
from kbroker.page.facts import Facts
from kbroker.page.message_views import in_pieces
from kbroker.page.page import MOST_READING
from tests.kbroker.page.visiting import Visitor, visiting

HOSTILE = '</pre><script>alert(1)</script><img src=x onerror="alert(2)">'


async def events(visitor: Visitor, path: str) -> list[tuple[str, Any]]:
    text = await visitor.see(path)
    pieces = [piece.split("\n") for piece in text.split("\n\n") if piece]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in pieces]


@pytest.mark.slow
async def test_hostile_records_are_shown_as_text(broker: BrokerProcess, topic_name: str) -> None:
    async with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        await admin.create_topic(topic_name, 1)
        hostile = HOSTILE.encode()
        await producer.send_and_wait(topic_name, hostile, key=hostile, headers=[(HOSTILE, hostile)])
        await producer.send_and_wait(topic_name, json.dumps({HOSTILE: HOSTILE}).encode())
        await producer.send_and_wait(topic_name, b"data: x\n\nevent: end\n\n\xff")
    async with visiting(broker.bootstrap) as visitor:
        for form in ("auto", "json", "text", "hex"):
            told = await events(visitor, f"/topics/{topic_name}/messages/stream?show={form}")
            assert {name for name, _ in told} == {"rows", "end"}
            html = "".join(content["html"] for name, content in told if name == "rows")
            assert html.count('class="record fresh"') == 3
            assert "<script" not in html
            assert "<img" not in html
        view = await visitor.get(f"/topics/{topic_name}/messages?key={quote(HOSTILE)}&where={quote(HOSTILE)}")
        assert "alert(1)</script>" not in view.text
        assert "alert(1)&lt;/script&gt;" in view.text


@pytest.mark.slow
async def test_a_search_tells_how_far_it_is_and_how_it_ends(broker: BrokerProcess, topic_name: str) -> None:
    async with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        await admin.create_topic(topic_name, 4)
        for number in range(40):
            await producer.send(topic_name, b"%d" % number, key=b"k%d" % (number % 10))
        await producer.flush()
    async with visiting(broker.bootstrap) as visitor:
        path = f"/topics/{topic_name}/messages/stream"
        told = await events(visitor, f"{path}?key=k3&from=start")
        assert told[-1] == ("end", {"found": 4, "limit": 50})
        assert told[0][1]["total"] < 40  # the key's partition alone
        limited = await events(visitor, f"{path}?limit=5")
        assert limited[-1] == ("end", {"found": 5, "limit": 5})
        problem = await events(visitor, f"{path}?where=value.")
        assert problem[0][0] == "problem"
        assert (await visitor.get("/topics/no-such-topic/messages/stream")).status == 404
        view = await visitor.get(f"/topics/{topic_name}/messages?where=value.")
        assert (view.status, "is no expression" in view.text) == (400, True)


async def test_all_that_matches_is_downloaded_in_three_forms(broker: BrokerProcess, topic_name: str) -> None:
    async with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        await admin.create_topic(topic_name, 2)
        for number in range(300):
            await producer.send(topic_name, json.dumps({"n": number}).encode(), partition=number % 2)
        await producer.flush()
    async with visiting(broker.bootstrap) as visitor:
        path = f"/topics/{topic_name}/messages/download?limit=5&where={quote('value.n >= 100')}&file="
        answer = await visitor.get(path + "json")
        assert f"{topic_name}.ndjson" in answer.header("content-disposition")
        values = sorted(json.loads(json.loads(line)["value"])["n"] for line in answer.text.splitlines())
        assert values == list(range(100, 300))
        lines = (await visitor.see(path + "csv")).splitlines()
        assert (len(lines), lines[0].split(",")[:3]) == (201, ["topic", "partition", "offset"])
        table = pyarrow.parquet.read_table(io.BytesIO((await visitor.get(path + "parquet")).body))
        assert table.num_rows == 200
        assert (await visitor.get(path + "exe")).status == 400


async def test_a_download_is_encoded_beside_the_loop_and_sent_in_pieces(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set()

    def noted(record: Any) -> dict[str, Any]:
        threads.add(threading.get_ident())
        return {"n": record.offset}

    monkeypatch.setattr(message_views, "as_object", noted)
    monkeypatch.setattr(message_views, "PIECE", 4)
    async with Producer(broker.bootstrap) as producer:
        await producer.send_and_wait(topic_name, b"v")
    async with visiting(broker.bootstrap) as visitor:
        answer = await visitor.get(f"/topics/{topic_name}/messages/download?file=json")
    assert answer.text == '{"n": 0}\n'
    assert threading.get_ident() not in threads
    assert threads
    assert list(map(bytes, in_pieces(b"123456789"))) == [b"1234", b"5678", b"9"]


async def test_a_search_leaves_out_partitions_that_nobody_leads_and_says_so(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        await admin.create_topic(topic_name, 2)
        for number in range(2):
            await producer.send_and_wait(topic_name, b"v", partition=number)
        described = (await admin.describe_topics([topic_name]))[topic_name]
    first, second = described.partitions
    described = replace(described, partitions=(first, replace(second, leader=None)))

    async def topic(facts: Facts, name: str) -> TopicDescription:
        return described

    monkeypatch.setattr(Facts, "topic", topic)
    path = f"/topics/{topic_name}/messages"
    async with visiting(broker.bootstrap) as visitor:
        told = await events(visitor, f"{path}/stream")
        assert told[-1] == ("end", {"found": 1, "limit": 50})
        assert told[0][1]["without"] == "partition 1, without a leader now"
        assert (await events(visitor, f"{path}/stream?partition=0"))[0][1]["without"] == ""
        [(name, problem)] = await events(visitor, f"{path}/stream?partition=1")
        assert (name, "partition 1, without a leader" in problem["text"]) == ("problem", True)
        refused = await visitor.get(f"{path}/download")
        assert (refused.status, "is not whole" in refused.text) == (502, True)
        assert (await visitor.get(f"{path}/download?partition=0")).status == 200


@pytest.mark.slow
async def test_a_record_is_produced_where_that_is_allowed(broker: BrokerProcess, topic_name: str) -> None:
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic(topic_name, 3)
    path = f"/topics/{topic_name}"
    async with visiting(broker.bootstrap) as visitor:
        assert "/produce" not in await visitor.see(f"{path}/messages")
    async with visiting(broker.bootstrap, allow_writes=True) as visitor:
        form = {"key": "k", "value": "a\r\nü", "headers": "h: 1\r\n\r\nb:2: 3", "partition": "2"}
        done = await visitor.submit(f"{path}/produce", form, f"{path}/messages")
        assert done.status == 303
        place = parse_qs(done.header("location").partition("?")[2])
        assert (place["at"], place["partition"]) == (["0"], ["2"])
        for more in ({"value": "00ff", "encoding": "hex"}, {"tombstone": "1", "key": "k"}):
            again = await visitor.submit(f"{path}/produce", {"partition": "2", **more}, f"{path}/messages")
            assert again.status == 303
        for wrong in ({"partition": "x"}, {"encoding": "hex", "value": "zz"}, {"headers": "none"}):
            answer = await visitor.submit(f"{path}/produce", {"value": "v", **wrong}, f"{path}/messages")
            assert answer.status == 400, wrong
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign([(topic_name, 2)])
        records: list[Any] = []
        while len(records) < 3:
            records += await consumer.poll(5.0)
    first, second, third = records
    assert (first.key, first.value) == (b"k", "a\nü".encode())
    assert first.headers == (("h", b"1"), ("b", b"2: 3"))
    assert (second.key, second.value, third.value) == (None, b"\x00\xff", None)


async def test_only_so_many_read_a_topic_at_once(broker: BrokerProcess, topic_name: str) -> None:
    path = f"/topics/{topic_name}/messages"
    async with Admin(broker.bootstrap) as admin, visiting(broker.bootstrap) as visitor:
        await admin.create_topic(topic_name, 1)
        reading = visitor.app.state.page.reading
        for _ in range(MOST_READING):
            await reading.acquire()
        assert (await visitor.get(f"{path}/download")).status == 503
        [(name, told)] = await events(visitor, f"{path}/stream")
        assert (name, str(MOST_READING) in told["text"]) == ("problem", True)
        reading.release()
        assert (await visitor.get(f"{path}/download")).status == 200
        assert (await events(visitor, f"{path}/stream"))[-1][0] == "end"
        assert not reading.locked()
