"""The page on a broker of Kafka's: what its own tests click, search, move and watch on one of ours."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

import pytest

from tests.fixtures.kafka import JavaBroker
from tests.kbroker.page import conftest, test_browser
from tests.kbroker.page.visiting import visiting

pytestmark = [pytest.mark.compat, pytest.mark.timeout(600)]

page, browser, topic = test_browser.page, test_browser.browser, test_browser.topic
patient = conftest._patient
MODULES = (
    "test_access_views",
    "test_browser",
    "test_facts",
    "test_group_reset",
    "test_group_views",
    "test_lags",
    "test_message_views",
    "test_overview_views",
    "test_rates",
    "test_scan",
    "test_topic_change_views",
    "test_topic_views",
)
OURS_ALONE = {"test_members_and_the_story_of_a_rebalance_are_told"}


@pytest.fixture(scope="session")
def broker(kafka_broker: JavaBroker) -> JavaBroker:
    """Instead of one of ours."""
    return kafka_broker


def of(module: ModuleType) -> dict[str, object]:
    """Return a module's tests that need a broker of any kind, and change nothing of it."""
    return {
        name: test
        for name, test in vars(module).items()
        if name.startswith("test_")
        and name not in OURS_ALONE
        and {"broker", "page"} & set(inspect.signature(test).parameters)
    }


for module in MODULES:
    globals().update(of(importlib.import_module(f"tests.kbroker.page.{module}")))


async def test_what_a_broker_of_kafka_does_not_tell_is_left_out(kafka_broker: JavaBroker) -> None:
    async with visiting(kafka_broker.bootstrap) as visitor:
        for path in ("/", "/topics", "/map", "/groups", "/transactions", "/access"):
            assert "Traceback" not in await visitor.see(path)
