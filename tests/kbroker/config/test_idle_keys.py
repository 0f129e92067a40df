"""What is set while a broker runs, and has no effect: said in its log."""

import pytest

from tests.kbroker.config.test_dynamic_config import Store, dynamic


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for record in caplog.records if "without effect" in (line := record.getMessage())]


async def test_keys_without_effect_that_are_set_while_a_broker_runs_are_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    store.nodes["brokers", "<default>"] = {"num.network.threads": "3", "log.retention.ms": "5"}
    store.nodes["brokers", "1"] = {"metric.reporters": "a.B", "listener.name.plaintext.ssl.protocol": "TLSv1.3"}
    configs = dynamic(store)
    await configs.load()
    assert said(caplog) == [
        "num.network.threads: set for all brokers, but without effect here",
        "listener.name.plaintext.ssl.protocol, metric.reporters: set for broker 1, but without effect here",
    ]
    store.nodes["brokers", "<default>"]["log.preallocate"] = "true"
    store.nodes["brokers", "1"]["log.segment.bytes"] = "5000"
    for entity in ("<default>", "1"):
        await configs.refresh("brokers", entity)
    assert said(caplog)[2:] == ["log.preallocate: set for all brokers, but without effect here"]


async def test_topics_keys_without_effect_are_named_once_however_many_topics_have_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    for number in range(5):
        store.nodes["topics", f"t{number}"] = {"preallocate": "true", "retention.ms": "5"}
    configs = dynamic(store)
    await configs.load()
    assert said(caplog) == ["preallocate: set for t0, t1, t2 and 2 more, but without effect here"]
    store.nodes["topics", "t1"] = {"preallocate": "false", "local.retention.ms": "5"}
    await configs.refresh("topics", "t1")
    store.nodes["topics", "new"] = {"message.downconversion.enable": "false"}
    await configs.load_topics(["new", "t2"])
    assert said(caplog)[1:] == [
        "local.retention.ms: set for t1, but without effect here",
        "message.downconversion.enable: set for new, but without effect here",
    ]
