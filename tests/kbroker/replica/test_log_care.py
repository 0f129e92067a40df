"""A broker's scrubber follows its configuration while it runs, and ends with it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kbroker import Admin
from kbroker.dev.broker_process import BrokerProcess
from kbroker.replica.log_care import LogCare
from kbroker.segment.scrubber import LogScrubber
from tests.kbroker.replica.test_segment_mender import files, fill, flip, until
from tests.segment.compaction import put
from tests.segment.test_cleaner import managed
from tests.segment.test_scrubber import PLAIN, filled


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


def test_damage_is_not_mended_by_a_truncation_elsewhere_in_the_log(tmp_path: Path) -> None:
    manager = managed(tmp_path, "orders", config=PLAIN)
    log = manager.logs["orders", 0]
    filled(log)
    put(log, ("key", "value"))
    damaged = log.segments[0]
    flip(log.directory / damaged.file.name, 0)
    (damage,) = LogScrubber(manager).scrub_all()
    care: Any = SimpleNamespace(mender=SimpleNamespace(busy_with={damaged}))
    assert LogCare.state_of(care, damage) == "mending"
    care.mender.busy_with.clear()
    log.truncate_to(log.log_end_offset - 1)
    assert LogCare.state_of(care, damage) == "damaged"
    log.truncate_to(0)
    assert LogCare.state_of(care, damage) == "mended"
    manager.shutdown()
