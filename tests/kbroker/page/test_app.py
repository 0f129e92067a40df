import asyncio

import pytest

from kbroker.client.cluster import Cluster
from kbroker.client.connection import Connection
from kbroker.client.errors import NotConnected
from kbroker.dev.broker_process import BrokerProcess
from kbroker.page.app import FORMS, ROUTES
from tests.kbroker.page.visiting import visiting


async def test_without_a_cluster_the_page_says_so_and_stays() -> None:
    async with visiting("127.0.0.1:1", settings={"request.timeout.ms": "300"}) as visitor:
        for _ in range(2):
            answer = await visitor.get("/")
            assert answer.status == 502
            assert "no bootstrap broker answers" in answer.text


async def test_a_cluster_that_goes_away_is_missed_at_once(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody(cluster: Cluster, besides: object = None) -> Connection:
        raise NotConnected("no bootstrap broker answers")

    async with visiting(broker.bootstrap) as visitor:
        assert (await visitor.get("/")).status == 200
        monkeypatch.setattr(Cluster, "any_connection", nobody)
        async with asyncio.timeout(20):
            with pytest.raises(NotConnected):
                await visitor.app.state.page.admin.list_topics()


async def test_what_is_not_there_is_said_without_repeating_markup(broker: BrokerProcess) -> None:
    async with visiting(broker.bootstrap) as visitor:
        for path in (
            "/nothing/<script>x",
            "/topics/%3Cscript%3Ex",
            "/topics/no-such-topic",
            "/brokers/99",
            "/brokers/x",
        ):
            answer = await visitor.get(path)
            assert answer.status == 404, path
            assert "<script>x" not in answer.text


@pytest.mark.parametrize("path", [path for path, _ in FORMS])
async def test_a_page_that_is_for_reading_changes_nothing(path: str) -> None:
    async with visiting("127.0.0.1:1") as visitor:
        real = path.replace("{broker:int}", "1").replace("{topic}", "t")
        answer = await visitor.submit(real, {"key": "retention.ms", "value": "1"}, "/login")
        assert answer.status == 403
        assert "--allow-writes" in answer.text


def test_what_changes_something_is_no_view() -> None:
    """A view is asked for by GET: whatever it does, a link on another site can have it done."""
    assert not {view for _, view in ROUTES} & {view for _, view in FORMS}


async def test_trying_again_leads_to_the_same_view_and_not_to_another_site() -> None:
    async with visiting("127.0.0.1:1", settings={"request.timeout.ms": "300"}) as visitor:
        assert 'href="?id=x%26y"' in (await visitor.get("/group?id=x%26y")).text
        assert 'href="//' not in (await visitor.get("//evil.example/login")).text
