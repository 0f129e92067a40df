"""Partitions, leaders and offsets, asked without an event loop."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.client.plain_cluster import PlainCluster
from kbroker.client.plain_connection import PlainConnection
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.log_dirs import DescribeLogDirsResponse
from kbroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kbroker.protocol.messages.offsets import EARLIEST, LATEST
from kbroker.protocol.schema import Message
from tests.fixtures.brokers import MakeCluster, kill_and_expire
from tests.kbroker.client.topics import create_topic, produce_values


def test_partitions_and_offsets_of_a_topic(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=2)
    produce_values(broker.bootstrap, topic_name, 1, [b"a", b"b", b"c"], timestamp_ms=1_000)
    with PlainCluster(broker.bootstrap) as cluster:
        places = cluster.partitions([topic_name])
        assert places == {(topic_name, 0), (topic_name, 1)}
        assert cluster.offsets(places, EARLIEST) == {(topic_name, 0): 0, (topic_name, 1): 0}
        assert cluster.offsets(places, LATEST) == {(topic_name, 0): 0, (topic_name, 1): 3}
        assert cluster.offsets([(topic_name, 1)], 1_001) == {(topic_name, 1): 1}
        assert topic_name in cluster.topics()
        assert cluster.partition_count(topic_name) == 2


def test_an_unknown_topic_is_told_at_once_and_not_created(broker: BrokerProcess, topic_name: str) -> None:
    with PlainCluster(broker.bootstrap) as cluster:
        with pytest.raises(KafkaError, match=topic_name) as refusal:
            cluster.partitions([topic_name])
        assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert cluster.partition_count(topic_name) == 0
        assert topic_name not in cluster.topics()


def test_a_bootstrap_address_that_is_none_is_refused() -> None:
    for wrong, said in (("h:70000", "host:port"), ("", "is needed"), ("h:x", "host:port")):
        with pytest.raises(ValueError, match=said):
            PlainCluster(wrong)


def test_no_broker_there_names_every_address_tried() -> None:
    cluster = PlainCluster("127.0.0.1:1,127.0.0.1:2", retry_for=0)
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2"):
        cluster.partitions(["t"])


def test_a_broker_that_knows_nobody_is_not_believed_that_there_is_no_topic(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of Kafka's that has just started answers before the controller has told it of brokers and topics."""
    create_topic(broker.bootstrap, topic_name, partitions=1)
    knows_nobody = MetadataResponse(brokers=[], topics=[])
    answers = [knows_nobody, knows_nobody]
    own = PlainConnection.request

    def request(self: PlainConnection, message: Message, *how: Any) -> Any:
        return answers.pop() if answers and isinstance(message, MetadataRequest) else own(self, message, *how)

    monkeypatch.setattr(PlainConnection, "request", request)
    with PlainCluster(broker.bootstrap, retry_for=60) as cluster:
        assert cluster.partitions([topic_name]) == {(topic_name, 0)}
        assert not answers
    answers.append(knows_nobody)
    with (
        PlainCluster(broker.bootstrap, retry_for=0) as cluster,
        pytest.raises(ConnectionError, match=rf"{broker.bootstrap}: it knows of no broker"),
    ):
        cluster.partitions([topic_name])


@pytest.mark.slow
def test_a_broker_that_takes_connections_and_is_silent_is_asked_once(broker: BrokerProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        addresses = f"127.0.0.1:{silent.getsockname()[1]},{broker.bootstrap}"
        with PlainCluster(addresses, {"connect_timeout_ms": 5_000}, retry_for=30) as cluster:
            cluster.topics()
            # From now on it is a broker of the cluster, too, and the first one; the coordinators are asked for as well.
            cluster._brokers = {0: silent.getsockname(), **cluster._brokers}
            cluster.commit("nobody's", {})
        silent.accept()[0].close()
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_a_broker_that_comes_back_is_found_again(own_broker: BrokerProcess, topic_name: str) -> None:
    create_topic(own_broker.bootstrap, topic_name, partitions=1)
    with PlainCluster(own_broker.bootstrap, retry_for=30) as cluster:
        assert cluster.offsets([(topic_name, 0)], LATEST) == {(topic_name, 0): 0}
        kill_and_expire(own_broker)
        own_broker.start()
        offsets: dict[Any, int] = cluster.offsets([(topic_name, 0)], LATEST)
        assert offsets == {(topic_name, 0): 0}


def test_sizes_are_those_of_the_logs_and_ids_those_of_the_topics(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=2)
    produce_values(broker.bootstrap, topic_name, 1, [b"x" * 1000])
    with PlainCluster(broker.bootstrap) as cluster:
        sizes = cluster.sizes(cluster.partitions([topic_name]))
        assert sizes[topic_name, 0] == 0
        assert 1000 < sizes[topic_name, 1] < 1200
        assert len(cluster.topic_ids[topic_name]) == 16
        assert any(cluster.topic_ids[topic_name])


Answers = Callable[[list[Any]], None]


@pytest.fixture
def change_answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answers], None]:
    """Of the brokers to DescribeLogDirs, before a cluster sees them."""

    def change_them(change: Answers) -> None:
        ask = PlainCluster._ask_leaders

        def changed(self: PlainCluster, requests: Any) -> list[Any]:
            answers = ask(self, requests)
            if isinstance(answers[0], DescribeLogDirsResponse):
                change(answers)
            return answers

        monkeypatch.setattr(PlainCluster, "_ask_leaders", changed)

    return change_them


def test_an_offline_log_directory_hides_no_sizes_and_takes_no_time(
    broker: BrokerProcess, topic_name: str, change_answers: Callable[[Answers], None]
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    offline = DescribeLogDirsResponse.DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir="/lost", topics=[]
    )
    change_answers(lambda answers: answers[0].results.insert(0, offline))
    with PlainCluster(broker.bootstrap, retry_for=0) as cluster:
        assert cluster.sizes([(topic_name, 0)]) == {(topic_name, 0): 0}


def test_sizes_that_a_leader_does_not_tell_are_asked_for_again_and_left_out_at_the_end(
    broker: BrokerProcess, topic_name: str, change_answers: Callable[[Answers], None]
) -> None:
    """So answers who leads the partition no more, since the broker that was asked told who does."""
    create_topic(broker.bootstrap, topic_name, partitions=2)
    asked: list[set[int]] = []
    hidden = [{0}, set(), {0}]

    def hide(answers: list[Any]) -> None:
        [topic], hides = answers[0].results[0].topics, hidden.pop(0)
        asked.append({log.partition_index for log in topic.partitions})
        topic.partitions = [log for log in topic.partitions if log.partition_index not in hides]

    change_answers(hide)
    places = [(topic_name, 0), (topic_name, 1)]
    with PlainCluster(broker.bootstrap, retry_for=30) as cluster:
        assert cluster.sizes(places) == dict.fromkeys(places, 0)
        assert asked == [{0, 1}, {0}]
        assert cluster.sizes(places, retry_for=0) == {(topic_name, 1): 0}


def test_a_group_without_members_takes_offsets(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    with PlainCluster(broker.bootstrap) as cluster:
        cluster.commit(topic_name, {(topic_name, 0): 7})
    impatient = PlainCluster(broker.bootstrap, retry_for=0.2)
    with impatient, pytest.raises(KafkaError, match="nowhere-0"):
        impatient.commit(topic_name, {("nowhere", 0): 7})


def test_each_partition_may_have_a_time_of_its_own(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=2)
    for partition in (0, 1):
        produce_values(broker.bootstrap, topic_name, partition, [b"a", b"b", b"c"], timestamp_ms=1_000)
    with PlainCluster(broker.bootstrap) as cluster:
        times = {(topic_name, 0): 1_001, (topic_name, 1): 5_000}
        assert cluster.offsets(times, times) == {(topic_name, 0): 1, (topic_name, 1): -1}


def test_a_leader_known_wrongly_is_looked_up_again(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    with PlainCluster(broker.bootstrap, retry_for=30) as cluster:
        place = (topic_name, 0)
        cluster.partitions([topic_name])
        cluster._leaders[place] = 99
        assert cluster.offsets([place], LATEST) == {place: 0}
        assert cluster._leaders[place] != 99


def test_a_leader_is_asked_under_its_epoch_so_that_one_of_before_answers_nothing(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    ask = PlainCluster._ask_leaders
    asked: list[int] = []

    def watch(self: PlainCluster, requests: Any) -> Any:
        asked.extend(request.topics[0].partitions[0].current_leader_epoch for _, request in requests)
        return ask(self, requests)

    monkeypatch.setattr(PlainCluster, "_ask_leaders", watch)
    with PlainCluster(broker.bootstrap, retry_for=30) as cluster:
        place = (topic_name, 0)
        assert cluster.offsets([place], LATEST) == {place: 0}
        assert asked.pop() >= 0
        cluster.topic_ids.clear()  # the topic was another one then
        cluster._leader_epochs[place] = 99
        assert cluster.offsets([place], LATEST) == {place: 0}
        assert (asked[0], len(asked)) == (99, 2), "refused, and asked under the epoch that there is"


def test_a_broker_that_tells_of_leaders_of_before_is_passed_over(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    one, other = broker.bootstrap, f"localhost:{broker.bootstrap.rpartition(':')[2]}"
    epochs, request = {one: [7, 6, 6], other: [7, 7, 6]}, PlainConnection.request

    def answer(self: PlainConnection, *what: Any) -> Any:
        found = request(self, *what)
        if isinstance(found, MetadataResponse):
            found.topics[0].partitions[0].leader_epoch = epochs[self.address].pop(0)
        return found

    monkeypatch.setattr(PlainConnection, "request", answer)
    with PlainCluster(f"{one},{other}", retry_for=0) as cluster:
        cluster.partitions([topic_name])
        cluster.partitions([topic_name])
        assert epochs == {one: [6], other: [7, 6]}, "the one was asked first, and the other then"
        cluster.partitions([topic_name])
        assert epochs == {one: [6], other: [6]}, "who is behind is asked last"
        with pytest.raises(ConnectionError, match=f"does not know of leader epoch 7 of {topic_name}-0"):
            cluster.partitions([topic_name])


def test_a_broker_that_does_not_know_of_a_topics_new_partitions_is_passed_over(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=2)
    one, other = broker.bootstrap, f"localhost:{broker.bootstrap.rpartition(':')[2]}"
    remade, request = "made again", PlainConnection.request
    behind: set[str] = set()

    def answer(self: PlainConnection, *what: Any) -> Any:
        found = request(self, *what)
        if isinstance(found, MetadataResponse) and self.address in behind:
            found.topics[0].partitions = found.topics[0].partitions[:1]
        if isinstance(found, MetadataResponse) and remade in behind:
            found.topics[0].topic_id = b"another topic id"
        return found

    monkeypatch.setattr(PlainConnection, "request", answer)
    both = {(topic_name, 0), (topic_name, 1)}
    with PlainCluster(f"{one},{other}", retry_for=0) as cluster:
        assert cluster.partitions([topic_name]) == both
        behind.add(one)
        assert cluster.partitions([topic_name]) == both, "the other was asked then"
        behind.add(other)
        with pytest.raises(ConnectionError, match=f"does not know of {topic_name}-1"):
            cluster.partitions([topic_name])
        behind.add(remade)
        for _ in range(2):  # another topic of that name may have fewer
            assert cluster.partitions([topic_name]) == {(topic_name, 0)}


def test_a_question_without_an_answer_in_time_is_asked_again(own_broker: BrokerProcess, topic_name: str) -> None:
    create_topic(own_broker.bootstrap, topic_name, partitions=1)
    with PlainCluster(own_broker.bootstrap, {"request_timeout_ms": 500}) as cluster:
        assert cluster.retry_for == 0.5, "as long as one answer may take"
        place = (topic_name, 0)
        assert cluster.bounds([place]) == {place: (0, 0)}
        own_broker.pause()
        waking = threading.Timer(0.7, own_broker.resume)
        waking.start()
        assert cluster.offsets([place], LATEST) == {place: 0}
        waking.join()


def test_the_late_answer_to_a_commit_leaves_the_next_questions_alone(
    own_broker: BrokerProcess, topic_name: str
) -> None:
    create_topic(own_broker.bootstrap, topic_name, partitions=1)
    with PlainCluster(own_broker.bootstrap, {"request_timeout_ms": 1_000}, retry_for=0) as cluster:
        place = (topic_name, 0)
        cluster.commit(topic_name, {place: 1})
        own_broker.pause()
        with pytest.raises(OSError, match="did not answer"):
            cluster.commit(topic_name, {place: 2})
        own_broker.resume()
        assert cluster.offsets([place], LATEST) == {place: 0}
        assert cluster.topics() == [topic_name]


def test_all_leaders_work_at_the_same_time(make_cluster: MakeCluster, topic_name: str) -> None:
    brokers = make_cluster(2)
    create_topic(brokers.bootstrap, topic_name, partitions=4)
    with PlainCluster(brokers.bootstrap) as cluster:
        places = cluster.partitions([topic_name])
        assert cluster.bounds(places) == dict.fromkeys(places, (0, 0))
        leaders = list(cluster._by_leader(places))  # the first one's answer is what is waited for first
        assert len(leaders) == 2
        [first, second] = [cluster.connection(leader) for leader in leaders]
        brokers.broker(leaders[0]).pause()  # the other is asked although this one is silent
        asking = threading.Thread(target=cluster.bounds, args=(places,))
        asking.start()
        deadline = time.monotonic() + 30
        while (first.in_flight, second.in_flight) != (2, 2):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        brokers.broker(leaders[0]).resume()
        asking.join(30)
        assert (first.in_flight, second.in_flight) == (0, 0)


def test_a_topic_is_made_once_and_what_brokers_are_set_to_is_told(broker: BrokerProcess, topic_name: str) -> None:
    with PlainCluster(broker.bootstrap) as cluster:
        for _ in range(2):
            cluster.create_topic(topic_name, 3, 1, {"cleanup.policy": "compact"})
        assert len(cluster.partitions([topic_name])) == 3
        assert cluster.broker_ids() == [broker.broker_id]
        assert int(cluster.broker_config("transaction.max.timeout.ms")[broker.broker_id]) == 900_000
        with pytest.raises(KafkaError, match=topic_name):
            cluster.create_topic(f"{topic_name}-wide", 1, 5, {})


def test_who_connects_in_clear_loads_no_more_than_that_takes() -> None:
    """Each start of a Spark query has a new Python: what this loads, the query waits for."""
    unused = ("asyncio", "ssl", "difflib", "kbroker.protocol.apis", "kbroker.protocol.messages.transactions")
    program = f"import sys, kbroker.client.plain_cluster; print([m for m in {unused} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"
