from kbroker.client.admin import Admin
from kbroker.client.producer import Producer
from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.page.visiting import visiting


async def test_transactions_are_listed_with_what_is_open(broker: BrokerProcess, topic_name: str) -> None:
    name = f"<u>{topic_name}"
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic(topic_name, 1)
    async with Producer(broker.bootstrap, transactional_id=name) as producer, visiting(broker.bootstrap) as visitor:
        async with producer.transaction():
            await producer.send_and_wait(topic_name, b"x")
            text = await visitor.see(f"/transactions?q={topic_name}")
            assert "Ongoing" in text
            assert f"{topic_name}-0" in text
            assert "<u>" not in text
        assert "No transactional ids" in await visitor.see("/transactions?q=no-such-id")


async def test_users_and_limits_are_shown_and_what_a_cluster_has_not_is_said(own_broker: BrokerProcess) -> None:
    async with Admin(own_broker.bootstrap) as admin:
        await admin.set_user("<s>ann", "secret-word", iterations=4096)
        await admin.alter_client_quotas({"user": "ann", "client-id": None}, {"producer_byte_rate": 1000.0})
        async with visiting(own_broker.bootstrap) as visitor:
            text = await visitor.see("/access")
    assert "&lt;s&gt;ann" in text
    assert "SCRAM-SHA-512" in text
    assert "secret-word" not in text
    assert "producer_byte_rate" in text
    assert "any other" in text
    assert "SECURITY_DISABLED" in text
