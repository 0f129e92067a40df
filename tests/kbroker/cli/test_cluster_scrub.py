"""`kbroker cluster scrub` on real brokers, and its rows alone."""

import json

import pytest

from kbroker import Admin
from kbroker.cli.cluster_scrub import damage_rows, row
from kbroker.client.types import DamagedSegment, Scrub
from kbroker.dev.broker_process import BrokerProcess
from tests.fixtures.brokers import MakeCluster, kill_and_expire
from tests.kbroker.cli.commands import fail, kbroker, succeed
from tests.kbroker.replica.test_segment_mender import contents, files, fill, flip, until

NO_ROUNDS = {"log.scrub.interval.ms": "0", "min.insync.replicas": "1", "log.scrub.max.bytes.per.second": "1e9"}


@pytest.mark.slow
def test_healthy_logs_are_read_whole_and_all_is_good(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)
    fill(broker.bootstrap, topic_name, 1)
    closed = files(broker, topic_name)[:-1]
    told = json.loads(succeed("cluster", "scrub", "--topic", topic_name, "--format", "json"))
    assert told["damages"] == []
    (shown,) = told["brokers"]
    assert shown == {
        "broker": 1,
        "segments": len(closed),
        "bytes": sum(each.stat().st_size for each in closed),
        "damaged": 0,
        "mended": 0,
        "state": "good",
    }
    assert "good" in succeed("cluster", "scrub", "--topic", f"{topic_name}:0", "--broker", "1")
    wide = succeed("cluster", "scrub", "--topic", topic_name, "--format", "wide")
    assert (wide.split()[0].lower(), "damages" in wide) == ("broker", False)


def test_damage_is_shown_and_mended_and_is_the_exit_status(make_cluster: MakeCluster, topic_name: str) -> None:
    cluster = make_cluster(2, properties=NO_ROUNDS)
    fill(cluster.bootstrap, topic_name, 2)
    first, second = cluster.brokers
    until(lambda: contents(first, topic_name) == contents(second, topic_name), lambda: "copied")
    good = contents(second, topic_name)
    file = files(second, topic_name)[1]
    position = flip(file, 2)
    done = kbroker("cluster", "scrub", "-b", cluster.bootstrap, "--format", "json")
    assert done.returncode == 1
    assert done.stderr == "kbroker: 1 damaged segment found\n"
    told = json.loads(done.stdout)
    assert [(each["broker"], each["state"], each["mended"]) for each in told["brokers"]] == [
        (1, "good", 0),
        (2, "damaged", 1),
    ]
    (damage,) = told["damages"]
    assert (damage["broker"], damage["file"], damage["position"]) == (2, f"{topic_name}-0/{file.name}", position)
    assert damage["log_dir"] == str(second.log_dir)
    assert contents(second, topic_name) == good
    assert "good" in succeed("cluster", "scrub", "-b", cluster.bootstrap)


def test_a_broker_that_is_not_there_is_no_healthy_one(broker: BrokerProcess) -> None:
    assert "broker 77: it is not there" in fail("cluster", "scrub", "-b", broker.bootstrap, "--broker", "77")


@pytest.mark.slow
def test_replicas_of_a_broker_that_is_down_are_not_checked_and_that_is_said(
    make_cluster: MakeCluster, topic_name: str
) -> None:
    cluster = make_cluster(2, properties=NO_ROUNDS)
    first, second = cluster.brokers
    with Admin(first.bootstrap) as admin:
        admin.create_topic(f"{topic_name}-1", assignments={0: [1]})
        admin.create_topic(f"{topic_name}-2", assignments={0: [1], 1: [2]})
        kill_and_expire(second)
        until(lambda: [each.id for each in admin.describe_cluster().brokers] == [1], lambda: "known to be down")
    at = ("-b", first.bootstrap)
    for chosen in ((), ("--topic", f"{topic_name}-2"), ("--topic", f"{topic_name}-2:1")):
        done = kbroker("cluster", "scrub", *at, *chosen)
        assert (done.returncode, done.stderr) == (1, "kbroker: broker 2: it is not there\n")
    for chosen in (("--topic", f"{topic_name}-1"), ("--topic", f"{topic_name}-2:0"), ("--broker", "1")):
        assert "good" in succeed("cluster", "scrub", *at, *chosen)


def test_a_topic_that_is_not_there_is_said_so(broker: BrokerProcess) -> None:
    assert "nowhere" in fail("cluster", "scrub", "-b", broker.bootstrap, "--topic", "nowhere")


def test_who_does_not_scrub_has_read_nothing_and_what_was_given_up_is_not_good() -> None:
    assert row(3, None) == {
        "broker": 3,
        "segments": None,
        "bytes": None,
        "damaged": None,
        "mended": None,
        "state": "not scrubbed",
    }
    damage = DamagedSegment(3, "t", 4, "/logs", 50, 1000, 57, 90, "damaged", "it rots")
    scrub = Scrub(3, True, 10, 4, 500, 200, (damage,))
    assert (row(3, scrub)["state"], row(3, scrub)["damaged"]) == ("not whole", 1)
    (shown,) = damage_rows([None, scrub])
    assert (shown["file"], shown["offset"], shown["why"]) == ("t-4/00000000000000000050.log", 57, "it rots")
