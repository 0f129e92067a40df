"""Spark's driver and executors log in by the options of Java's clients."""

from typing import Any

import pytest

import kbroker
from kbroker.dev.free_ports import free_ports
from kbroker.security.jaas import PLAIN_MODULE
from tests.fixtures.brokers import MakeBroker
from tests.kbroker.token_broker import login_of, make_token_broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_table_is_written_and_read_by_whoever_has_the_password(
    spark: Any, make_broker: MakeBroker, topic_name: str
) -> None:
    (port,) = free_ports(1)
    properties = {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{PLAIN_MODULE} required username="b" password="s1" user_b="s1" user_alice="s2";'
        ),
    }
    broker = make_broker(port=port, properties=properties)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{PLAIN_MODULE} required username="alice" password="s2";',
    }
    alice = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": "s2",
    }
    with kbroker.Admin(broker.bootstrap, **alice) as admin:
        admin.create_topic(topic_name, 2, 1)
    frame = spark.range(100).selectExpr("cast(id as string) as value")
    frame.write.format("kbroker").options(**options).option("topic", topic_name).mode("append").save()
    read = spark.read.format("kbroker").options(**options).option("subscribe", topic_name).load()
    assert read.count() == 100
    assert 'password="s2"' not in read._jdf.queryExecution().toString(), (
        "what Spark shows of a query, to its driver's page too"
    )
    wrong = {**options, "kafka.sasl.jaas.config": f'{PLAIN_MODULE} required username="alice" password="hunter2";'}
    with pytest.raises(Exception, match="refused") as caught:
        spark.read.format("kbroker").options(**wrong).option("subscribe", topic_name).load().count()
    assert "alice" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_driver_and_executors_log_in_by_a_token_until_it_ends(
    spark: Any, make_broker: MakeBroker, topic_name: str
) -> None:
    _, port = make_token_broker(make_broker)
    with kbroker.Admin(f"127.0.0.1:{port}", **login_of("alice")) as alice:
        alice.create_topic(topic_name, 2, 1)
        token = alice.create_delegation_token()
        options = {
            "kafka.bootstrap.servers": f"127.0.0.1:{port}",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            **{f"kafka.{name}": value for name, value in token.login.items()},
        }
        frame = spark.range(100).selectExpr("cast(id as string) as value")
        frame.write.format("kbroker").options(**options).option("topic", topic_name).mode("append").save()
        read = spark.read.format("kbroker").options(**options).option("subscribe", topic_name).load()
        assert read.count() == 100
        assert token.login["sasl_password"] not in read._jdf.queryExecution().toString()
        alice.expire_delegation_token(token.hmac)
    with pytest.raises(Exception, match="refused") as caught:
        spark.read.format("kbroker").options(**options).option("subscribe", topic_name).load().count()
    assert token.token_id in str(caught.value)
    assert token.login["sasl_password"] not in str(caught.value)
