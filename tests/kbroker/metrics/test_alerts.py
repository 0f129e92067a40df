"""The rules of docs/alerts.yml: quiet while all is well, and loud once what they are for has been brought about."""

from __future__ import annotations

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker import Admin, Producer
from kbroker.handlers.produce import produce
from kbroker.metrics import cluster, coordinators, gathering, network, replicas
from kbroker.metrics.families import FAMILIES
from kbroker.network.watchdog import Watchdog
from tests.fixtures.brokers import MakeCluster, kill_and_expire
from tests.fixtures.copies import Copies
from tests.fixtures.data_path import TOPIC, Played, one_batch
from tests.kbroker.handlers.test_produce import request_for
from tests.kbroker.metrics.rules import evaluate, fires, rules
from tests.kbroker.metrics.scraping import DEADLINE_S, Scraped, addresses, collected, scrape, sources_of, watch
from tests.kbroker.metrics.test_cluster import controller
from tests.kbroker.metrics.test_coordinators import group, parts
from tests.kbroker.metrics.test_network import idle_server, zookeeper
from tests.segment.batches import batch


def test_rules_ask_for_metrics_that_are_served_and_say_what_to_do() -> None:
    assert gathering.COLLECTORS
    for name, rule in rules().items():
        asked = set(re.findall(r"\b(?:kafka|kbroker)_\w+", rule["expr"]))
        assert asked <= set(FAMILIES), name
        assert set(rule["annotations"]) == {"summary", "action"}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a > 1", {frozenset({("x", "2")}): 3.0}),
        ('a{x="1"} == 1', {frozenset({("x", "1")}): 1.0}),
        ("sum(a) == 4", {frozenset(): 4.0}),
        ("sum(a) != 4", {}),
        ("a / b < 2", {frozenset({("x", "1")}): 0.5, frozenset({("x", "2")}): 1.5}),
        ("sum by (x) (delta(a[1m])) > 0 and a > 2", {frozenset({("x", "2")}): 4.0}),
        ("increase(c_total[1m])", {frozenset(): 8.0}),
        ("rate(c_total[1m])", {frozenset(): 4 / 30}),
    ],
)
def test_expressions_give_what_prometheus_gives(expression: str, expected: dict[Any, float]) -> None:
    before = Scraped('a{x="1"} 1\na{x="2"} 1\n# TYPE c_total counter\nc_total 10\n')
    restarted = Scraped("# TYPE c_total counter\nc_total 1\n")
    now = Scraped('a{x="1"} 1\na{x="2"} 3\nb{x="1"} 2\nb{x="2"} 2\n# TYPE c_total counter\nc_total 4\n')
    found = evaluate(expression, ((0.0, before), (15.0, restarted), (30.0, now)))
    assert found == {labels: pytest.approx(value) for labels, value in expected.items()}


def until_it_is(fired: bool, name: str, *brokers: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while bool(fires(name, (0.0, scrape(*brokers)))) is not fired:
        assert time.monotonic() < deadline, f"{name} never {'fired' if fired else 'was quiet'}"
        time.sleep(0.2)


def test_a_broker_that_dies_leaves_partitions_under_replicated_and_its_own_offline(
    make_cluster: MakeCluster, topic_name: str
) -> None:
    brokers = make_cluster(2, properties={"metrics.listeners": "HTTP://127.0.0.1:0"}).brokers
    with Admin(brokers[0].bootstrap) as admin:
        admin.create_topic(f"{topic_name}-two", partitions=2, replication_factor=2)
        admin.create_topic(f"{topic_name}-one", partitions=2, replication_factor=1)
    with Producer(brokers[0].bootstrap, acks="all") as producer:
        for partition in (0, 1):
            producer.send_and_wait(f"{topic_name}-two", b"x", partition=partition)
    for name in ("NoController", "OfflinePartitions", "UnderReplicatedPartitions", "UnderMinIsr"):
        until_it_is(False, name, *brokers)  # a machine that is busy may cost a broker its session for a moment
    targets = addresses(brokers)
    assert fires("BrokerGone", (0.0, watch(*targets))) == {}
    kill_and_expire(brokers[1])
    ((gone, _),) = fires("BrokerGone", (0.0, watch(*targets))).items()
    assert ("instance", "1") in gone
    for name in ("OfflinePartitions", "UnderReplicatedPartitions"):
        until_it_is(True, name, brokers[0])


async def test_no_controller_or_two_of_them_is_told(played: Played) -> None:
    told = {
        is_active: collected(cluster.collect, sources_of(played, controller=controller(is_active)))
        for is_active in (True, False)
    }
    assert not fires("NoController", (0.0, told[True]))
    assert fires("NoController", (0.0, told[False]))


async def test_a_disk_that_is_nearly_full_is_told_with_its_directory(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimpleNamespace(f_blocks=1000, f_frsize=4096, f_bavail=101)
    monkeypatch.setattr("kbroker.metrics.replicas.os.statvfs", lambda path: disk)
    assert not fires("DiskNearlyFull", (0.0, collected(replicas.collect, sources_of(played))))
    disk.f_bavail = 99
    fired = fires("DiskNearlyFull", (0.0, collected(replicas.collect, sources_of(played))))
    assert [dict(labels)["directory"] for labels in fired] == played.logs.directories


async def test_a_directory_that_fails_is_told(tmp_path: Path) -> None:
    played = Played(tmp_path, more_dirs=["second"])
    assert not fires("LogDirectoryOffline", (0.0, collected(replicas.collect, sources_of(played))))
    played.logs.mark_offline(played.logs.directories[1], OSError(5, "it is gone"))
    assert fires("LogDirectoryOffline", (0.0, collected(replicas.collect, sources_of(played))))
    await played.close()


async def test_a_group_that_falls_behind_is_told_and_one_that_keeps_up_is_not(played: Played) -> None:
    await played.lead()
    values = [b"x"] * 400

    def scraped(committed: int) -> Scraped:
        for _ in range(3):
            produce(played.services, played.ctx(9), request_for((0, one_batch(*values))))
        groups = (group("slow", orders_0=100), group("quick", orders_0=committed))
        return collected(coordinators.collect, sources_of(played, **parts(*groups)))

    first, second = scraped(1200), scraped(2400)
    fired = fires("LagGrows", (0.0, first), (300.0, second))
    assert [dict(labels) for labels in fired] == [{"consumergroup": "slow", "topic": TOPIC}]
    assert not fires("LagGrows", (0.0, second), (300.0, second)), "it is far behind, and stays so"


def test_a_loop_that_is_held_up_is_told(played: Played) -> None:
    watchdog = Watchdog()
    server = idle_server()
    sources = sources_of(played, server=server, zookeeper=zookeeper(), workers=played.replicas.workers)
    sources.watchdog = watchdog
    before = collected(network.collect, sources)
    watchdog.stalled_s += 14
    below = collected(network.collect, sources)
    watchdog.stalled_s += 2
    above = collected(network.collect, sources)
    assert not fires("LoopHeldUp", (0.0, before), (299.0, below))
    assert fires("LoopHeldUp", (0.0, before), (299.0, above))


async def test_a_session_that_expired_is_told_once(played: Played) -> None:
    server = idle_server()
    keeper = zookeeper()
    sources = sources_of(played, server=server, zookeeper=keeper, workers=played.replicas.workers)
    before = collected(network.collect, sources)
    keeper.events["Expired"] += 1
    after = collected(network.collect, sources)
    assert not fires("ZooKeeperSessionLost", (0.0, before), (60.0, before))
    assert fires("ZooKeeperSessionLost", (0.0, before), (60.0, after))


async def test_a_transaction_that_nobody_ends_is_told(played: Played) -> None:
    await played.lead()
    written = batch(timestamp=1_000, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    played.logs.logs[TOPIC, 0].append_as_leader(written, 0, played.now)
    assert not fires("TransactionHangs", (0.0, collected(replicas.collect, sources_of(played))))
    played.now += played.config.transaction_max_timeout_ms + replicas.LATE_MS
    assert fires("TransactionHangs", (0.0, collected(replicas.collect, sources_of(played))))


async def test_logins_that_are_refused_are_told_with_their_listener(played: Played) -> None:
    server = idle_server(CLIENTS=9092, BROKERS=9093)
    sources = sources_of(played, server=server, zookeeper=zookeeper(), workers=played.replicas.workers)
    before = collected(network.collect, sources)
    server.logins["BROKERS"].failed += 250
    server.logins["CLIENTS"].failed += 350
    after = collected(network.collect, sources)
    assert [dict(labels) for labels in fires("LoginsRefused", (0.0, before), (299.0, after))] == [
        {"listener": "CLIENTS"}
    ]


async def test_too_few_in_sync_is_told(copies: Copies) -> None:
    await copies.elect(1, isr=(1,), is_new=True)
    sources = sources_of(copies.brokers[1])
    hosted = copies.hosted(1)
    hosted.state.min_insync_replicas = 1
    assert not fires("UnderMinIsr", (0.0, collected(replicas.collect, sources)))
    hosted.state.min_insync_replicas, hosted.state.isr = 2, (1,)
    assert fires("UnderMinIsr", (0.0, collected(replicas.collect, sources)))


async def test_a_leader_out_of_sync_is_told(played: Played) -> None:
    elections = controller(True)
    sources = sources_of(played, controller=elections)
    before = collected(cluster.collect, sources)
    elections.unclean_elections += 1
    after = collected(cluster.collect, sources)
    assert not fires("UncleanLeaderElection", (0.0, before), (60.0, before))
    assert fires("UncleanLeaderElection", (0.0, before), (60.0, after))


def test_each_rule_is_provoked_by_a_test_here() -> None:
    tests = Path(__file__).read_text()
    assert [name for name in rules() if f'"{name}"' not in tests] == []
