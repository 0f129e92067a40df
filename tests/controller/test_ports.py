"""The ports are served by what the broker plugs in."""

from kbroker.cluster import broker_channels
from kbroker.controller.ports import BrokerChannels
from tests.controller.fake_channels import FakeChannels


def test_the_brokers_channels_and_the_tests_fit_the_port() -> None:
    asked = {name for name in vars(BrokerChannels) if not name.startswith("_")}
    assert asked == {"add_broker", "remove_broker", "send", "waiting"}
    for served in (broker_channels.BrokerChannels, FakeChannels):
        assert asked <= set(vars(served))
