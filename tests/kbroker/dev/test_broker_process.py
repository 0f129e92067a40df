"""One broker as a child: its files, how it ends, what is said about that."""

import signal
from pathlib import Path

import pytest

from kbroker.dev.broker_process import BrokerFailed, BrokerProcess, properties_text
from kbroker.dev.free_ports import free_ports
from tests.fixtures.brokers import MakeBroker

pytestmark = pytest.mark.usefixtures("brokers_as_users_start_them")


def test_a_started_broker_serves_at_its_port_with_its_data_in_its_directory(own_broker: BrokerProcess) -> None:
    info = own_broker.ready_info()
    assert (info["id"], info["port"], info["pid"]) == (1, own_broker.port, own_broker.pid)
    assert [Path(path) for path in info["log_dirs"]] == own_broker.log_dirs
    assert (own_broker.log_dir / "meta.properties").exists()
    assert own_broker.bootstrap == f"127.0.0.1:{own_broker.port}"


def test_a_stopped_broker_ends_with_status_0_and_starts_again_on_its_data(own_broker: BrokerProcess) -> None:
    identity = (own_broker.log_dir / "meta.properties").read_text()
    port = own_broker.port
    assert own_broker.stop() == 0
    assert not own_broker.ready_info()
    own_broker.restart()
    assert own_broker.port == port
    assert (own_broker.log_dir / "meta.properties").read_text() == identity


def test_a_killed_broker_is_told_apart_from_a_ready_one(own_broker: BrokerProcess) -> None:
    own_broker.send_signal(signal.SIGKILL)
    own_broker.wait(60)
    assert not own_broker.is_ready
    assert "broker 1 was ended by SIGKILL" in own_broker.why_it_ended()


def test_a_broker_that_cannot_start_is_reported_with_the_end_of_its_log(make_broker: MakeBroker) -> None:
    with pytest.raises(BrokerFailed, match=r"(?s)broker 1 ended with status 1.*no.such.codec") as raised:
        make_broker(properties={"compression.type": "no.such.codec"})
    assert "Traceback" not in str(raised.value)


def test_a_broker_that_is_too_slow_is_reported(make_broker: MakeBroker) -> None:
    process = make_broker(zookeeper_connect=f"127.0.0.1:{free_ports(1)[0]}", wait=False)
    with pytest.raises(BrokerFailed, match=r"was not ready within 0\.5 s"):
        process.wait_until_ready(0.5)


def test_properties_are_written_as_java_reads_them() -> None:
    text = properties_text({"log.dirs": "C:\\data", "a": " b\n\tc", "name": "Zürich 🛫"})
    assert text == "log.dirs=C:\\\\data\na=\\ b\\n\\tc\nname=Z\\u00fcrich \\ud83d\\udeeb\n"
