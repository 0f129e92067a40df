"""A broker's scrubber follows its configuration while it runs, and ends with it."""

from kbroker import Admin
from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.replica.test_segment_mender import files, fill, flip, until


def test_scrubbing_is_switched_on_and_off_while_the_broker_runs(own_broker: BrokerProcess, topic_name: str) -> None:
    fill(own_broker.bootstrap, topic_name, 1)
    with Admin(own_broker.bootstrap) as admin:
        admin.alter_configs("broker", "", {"log.scrub.interval.ms": "0"})
        until(lambda: "dynamic configuration changed" in own_broker.log_tail(100), lambda: "it hears of it")
        flip(files(own_broker, topic_name)[1], 2)
        assert "damaged: " not in own_broker.log_tail(1000)
        admin.alter_configs("broker", "", {"log.scrub.interval.ms": "200"})
        until(lambda: "damaged: " in own_broker.log_tail(1000), lambda: own_broker.log_tail(20))
    assert own_broker.stop() == 0
    assert "Traceback" not in own_broker.log_tail(1000)
