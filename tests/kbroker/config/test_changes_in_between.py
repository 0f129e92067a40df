"""Changes that come while something else goes on: a session ends, a start takes long, a thread is late."""

from typing import Any

import pytest

from kbroker.config.broker_config import read_broker_config
from kbroker.controller.change_notifications import EXPIRY_MS
from kbroker.controller.znode_operations import SessionExpired
from kbroker.segment.log_config import LogConfig
from tests.kbroker.config.test_dynamic_config import Store, dynamic


class Expiring(Store):
    """Whose sessions end in the middle of a question."""

    def __init__(self, sessions: int) -> None:
        super().__init__()
        self.sessions = sessions

    async def read_configs(self, kind: str, entities: list[str]) -> dict[str, dict[str, str]]:
        self.sessions -= 1
        if self.sessions >= 0:
            raise SessionExpired("the ZooKeeper session is over")
        return await super().read_configs(kind, entities)


async def test_what_a_new_topic_is_configured_to_is_asked_again_when_the_session_ends() -> None:
    store = Expiring(sessions=2)
    store.nodes["topics", "t"] = {"cleanup.policy": "compact"}
    configs = dynamic(store)
    await configs.load_topics(["t"])
    assert configs.topic_config("t").is_compacted


class Lagging(Store):
    """A server that has not heard yet what the others have agreed on."""

    is_behind = True

    async def sync(self) -> None:
        self.is_behind = False

    async def read_configs(self, kind: str, entities: list[str]) -> dict[str, dict[str, str]]:
        return {} if self.is_behind else await super().read_configs(kind, entities)


async def test_a_new_topics_log_is_made_with_its_settings_though_the_server_one_asks_lags_behind() -> None:
    store = Lagging()
    store.nodes["topics", "t"] = {"cleanup.policy": "compact"}
    configs = dynamic(store)
    await configs.load_topics(["t"])
    assert configs.topic_config("t").is_compacted


async def test_a_broker_that_stops_does_not_ask_for_new_topics_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    configs = dynamic(Expiring(sessions=1_000_000))
    await configs.load_topics(["t"])
    assert "overrides of new topics not read" in caplog.text


async def test_what_changed_during_a_long_start_is_read_anew_though_nobody_tells_of_it_any_more() -> None:
    store = Store()
    store.nodes["topics", "t"] = {"retention.ms": "7"}
    store.nodes["topics", "gone"] = {"retention.ms": "7"}
    configs = dynamic(store)
    await configs.load()
    told: list[Any] = []
    configs.on_topic_change = told.append
    store.nodes["topics", "t"] = store.nodes["topics", "new"] = {"retention.ms": "8"}
    del store.nodes["topics", "gone"]
    store.nodes["brokers", "1"] = {"num.io.threads": "9"}
    await configs.watch()
    assert told == []
    configs._loaded_at -= EXPIRY_MS / 1000
    await configs.watch()
    assert told == ["gone", "new", "t"]
    assert configs.topic_config("t").retention_ms == 8
    assert configs.broker.num_io_threads == 9


@pytest.mark.parametrize("of", ["the topic", "all topics"])
async def test_a_change_holds_though_a_thread_is_late_to_put_down_what_was_before(
    of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store()
    store.nodes["topics", "t"] = {"retention.ms": "7"} if of == "the topic" else {}
    configs = dynamic(store)
    await configs.load()
    resolve = configs._resolve_topic
    late: list[LogConfig] = []

    def resolved_late(*arguments: Any) -> LogConfig:
        """The loop takes a change over between a thread's reading and its writing."""
        config = resolve(*arguments)
        if not late:
            late.append(config)
            if of == "the topic":
                configs._take_topics({"t": {"retention.ms": "8"}})
            else:
                configs.broker = read_broker_config({"zookeeper.connect": "z:1", "log.retention.ms": "8"})
        return config

    monkeypatch.setattr(configs, "_resolve_topic", resolved_late)
    configs.topic_config("t")
    assert configs.topic_config("t").retention_ms == 8
