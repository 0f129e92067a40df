"""A cluster in clear text becomes a secured one, broker by broker, under load, with the lines of docs/security.md."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kbroker import Admin, Consumer, TopicPartition
from kbroker.dev.free_ports import free_ports
from kbroker.dev.secured import ADMIN, BETWEEN_BROKERS, Secured
from tests.faults.cluster_view import BROKERS, until
from tests.fixtures.kafka import KAFKA, KBROKER
from tests.fixtures.zookeeper import ZooKeeperAddress
from tests.mixed.cluster import MixedCluster
from tests.system.writers import ConfluentWriter, OurWriter, Writer, value_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
PATIENCE_S = 60.0
TOPIC = "t"


def lines_of(round_number: int) -> dict[str, str]:
    """The settings that the page names for a round."""
    (text,) = re.findall(rf"^### Round {round_number}:.*?\n(.*?)(?=^##|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return dict(re.findall(r"^    ([a-z._-]+[a-z0-9._-]*)=(.+)$", text, re.MULTILINE))


class Address:
    """Where a writer begins."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap


class SecuringCluster(MixedCluster):
    """Brokers that follow the page, each at a round of its own."""

    def __init__(self, folder: Path, connect_string: str, class_path: str) -> None:
        super().__init__(folder, connect_string, class_path)
        self.properties |= {"zookeeper.session.timeout.ms": "30000", "log.segment.bytes": "100000000"}
        self.secure_ports = dict(zip(BROKERS, free_ports(len(BROKERS)), strict=True))
        self.settings: dict[int, dict[str, str]] = {broker_id: {} for broker_id in BROKERS}
        self.secured = Secured(folder / "secure")
        self.secured.prepare(connect_string, int(1000 * PATIENCE_S))

    def properties_of(self, broker_id: int) -> Mapping[str, str]:
        return {**self.properties, **self.settings[broker_id]}

    def begin_round(self, number: int, broker_id: int) -> None:
        """Add the page's lines of a round to a broker's, with its own names in place of the page's."""
        own = {
            "broker1.example:9092": f"127.0.0.1:{self.ports[broker_id]}",
            "broker1.example:9093": f"127.0.0.1:{self.secure_ports[broker_id]}",
            "/etc/kbroker/broker1.pem": str(self.secured.folder / "broker.pem"),
            "/etc/kbroker/ca.pem": str(self.secured.folder / "authority.pem"),
            "…": self.secured._passwords[BETWEEN_BROKERS],
        }
        for key, value in lines_of(number).items():
            for sample, real in own.items():
                value = value.replace(sample, real)
            self.settings[broker_id][key] = value

    def roll(self, number: int, kinds: Mapping[int, str], after_each: Callable[[], None]) -> None:
        """Restart all brokers, one by one, for a round."""
        for broker_id in BROKERS:
            self.begin_round(number, broker_id)
            self.become(broker_id, kinds[broker_id])
            self.until_whole(TOPIC)
            after_each()

    @property
    def secure_bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.secure_ports.values())

    def client_settings(self) -> dict[str, Any]:
        """How our clients log in."""
        access = self.secured._access(ADMIN, "")
        return {
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(access.authority),
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": access.user,
            "sasl_password": access.password,
        }

    def librdkafka_settings(self) -> dict[str, str]:
        names = {"ssl_cafile": "ssl.ca.location"}
        return {names.get(key, key.replace("_", ".")): value for key, value in self.client_settings().items()}


def until_progress(*writers: Writer) -> None:
    """Wait until something that is sent from now on has arrived."""
    for writer in writers:
        until(_progress_of(writer, writer.sent), f"nothing of {writer.name} arrives", PATIENCE_S)
        assert not writer.errors, writer.errors


def _progress_of(writer: Writer, first: int) -> Callable[[], bool]:
    return lambda: bool(writer.errors) or any(number >= first for number in list(writer.acknowledged))


def finish(writer: Writer) -> None:
    writer.finish(PATIENCE_S)
    assert not writer.errors, (writer.name, writer.errors[:5])
    assert len(writer.acknowledged) == writer.sent


def everything(cluster: SecuringCluster) -> dict[int, list[bytes]]:
    """What all partitions hold, over TLS."""
    partitions = cluster.partitions(TOPIC)
    found: dict[int, list[bytes]] = {partition: [] for partition in partitions}
    with Consumer(cluster.secure_bootstrap, auto_offset_reset="earliest", **cluster.client_settings()) as consumer:
        keys = [TopicPartition(TOPIC, partition) for partition in partitions]
        consumer.assign(keys)
        ends = {key.partition: end for key, end in consumer.end_offsets(keys).items()}
        deadline = time.monotonic() + PATIENCE_S
        while any(len(found[partition]) < end for partition, end in ends.items()):
            assert time.monotonic() < deadline, {partition: len(values) for partition, values in found.items()}
            for record in consumer.poll(1.0):
                found[record.partition].append(bytes(record.value or b""))
    return found


def check(writer: Writer, stored: Mapping[int, list[bytes]]) -> None:
    """All that was sent is there once, in its order, where the writer was told."""
    for partition, values in stored.items():
        numbers = [number for number in range(writer.sent) if number % writer.partitions == partition]
        prefix = f"{writer.name}-".encode()
        assert [value for value in values if value.startswith(prefix)] == [value_of(writer.name, n) for n in numbers]


def secure(cluster: SecuringCluster, kinds: Mapping[int, str]) -> None:
    """Follow the page from its beginning to its end, with a writer in clear text and one that logs in."""
    cluster.start(kinds)
    cluster.create_topic(TOPIC)
    plain = OurWriter(Address(cluster.bootstrap), TOPIC, len(BROKERS))
    with plain:
        until_progress(plain)
        cluster.roll(1, kinds, lambda: until_progress(plain))
        logged_in = ConfluentWriter(Address(cluster.secure_bootstrap), TOPIC, len(BROKERS))
        logged_in.options = cluster.librdkafka_settings()
        with logged_in:
            cluster.roll(2, kinds, lambda: until_progress(plain, logged_in))
            finish(plain)  # the last client has gone over
            cluster.roll(3, kinds, lambda: until_progress(logged_in))
            finish(logged_in)
    stored = everything(cluster)
    for writer in (plain, logged_in):
        check(writer, stored)
    asking = Admin(cluster.bootstrap, request_timeout_ms=2000)
    with pytest.raises(OSError, match="Connect call failed"), asking:
        asking.describe_cluster()


@pytest.fixture
def make_cluster_to_secure(tmp_path: Path, zookeeper: ZooKeeperAddress) -> Iterator[Callable[..., SecuringCluster]]:
    made: list[SecuringCluster] = []

    def make(class_path: str = "") -> SecuringCluster:
        made.append(SecuringCluster(tmp_path, zookeeper.connect_string, class_path))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


def test_the_page_has_three_rounds_and_the_last_one_ends_clear_text() -> None:
    rounds = [lines_of(number) for number in (1, 2, 3)]
    assert [len(lines) for lines in rounds] == [9, 1, 5]
    assert "PLAINTEXT" in rounds[0]["listeners"]
    assert "PLAINTEXT" not in rounds[2]["listeners"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_is_lost_while_a_cluster_becomes_a_secured_one(
    make_cluster_to_secure: Callable[..., SecuringCluster],
) -> None:
    secure(make_cluster_to_secure(), dict.fromkeys(BROKERS, KBROKER))


@pytest.mark.compat
@pytest.mark.timeout(900)
@pytest.mark.parametrize("java", BROKERS)
def test_nothing_is_lost_while_a_cluster_with_a_broker_of_kafkas_becomes_a_secured_one(
    make_cluster_to_secure: Callable[..., SecuringCluster], kafka_class_path: str, java: int
) -> None:
    kinds = {broker_id: KAFKA if broker_id == java else KBROKER for broker_id in BROKERS}
    secure(make_cluster_to_secure(kafka_class_path), kinds)
