"""zookeeper.set.acl beside Apache Kafka's broker: the same nodes under the same ACLs; one goes on with the other's."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import pytest
from kazoo.protocol import serialization

from kbroker import Admin
from kbroker.config.jaas_file import zookeeper_login
from kbroker.controller.znode_access import ZooKeeperAccess
from kbroker.controller.zookeeper import ZooKeeper
from tests.controller.test_protected_znodes import PROTECTED, use
from tests.fixtures.brokers import MakeBroker
from tests.fixtures.kafka import running_kafka

pytestmark = pytest.mark.compat

Acls = dict[str, list[Any]]


async def read_acls(connect: str) -> Acls:
    """All nodes' ACLs, as one of the brokers; the numbers at the ends of names do not count."""
    session = ZooKeeper(connect, access=ZooKeeperAccess(sasl=zookeeper_login()))
    await session.connect()
    found: Acls = {}

    async def look(path: str) -> None:
        entries, _ = await session._call(serialization.GetACL(session._path(path)))
        found[re.sub(r"\d{10}$", "", path)] = [(each.perms, each.id.scheme, each.id.id) for each in entries]
        for name in await session.children(path):
            await look(f"{path.rstrip('/')}/{name}")

    try:
        await look("/")
    finally:
        await session.close()
    return found


def test_both_protect_the_same_nodes_in_the_same_way(
    sasl_zookeeper: str,
    kafka_class_path: str,
    make_broker: MakeBroker,
    tmp_path: Path,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs, ours = f"{sasl_zookeeper}/kafka", f"{sasl_zookeeper}/ours"
    with monkeypatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", os.environ["KAFKA_OPTS"])
        with running_kafka(tmp_path / "kafka", theirs, kafka_class_path, PROTECTED) as kafka:
            use(kafka.bootstrap, topic_name)
            by_kafka = asyncio.run(read_acls(theirs))
            assert kafka.stop(60) is not None
    broker = make_broker(properties=PROTECTED, zookeeper_connect=ours)
    use(broker.bootstrap, topic_name)
    by_us = asyncio.run(read_acls(ours))
    assert by_us == by_kafka
    assert by_us[f"/brokers/topics/{topic_name}/partitions/0/state"] == [(31, "sasl", "kafka"), (1, "world", "anyone")]
    heir = make_broker(2, properties=PROTECTED, zookeeper_connect=theirs)
    with Admin(heir.bootstrap) as admin:
        assert "alice" in admin.describe_users()
        admin.delete_topics([topic_name])
