import pytest

from kbroker.client.admin import Admin
from kbroker.client.producer import Producer
from kbroker.client.types import EARLIEST, TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from kbroker.page.record_query import WrongQuery
from kbroker.page.topic_change_views import number_of, settings_of
from tests.kbroker.page.visiting import until, visiting


@pytest.mark.slow
async def test_a_topic_is_made_grows_is_emptied_and_deleted(broker: BrokerProcess, topic_name: str) -> None:
    path = f"/topics/{topic_name}"
    made = {"name": topic_name, "partitions": "2", "replicas": "", "settings": "retention.ms=123456789\r\n"}
    async with Admin(broker.bootstrap) as admin, visiting(broker.bootstrap, allow_writes=True) as visitor:
        done = await visitor.submit("/topics", made, "/topics")
        assert (done.status, done.header("location")) == (303, f"{path}?done=created")
        assert "Created." in await visitor.see(f"{path}?done=created")
        settings = (await admin.describe_configs("topic", [topic_name]))[topic_name]
        assert settings["retention.ms"].value == "123456789"
        assert (await visitor.submit("/topics", made, "/topics")).status == 400  # it is there already

        await visitor.submit(f"{path}/partitions", {"partitions": "3"}, path)

        async def has_three() -> bool:
            return len((await admin.describe_topics([topic_name]))[topic_name].partitions) == 3

        await until(has_three)
        async with Producer(broker.bootstrap) as producer:
            await producer.send_and_wait(topic_name, b"x", partition=1)
        key = TopicPartition(topic_name, 1)
        for wrong in ("", topic_name.upper(), f"{topic_name} "):
            for what in ("empty", "delete"):
                assert (await visitor.submit(f"{path}/{what}", {"confirm": wrong}, path)).status == 400
        assert (await admin.list_offsets({key: EARLIEST}))[key].offset == 0
        done = await visitor.submit(f"{path}/empty", {"confirm": topic_name}, path)
        assert done.header("location") == f"{path}?done=emptied"
        assert (await admin.list_offsets({key: EARLIEST}))[key].offset == 1
        done = await visitor.submit(f"{path}/delete", {"confirm": topic_name}, path)
        assert done.header("location") == "/topics?done=deleted"

        async def is_gone() -> bool:
            return topic_name not in await admin.list_topics()

        await until(is_gone)


@pytest.mark.slow
async def test_nothing_is_made_or_deleted_where_that_is_not_allowed(broker: BrokerProcess, topic_name: str) -> None:
    async with Admin(broker.bootstrap) as admin, visiting(broker.bootstrap) as visitor:
        await admin.create_topic(topic_name, 1)
        path = f"/topics/{topic_name}"
        for view in ("/topics", path, "/access"):
            assert 'method="post"' not in await visitor.see(view)
        for address in ("/topics", f"{path}/delete", f"{path}/empty", f"{path}/partitions", "/access/rules"):
            form = {"confirm": topic_name, "name": f"{topic_name}-2", "partitions": "9"}
            assert (await visitor.submit(address, form, "/login")).status == 403, address
        assert f"{topic_name}-2" not in await admin.list_topics()
        assert len((await admin.describe_topics([topic_name]))[topic_name].partitions) == 1


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "9" * 10, "\N{SUPERSCRIPT TWO}"])
def test_what_is_no_number_of_partitions_is_refused(text: str) -> None:
    with pytest.raises(WrongQuery):
        number_of({"partitions": text}, "partitions")


def test_settings_are_lines_of_key_and_value() -> None:
    assert settings_of({"settings": " a.b = 1 \n\nc=x=y"}) == {"a.b": "1", "c": "x=y"}
    with pytest.raises(WrongQuery, match="key=value"):
        settings_of({"settings": "a.b"})
