"""Configurations as a client reads and changes them on a real broker."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient

from kbroker.config.description import DEFAULT, DYNAMIC_BROKER, DYNAMIC_DEFAULT, LOGGER, STATIC_BROKER, TOPIC_CONFIG
from kbroker.controller.znode_operations import ZooKeeperError
from kbroker.dev.broker_process import BrokerProcess
from kbroker.handlers.configs import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    DELETE,
    MOST_CHANGES,
    SET,
    SUBTRACT,
    TOPIC,
    Change,
    changed,
    describe_configs,
)
from kbroker.protocol.config_def import ConfigType
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.replica.turns import finished
from kbroker.segment.log_config import TOPIC_KEYS
from tests.fixtures.brokers import MakeBroker
from tests.fixtures.data_path import one_batch
from tests.fixtures.zookeeper import ZooKeeperAddress
from tests.kbroker.asking import Ask, asking, told
from tests.kbroker.handlers.test_topics import create, topic


async def result(ask: Ask, kind: int, name: str, keys: list[str] | None = None, version: int = 4) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=version >= 3)
    return (await ask(request, version)).results[0]


async def entries(ask: Ask, kind: int, name: str, keys: list[str] | None = None) -> dict[str, Any]:
    return {entry.name: entry for entry in (await result(ask, kind, name, keys)).configs}


async def alter(ask: Ask, kind: int, name: str, *changes: tuple[str, int, str | None], check: bool = False) -> Any:
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
        ],
        validate_only=check,
    )
    return (await ask(request)).responses[0]


@pytest.fixture
async def own(own_broker: BrokerProcess) -> AsyncIterator[Ask]:
    """A broker whose configuration this test may change."""
    async with asking(own_broker) as function:
        yield function


async def test_a_topics_keys_are_shown_with_source_type_and_documentation(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name))
    await alter(ask, TOPIC, topic_name, ("segment.bytes", SET, "1000000"))
    found = await entries(ask, TOPIC, topic_name)
    assert found.keys() == TOPIC_KEYS.keys()
    changed_key = found["segment.bytes"]
    assert (changed_key.value, changed_key.config_source, changed_key.read_only) == ("1000000", TOPIC_CONFIG, False)
    assert [(s.name, s.value, s.source) for s in changed_key.synonyms] == [
        ("segment.bytes", "1000000", TOPIC_CONFIG),
        ("log.segment.bytes", "1073741824", DEFAULT),
    ]
    assert changed_key.config_type == 3
    assert changed_key.documentation
    assert found["retention.ms"].config_source == STATIC_BROKER
    assert found["segment.ms"].synonyms == []  # log.roll.ms is set nowhere
    assert found["cleanup.policy"].value == "delete"
    assert found["min.cleanable.dirty.ratio"].value == "0.5"


@pytest.mark.parametrize("version", range(1, 5))
async def test_every_version_shows_the_keys_asked_for(ask: Ask, topic_name: str, version: int) -> None:
    await create(ask, topic(topic_name))
    found = await result(ask, TOPIC, topic_name, ["retention.ms", "no.such.key"], version)
    assert [entry.name for entry in found.configs] == ["retention.ms"]


async def test_the_brokers_keys_are_shown_and_its_secrets_are_not(ask: Ask) -> None:
    found = await entries(ask, BROKER, "1")
    assert found["broker.id"].value == "1"
    assert found["broker.id"].read_only
    assert found["log.dirs"].config_source == STATIC_BROKER
    assert not found["message.max.bytes"].read_only
    assert found["ssl.keystore.password"].is_sensitive
    assert found["ssl.keystore.password"].value is None


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "never-created", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "99", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (77, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_cannot_be_described_says_why(ask: Ask, kind: int, name: str, code: ErrorCode) -> None:
    found = await result(ask, kind, name)
    assert found.error_code is code
    assert found.error_message


async def test_a_resource_named_often_is_shown_once_with_all_that_was_asked(ask: Ask) -> None:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    resources = [
        resource(resource_type=BROKER, resource_name="1", configuration_keys=[key])
        for key in ("broker.id", "log.dirs", "broker.id") * 1000
    ]
    (result,) = (await ask(DescribeConfigsRequest(resources=resources), 2)).results
    assert {entry.name for entry in result.configs} == {"broker.id", "log.dirs"}
    everything = resource(resource_type=BROKER, resource_name="1", configuration_keys=None)
    (result,) = (await ask(DescribeConfigsRequest(resources=[resources[0], everything, resources[1]]), 2)).results
    assert len(result.configs) > 100


@pytest.mark.parametrize("name", ["01", "+1", " 1", "1_0"])
async def test_a_broker_has_one_name(ask: Ask, name: str) -> None:
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER, resource_name=name, configuration_keys=None
    )
    (result,) = (await ask(DescribeConfigsRequest(resources=[asked]), 2)).results
    assert result.error_code is ErrorCode.INVALID_REQUEST


async def test_lists_can_be_appended_to_and_subtracted_from(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name))
    await alter(ask, TOPIC, topic_name, ("cleanup.policy", APPEND, "compact"))
    assert (await entries(ask, TOPIC, topic_name))["cleanup.policy"].value == "delete,compact"
    await alter(ask, TOPIC, topic_name, ("cleanup.policy", SUBTRACT, "delete"))
    assert (await entries(ask, TOPIC, topic_name))["cleanup.policy"].value == "compact"
    await alter(ask, TOPIC, topic_name, ("cleanup.policy", DELETE, None))
    assert (await entries(ask, TOPIC, topic_name))["cleanup.policy"].value == "delete"


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ([("retention.ms", SET, "soon")], ErrorCode.INVALID_CONFIG, "retention.ms"),
        ([("retention.ms", SET, "-2")], ErrorCode.INVALID_CONFIG, "at least -1"),
        ([("no.such.key", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown topic config name"),
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG, "append is not allowed"),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST, "Null value"),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], ErrorCode.INVALID_REQUEST, "duplicate config keys"),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST, "Unknown operation"),
        (
            [("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")],
            ErrorCode.INVALID_CONFIG,
            "min.compaction.lag.ms",
        ),
    ],
)
async def test_a_bad_change_is_refused_and_changes_nothing(
    ask: Ask, topic_name: str, changes: list[tuple[str, int, str | None]], code: ErrorCode, said: str
) -> None:
    await create(ask, topic(topic_name))
    refused = await alter(ask, TOPIC, topic_name, *changes)
    assert refused.error_code is code
    assert said in refused.error_message
    found = await entries(ask, TOPIC, topic_name)
    assert all(entry.config_source != TOPIC_CONFIG for entry in found.values())


async def test_an_empty_list_of_keys_asks_for_all_of_them(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name))
    assert (await entries(ask, TOPIC, topic_name, [])).keys() == TOPIC_KEYS.keys()
    assert list(await entries(ask, TOPIC, topic_name, ["retention.ms", "no.such.key"])) == ["retention.ms"]


async def test_validate_only_changes_nothing(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name))
    checked = await alter(ask, TOPIC, topic_name, ("retention.ms", SET, "5"), check=True)
    assert checked.error_code is ErrorCode.NONE
    assert (await entries(ask, TOPIC, topic_name))["retention.ms"].value == "-1"


async def test_alter_configs_replaces_all_overrides(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name))
    await alter(ask, TOPIC, topic_name, ("segment.bytes", SET, "1000000"))
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=topic_name,
        configs=[AlterConfigsRequest.AlterableConfig(name="retention.ms", value="77")],
    )
    answer = await ask(AlterConfigsRequest(resources=[resource], validate_only=False))
    assert answer.responses[0].error_code is ErrorCode.NONE
    found = await entries(ask, TOPIC, topic_name)
    assert found["retention.ms"].value == "77"
    assert found["segment.bytes"].config_source == DEFAULT


async def test_dynamic_broker_settings_hold_at_once_and_in_order(own: Ask) -> None:
    await alter(own, BROKER, "", ("log.segment.bytes", SET, "2000000"))
    await alter(own, BROKER, "1", ("log.segment.bytes", SET, "3000000"))
    shown = (await entries(own, BROKER, "1"))["log.segment.bytes"]
    assert (shown.value, shown.config_source) == ("3000000", DYNAMIC_BROKER)
    assert [(s.value, s.source) for s in shown.synonyms] == [
        ("3000000", DYNAMIC_BROKER),
        ("2000000", DYNAMIC_DEFAULT),
        ("1073741824", DEFAULT),
    ]
    defaults = await entries(own, BROKER, "")
    assert {name: entry.value for name, entry in defaults.items()} == {"log.segment.bytes": "2000000"}
    await create(own, topic("t"))
    assert (await entries(own, TOPIC, "t"))["segment.bytes"].value == "3000000"
    await alter(own, BROKER, "1", ("log.segment.bytes", DELETE, None))
    assert (await entries(own, TOPIC, "t"))["segment.bytes"].value == "2000000"


async def test_a_brokers_description_is_what_holds_now_in_the_form_that_was_asked_for(own: Ask) -> None:
    async def shown(**form: Any) -> Any:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=BROKER, resource_name="1", configuration_keys=None
        )
        (found,) = (await own(DescribeConfigsRequest(resources=[resource], **form), 4)).results
        return next(each for each in found.configs if each.name == "log.segment.bytes")

    bare = await shown(include_synonyms=False, include_documentation=False)
    assert (bare.value, bare.config_source, bare.synonyms, bare.documentation) == ("1073741824", DEFAULT, [], None)
    assert (await shown(include_synonyms=True, include_documentation=False)).synonyms
    assert (await shown(include_synonyms=False, include_documentation=True)).documentation
    for name, value, source in (("", "2000000", DYNAMIC_DEFAULT), ("1", "3000000", DYNAMIC_BROKER)):
        await alter(own, BROKER, name, ("log.segment.bytes", SET, value))
        now = await shown(include_synonyms=False, include_documentation=False)
        assert (now.value, now.config_source) == (value, source)
    await alter(own, BROKER, "1", ("log.segment.bytes", DELETE, None))
    assert (await shown(include_synonyms=False, include_documentation=False)).value == "2000000"


async def test_a_new_default_holds_for_every_topic_there_is_that_has_none_of_its_own(own: Ask) -> None:
    names = [f"there-{number}" for number in range(12)]
    for name in names:
        await create(own, topic(name))
    await alter(own, TOPIC, names[7], ("max.message.bytes", SET, "5000000"))

    async def code(name: str) -> ErrorCode:
        data = ProduceRequest.PartitionProduceData(
            index=0, records=one_batch(bytes(1000), timestamp=int(time.time() * 1000))
        )
        sent = ProduceRequest(
            acks=1,
            timeout_ms=5000,
            topic_data=[ProduceRequest.TopicProduceData(name=name, partition_data=[data])],
        )
        answer = await own(sent, 8)
        found: ErrorCode = answer.responses[0].partition_responses[0].error_code
        return found

    assert {await code(name) for name in names} == {ErrorCode.NONE}
    await alter(own, BROKER, "", ("message.max.bytes", SET, "500"))
    await asyncio.sleep(0.2)
    codes = {name: await code(name) for name in names}
    assert codes.pop(names[7]) is ErrorCode.NONE
    assert set(codes.values()) == {ErrorCode.MESSAGE_TOO_LARGE}


@pytest.mark.parametrize(
    ("name", "change", "code", "said"),
    [
        ("1", ("broker.rack", SET, "r"), ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically"),
        ("", ("node.id", SET, "99"), ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically"),
        ("", ("ssl.protocol", SET, "x"), ErrorCode.INVALID_REQUEST, "broker id must be specified"),
        ("", ("listener.name.a.ssl.protocol", SET, "x"), ErrorCode.INVALID_REQUEST, "broker id must be specified"),
        ("1", ("num.io.threads", SET, "100"), ErrorCode.INVALID_REQUEST, "double the current value"),
        ("1", ("message.max.bytes", SET, "-5"), ErrorCode.INVALID_REQUEST, "message.max.bytes"),
        ("2", ("message.max.bytes", SET, "5"), ErrorCode.INVALID_REQUEST, "Unexpected broker id"),
    ],
)
async def test_what_a_broker_cannot_change_is_refused(
    ask: Ask, name: str, change: tuple[str, int, str], code: ErrorCode, said: str
) -> None:
    refused = await alter(ask, BROKER, name, change)
    assert refused.error_code is code
    assert said in refused.error_message


async def test_levels_of_loggers_can_be_read_and_set(own: Ask) -> None:
    await alter(own, BROKER_LOGGER, "1", ("kbroker.network.server", SET, "DEBUG"))
    shown = (await entries(own, BROKER_LOGGER, "1"))["kbroker.network.server"]
    assert (shown.value, shown.config_source) == ("DEBUG", LOGGER)
    refused = await alter(own, BROKER_LOGGER, "1", ("kbroker.network.server", SET, "LOUD"))
    assert refused.error_code is ErrorCode.INVALID_CONFIG
    await alter(own, BROKER_LOGGER, "1", ("kbroker.network.server", DELETE, None))
    assert (await entries(own, BROKER_LOGGER, "1"))["kbroker.network.server"].value == "INFO"


def test_changes_start_from_what_is_set_or_from_nothing() -> None:
    present = {"retention.ms": "1", "segment.ms": "2"}
    change = [Change("retention.ms", SET, " 5 ")]
    assert changed(present, change, TOPIC_KEYS, keep=True) == {"retention.ms": "5", "segment.ms": "2"}
    assert changed(present, change, TOPIC_KEYS, keep=False) == {"retention.ms": "5"}
    with pytest.raises(KafkaError, match="subtract is not allowed"):
        changed(present, [Change("retention.ms", SUBTRACT, "1")], TOPIC_KEYS, keep=True)


def test_what_is_appended_to_a_list_stands_there_once() -> None:
    present = {"cleanup.policy": "delete"}
    change = [Change("cleanup.policy", APPEND, "compact, delete,compact")]
    assert changed(present, change, TOPIC_KEYS, keep=True) == {"cleanup.policy": "delete,compact"}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_a_long_list_is_not_gone_through_for_each_value_of_a_change(operation: int) -> None:
    comparisons = 0

    class Value(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal comparisons
            comparisons += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    stored = SimpleNamespace(type=ConfigType.LIST, parse=lambda text: tuple(map(Value, text.split(","))))
    others = ",".join(f"new-{number}" for number in range(500))
    change = [Change("list", operation, others)]
    changed({"list": ",".join(map(str, range(500)))}, change, {"list": stored}, keep=True)  # type: ignore[dict-item]
    assert comparisons < 1000


@pytest.mark.parametrize("value", ["0:1," * 8_200 + "0:1", "ä" * 16_400])
def test_what_a_value_becomes_is_never_longer_than_what_can_be_told(value: str) -> None:
    key = "leader.replication.throttled.replicas"
    for change in (Change(key, SET, value), Change(key, APPEND, value + ",1:1")):
        with pytest.raises(KafkaError, match=f"{key} would be longer than 32767 bytes") as refused:
            changed({key: ",".join(f"{number}:2" for number in range(5_000))}, [change], TOPIC_KEYS, keep=True)
        assert refused.value.code is ErrorCode.INVALID_CONFIG


async def test_a_list_grows_until_it_could_not_be_told_any_more(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name))
    key = "leader.replication.throttled.replicas"
    parts = [",".join(f"{number}:1" for number in range(start, start + 3_000)) for start in (10_000, 20_000)]
    assert (await alter(ask, TOPIC, topic_name, (key, APPEND, parts[0]))).error_code is ErrorCode.NONE
    assert (await alter(ask, TOPIC, topic_name, (key, APPEND, parts[1]))).error_code is ErrorCode.INVALID_CONFIG
    assert (await entries(ask, TOPIC, topic_name))[key].value == parts[0]


async def test_what_was_changed_through_another_broker_is_shown_before_this_one_has_heard_of_it(
    ask: Ask, topic_name: str, broker: BrokerProcess
) -> None:
    await create(ask, topic(topic_name))
    client = KazooClient(hosts=broker.properties["zookeeper.connect"])
    await asyncio.to_thread(client.start, 20)
    try:
        stored = json.dumps({"version": 1, "config": {"retention.ms": "4711"}}).encode()
        await asyncio.to_thread(client.set, f"/config/topics/{topic_name}", stored)  # and nobody is notified
        found = (await entries(ask, TOPIC, topic_name))["retention.ms"]
        assert (found.value, found.config_source) == ("4711", TOPIC_CONFIG)
    finally:
        await asyncio.to_thread(client.stop)
        client.close()


async def unreachable(*_: Any) -> Any:
    raise ZooKeeperError("it is not there")


async def test_a_topic_whose_stored_value_cannot_be_told_does_not_keep_others_from_being_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An administrator may have written it into ZooKeeper, or another release."""
    stored = {"leader.replication.throttled.replicas": ",".join(f"{number}:1" for number in range(10_000))}
    configs = SimpleNamespace(
        topic_overrides={"long": stored, "wrong": {"retention.ms": "soon" * 10_000}},
        topic_defaults=dict,
        broker_overrides={},
        default_overrides={},
        static=SimpleNamespace(properties={}),
    )
    names = ("before", "long", "wrong", "behind")
    services: Any = SimpleNamespace(broker_id=1, configs=configs, metadata=SimpleNamespace(topics=set(names)))
    services.zookeeper = SimpleNamespace(read_configs=unreachable)
    resource = DescribeConfigsRequest.DescribeConfigsResource
    request = DescribeConfigsRequest(
        resources=[resource(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in names]
    )
    context: Any = SimpleNamespace(api_version=4)
    results = told(await finished(describe_configs(services, context, request)), 4).results
    assert [(each.resource_name, each.error_code) for each in results] == [
        ("before", ErrorCode.NONE),
        ("long", ErrorCode.INVALID_CONFIG),
        ("wrong", ErrorCode.INVALID_CONFIG),
        ("behind", ErrorCode.NONE),
    ]
    assert [len(each.configs) for each in results] == [len(TOPIC_KEYS), 0, 0, len(TOPIC_KEYS)]
    assert "32767 are allowed" in results[1].error_message
    lines = [record for record in caplog.records if "cannot be told" in record.getMessage()]
    assert [record.exc_info for record in lines] == [None, None]


async def test_a_refusal_that_repeats_a_long_value_fits_into_its_answer(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name))
    refused = await alter(ask, TOPIC, topic_name, ("retention.ms", SET, "x" * 32_700))
    assert refused.error_code is ErrorCode.INVALID_CONFIG
    assert refused.error_message.startswith("Invalid value xxx")


async def test_more_changes_of_one_resource_than_there_are_keys_are_refused_unread(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name))
    changes = [(f"setting-{number}", SET, "1") for number in range(MOST_CHANGES + 1)]
    answer = await alter(ask, TOPIC, topic_name, *changes)
    assert answer.error_code is ErrorCode.INVALID_REQUEST
    assert str(MOST_CHANGES) in answer.error_message


JAAS = "listener.name.clients.plain.sasl.jaas.config"
ENTRY = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="hunter2";'


async def test_a_password_that_cannot_be_read_any_more_is_kept_until_it_is_named(
    make_broker: MakeBroker, zookeeper: ZooKeeperAddress
) -> None:
    broker = make_broker(properties={"password.encoder.secret": "first"})
    async with asking(broker) as ask:
        assert (await alter(ask, BROKER, "1", (JAAS, SET, ENTRY))).error_code is ErrorCode.NONE
    stored = await stored_overrides(zookeeper)
    assert ENTRY not in stored[JAAS]
    broker.stop()
    broker.properties["password.encoder.secret"] = "second"
    broker.start().wait_until_ready(30)
    async with asking(broker) as ask:
        assert (await alter(ask, BROKER, "1", ("num.io.threads", SET, "9"))).error_code is ErrorCode.NONE
        assert await stored_overrides(zookeeper) == {**stored, "num.io.threads": "9"}
        resource = AlterConfigsRequest.AlterConfigsResource(
            resource_type=BROKER,
            resource_name="1",
            configs=[AlterConfigsRequest.AlterableConfig(name="num.io.threads", value="10")],
        )
        await ask(AlterConfigsRequest(resources=[resource], validate_only=False))
        assert await stored_overrides(zookeeper) == {**stored, "num.io.threads": "10"}, "as Kafka's own tool alters"
        opened = [
            ("listeners", SET, f"PLAINTEXT://127.0.0.1:{broker.port},CLIENTS://127.0.0.1:0"),
            ("listener.security.protocol.map", SET, "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT"),
            ("listener.name.clients.sasl.enabled.mechanisms", SET, "PLAIN"),
        ]
        refused = await alter(ask, BROKER, "1", *opened)
        assert (refused.error_code, JAAS in refused.error_message) == (ErrorCode.INVALID_REQUEST, True)
        assert "cannot be read" in refused.error_message
        assert (await alter(ask, BROKER, "1", *opened, (JAAS, SET, ENTRY))).error_code is ErrorCode.NONE
        assert (await stored_overrides(zookeeper))[JAAS] != stored[JAAS]
    lines = [line for line in broker.log_file.read_text().splitlines() if JAAS in line and "stay" in line]
    assert len(lines) == 2, "one for each change of something else"


async def stored_overrides(zookeeper: ZooKeeperAddress) -> dict[str, str]:
    return await asyncio.to_thread(_stored_overrides, zookeeper.connect_string)


def _stored_overrides(connect: str) -> dict[str, str]:
    client = KazooClient(connect)
    client.start(timeout=30)
    try:
        found: dict[str, str] = json.loads(client.get("/config/brokers/1")[0])["config"]
        return found
    finally:
        client.stop()
        client.close()
