from kbroker.client.admin import Admin
from kbroker.client.producer import Producer
from kbroker.dev.broker_process import BrokerProcess
from tests.fixtures.brokers import MakeBroker
from tests.kbroker.page.visiting import until, visiting


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


RULE = {
    "principal": "User:<b>ann",
    "permission": "allow",
    "operation": "read",
    "resource": "topic",
    "name": "orders-",
    "pattern": "prefixed",
    "host": "",
}


async def test_rules_users_and_limits_are_added_and_removed(make_broker: MakeBroker) -> None:
    secured = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    broker = make_broker(properties=secured)
    async with Admin(broker.bootstrap) as admin, visiting(broker.bootstrap, allow_writes=True) as visitor:

        async def send(path: str, form: dict[str, str], status: int = 303) -> None:
            answer = await visitor.submit(path, form, "/access")
            assert answer.status == status, answer.text

        async def sees(text: str, *, is_there: bool = True) -> None:
            async def is_so() -> bool:
                return (text in await visitor.see("/access")) == is_there

            await until(is_so)

        await send("/access/rules", RULE)
        await sees("and all that begin so")
        [rule] = await admin.describe_acls()
        assert (rule.principal, rule.name, rule.pattern.name, rule.host) == ("User:<b>ann", "orders-", "PREFIXED", "*")
        assert "<b>ann" not in await visitor.see("/access")
        for wrong in (
            {"principal": "ann"},
            {"name": " "},
            {"operation": "any"},
            {"resource": "x"},
            {"pattern": "match"},
        ):
            await send("/access/rules", {**RULE, **wrong}, 400)
        await send("/access/rules/remove", {**RULE, "operation": "write"}, 400)
        await send("/access/rules/remove", RULE)
        await sees("No rules.")

        await send("/access/users", {"name": "ann", "password": "a-secret-word"})
        await sees("SCRAM-SHA-512")
        await send("/access/users", {"name": "ann", "password": "short"}, 400)
        await send("/access/users/remove", {"name": "ann"})
        await sees("No users.")

        limit = {"user": "ann", "client-id": "*", "key": "request_percentage", "limit": "12.5"}
        await send("/access/limits", limit)
        await sees(">12.5<")
        [quota] = await admin.describe_client_quotas()
        assert (quota.entity, quota.limits) == ({"user": "ann", "client-id": None}, {"request_percentage": 12.5})
        for wrong in ({"limit": "x"}, {"limit": "nan"}, {"key": "x"}, {"user": "", "client-id": ""}):
            await send("/access/limits", {**limit, **wrong}, 400)
        await send("/access/limits", {**limit, "what": "remove", "limit": ""})
        await sees("No limits.")
