"""What is asked of the whole cluster is asked and read in another thread."""

import asyncio
import threading

import pytest

from kbroker.client.admin import Admin
from kbroker.client.errors import NotConnected
from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.free_ports import free_ports
from kbroker.page import rates
from kbroker.page.beside import Beside
from kbroker.page.facts import Facts, led
from tests.kbroker.page.visiting import until


class Noted(Admin):
    """Notes which thread asks for what."""

    asked: list[tuple[str, threading.Thread]]

    async def describe_topics(self, *arguments: object, **more: object) -> object:  # type: ignore[override]
        self.asked.append(("topics", threading.current_thread()))
        return await super().describe_topics(*arguments, **more)  # type: ignore[arg-type]

    async def describe_log_dirs(self, *arguments: object, **more: object) -> object:  # type: ignore[override]
        self.asked.append(("disks", threading.current_thread()))
        return await super().describe_log_dirs(*arguments, **more)  # type: ignore[arg-type]

    async def list_groups(self, *arguments: object, **more: object) -> object:  # type: ignore[override]
        self.asked.append(("groups", threading.current_thread()))
        return await super().list_groups(*arguments, **more)  # type: ignore[arg-type]

    async def list_offsets(self, *arguments: object, **more: object) -> object:  # type: ignore[override]
        self.asked.append(("offsets", threading.current_thread()))
        return await super().list_offsets(*arguments, **more)  # type: ignore[arg-type]


async def test_views_have_the_whole_cluster_asked_for_in_another_thread(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "PERIOD_S", 0.05)
    asked: list[tuple[str, threading.Thread]] = []

    def make_admin() -> Noted:
        admin = Noted(broker.bootstrap)
        admin.asked = asked
        return admin

    async with make_admin() as admin, Beside(make_admin) as beside:
        await admin.create_topic(topic_name, 2)
        facts = Facts(admin, beside)
        topics = await facts.topics.get()
        assert len(topics[topic_name].partitions) == 2
        assert len(await facts.offsets(led(topics[topic_name]), topics)) == 2
        assert (await facts.disks.get()).bytes_of_topic(topic_name) == 0
        await facts.groups.get()

        async def is_watched() -> bool:
            return bool(beside.watch.of_all()[0].each)

        await until(is_watched)
        assert {what for what, _ in asked} == {"topics", "disks", "groups", "offsets"}
        assert threading.main_thread() not in {thread for _, thread in asked}
        (thread,) = {thread for _, thread in asked}
    assert not thread.is_alive()


async def test_why_a_question_failed_is_told_where_it_was_asked() -> None:
    def make_admin() -> Admin:
        return Admin(f"127.0.0.1:{free_ports(1)[0]}", request_timeout_ms=300)

    async with make_admin() as admin, Beside(make_admin) as beside:
        with pytest.raises((NotConnected, TimeoutError)):
            await Facts(admin, beside).topics.get()


async def test_what_nobody_waits_for_any_more_ends_there_too() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def question(_: Facts) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with Beside(lambda: Admin("127.0.0.1:1")) as beside:
        asked = asyncio.ensure_future(beside.ask(question))
        assert await asyncio.to_thread(begun.wait, 30)
        asked.cancel()
        assert await asyncio.to_thread(ended.wait, 30)
