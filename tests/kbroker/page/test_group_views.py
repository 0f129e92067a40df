import html
import json
import re
from urllib.parse import quote

import pytest

from kbroker.client.admin import Admin
from kbroker.client.consumer import Consumer
from kbroker.client.producer import Producer
from kbroker.client.types import TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.page.test_scan import fill
from tests.kbroker.page.visiting import visiting

HOSTILE = "<b>/a group&x=1</b>"


def places_of(preview: str) -> str:
    """Return what the form of a preview carries."""
    found = re.search('name="places" value="([^"]*)"', preview)
    assert found is not None
    return html.unescape(found[1])


@pytest.mark.slow
async def test_a_group_is_listed_shown_and_moved(broker: BrokerProcess, topic_name: str) -> None:
    await fill(broker.bootstrap, topic_name, (1_234,))
    group = f"{HOSTILE} {topic_name}"
    key = TopicPartition(topic_name, 0)
    address = f"/group?id={quote(group)}"
    reset = {"id": group, "topic": topic_name, "to": "earliest"}
    shown = f"/group/reset?id={quote(group)}&topic={topic_name}&to=earliest"
    async with Admin(broker.bootstrap) as admin:
        await admin.alter_group_offsets(group, {key: 1_000})
        async with visiting(broker.bootstrap) as visitor:
            listed = await visitor.see(f"/groups?q={topic_name}")
            assert "<b>/a" not in listed
            assert ">234<" in listed
            text = await visitor.see(address)
            assert "<b>/a" not in text
            assert "1\u202f234" in text
            assert "Nobody is in it now" in text
            assert ">234<" in await visitor.see(f"/topics/{topic_name}/groups")
            preview = await visitor.see(shown)
            assert "-1\u202f000" in preview
            assert 'method="post"' not in preview
            assert (await visitor.submit("/group/reset", reset, "/login")).status == 403
        assert (await admin.list_group_offsets(group))[key].offset == 1_000
        async with visiting(broker.bootstrap, allow_writes=True) as visitor:
            places = places_of(await visitor.see(shown))
            assert json.loads(places) == [[topic_name, 0, 0]]
            latest = places_of(await visitor.see(shown.replace("earliest", "latest")))
            done = await visitor.submit("/group/reset", {**reset, "places": places}, shown)
            assert (done.status, done.header("location").endswith("done=reset")) == (303, True)
            assert (await admin.list_group_offsets(group))[key].offset == 0
            async with Producer(broker.bootstrap) as producer:
                await producer.send_and_wait(topic_name, b"after the preview")
            await visitor.submit("/group/reset", {**reset, "places": latest}, shown)
            assert (await admin.list_group_offsets(group))[key].offset == 1_234
            for wrong in (
                "",
                "x",
                "[]",
                "[1]",
                '[["no-such-topic", 0, 1]]',
                f'[["{topic_name}", 0, -1]]',
                "[" * 99_999,
            ):
                answer = await visitor.submit("/group/reset", {**reset, "places": wrong}, shown)
                assert answer.status == 400, wrong[:40]
            for query in ("to=time&at=x", "to=there", "to=latest&topic=no-such-topic"):
                assert (await visitor.get(f"/group/reset?id={quote(group)}&{query}")).status == 400, query
            assert (await visitor.get("/group?id=no-such-group")).status == 404
            wrong_name = {"id": group, "confirm": topic_name}
            assert (await visitor.submit("/group/delete", wrong_name, shown)).status == 400
            gone = await visitor.submit("/group/delete", {"id": group, "confirm": group}, shown)
            assert gone.header("location") == "/groups?done=deleted"
            assert group not in await admin.list_groups()


async def test_members_and_the_story_of_a_rebalance_are_told(broker: BrokerProcess, topic_name: str) -> None:
    await fill(broker.bootstrap, topic_name, (3,))
    group = f"group-{topic_name}"
    arguments = {"group_id": group, "auto_offset_reset": "earliest", "client_id": "<i>me</i>"}
    async with Consumer(broker.bootstrap, **arguments) as consumer:
        await consumer.subscribe([topic_name])
        while not await consumer.poll(5.0):
            pass
        async with visiting(broker.bootstrap) as visitor:
            text = await visitor.see(f"/group?id={group}")
        assert "<i>me" not in text
        assert "&lt;i&gt;me&lt;/i&gt;" in text
        assert f"{topic_name}-0" in text
        assert 'class="story"' in text
        assert "Stable" in text
