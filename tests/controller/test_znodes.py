"""Every znode's JSON, against what Kafka 3.9 writes and reads."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.controller import znodes
from kbroker.controller.znodes import (
    BrokerRegistration,
    ControllerNode,
    Endpoint,
    MalformedZnode,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
    TopicPartition,
)

TOPIC_ID = bytes(range(16))
T0 = TopicPartition("t", 0)


def test_a_broker_is_written_in_version_five() -> None:
    endpoints = (Endpoint("INTERNAL", "h1", 9093, "SSL"), Endpoint("PLAINTEXT", "::1", 9092))
    broker = BrokerRegistration(1, endpoints, rack="r1", timestamp_ms=5)
    assert json.loads(znodes.encode_broker(broker)) == {
        "version": 5,
        "host": "::1",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "5",
        "endpoints": ["INTERNAL://h1:9093", "PLAINTEXT://[::1]:9092"],
        "listener_security_protocol_map": {"INTERNAL": "SSL", "PLAINTEXT": "PLAINTEXT"},
        "features": {},
        "rack": "r1",
    }
    assert znodes.decode_broker(1, znodes.encode_broker(broker), -1) == broker


def test_a_broker_tells_its_group_protocols_and_one_of_kafkas_does_not() -> None:
    endpoint = Endpoint("PLAINTEXT", "h", 1)
    broker = BrokerRegistration(1, (endpoint,), group_protocols=("classic", "consumer"))
    assert json.loads(znodes.encode_broker(broker))["group_protocols"] == ["classic", "consumer"]
    assert znodes.decode_broker(1, znodes.encode_broker(broker), -1) == broker
    javas = znodes.encode_broker(BrokerRegistration(1, (endpoint,)))
    assert znodes.decode_broker(1, javas, -1).group_protocols == ()


def test_a_broker_without_a_plain_listener_has_no_host() -> None:
    value = json.loads(znodes.encode_broker(BrokerRegistration(1, (Endpoint("SSL", "h", 1, "SSL"),))))
    assert (value["host"], value["port"]) == (None, -1)
    assert "rack" not in value


def test_old_and_future_registrations_are_read() -> None:
    old = b'{"version":1,"host":"h","port":9092,"jmx_port":-1}'
    assert znodes.decode_broker(1, old, 7).endpoints == (Endpoint("PLAINTEXT", "h", 9092),)
    future = b'{"version":9,"jmx_port":1,"endpoints":["SSL://h:1"],"more":{}}'
    endpoints = (Endpoint("SSL", "h", 1, "SSL"),)
    assert znodes.decode_broker(1, future, 7) == BrokerRegistration(1, endpoints, jmx_port=1, epoch=7)


def test_a_topic_is_written_in_version_three_and_lists_only_moving_partitions() -> None:
    topic = TopicAssignment(TOPIC_ID, {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((3, 2, 1), (3,), (1,))})
    assert json.loads(znodes.encode_topic(topic)) == {
        "version": 3,
        "topic_id": "AAECAwQFBgcICQoLDA0ODw",
        "partitions": {"0": [1, 2], "1": [3, 2, 1]},
        "adding_replicas": {"1": [3]},
        "removing_replicas": {"1": [1]},
    }
    assert znodes.decode_topic("t", znodes.encode_topic(topic)) == topic
    assert znodes.decode_topic("t", b'{"version":1,"partitions":{"0":[1]}}').topic_id is None


@pytest.mark.slow
@given(
    st.builds(
        PartitionState,
        leader=st.integers(-1, 9),
        leader_epoch=st.integers(0, 1 << 30),
        isr=st.lists(st.integers(0, 9)).map(tuple),
        controller_epoch=st.integers(0, 1 << 30),
        partition_epoch=st.just(4),
        leader_recovery_state=st.sampled_from((0, 1)),
    )
)
def test_a_state_survives_writing_and_reading(state: PartitionState) -> None:
    data = znodes.encode_partition_state(state)
    assert znodes.decode_partition_state(T0, data, 4) == state
    assert ("leader_recovery_state" in json.loads(data)) == (state.leader_recovery_state != 0)


def test_the_controller_node() -> None:
    data = znodes.encode_controller(3, 5)
    assert json.loads(data) == {"version": 2, "brokerid": 3, "timestamp": "5", "kraftControllerEpoch": -1}
    assert znodes.decode_controller(data, 0) == ControllerNode(3, 5)


@pytest.mark.parametrize(
    ("data", "change"),
    [
        (b'{"version":2,"entity_path":"topics/t"}', ("topics", "t")),
        (b'{"version":2,"entity_path":"users/<default>/clients/c"}', ("users", "<default>/clients/c")),
        (b'{"version":1,"entity_type":"clients","entity_name":"c"}', ("clients", "c")),
        (b'{"version":3}', None),
    ],
)
def test_configuration_changes_of_all_versions(data: bytes, change: tuple[str, str] | None) -> None:
    assert znodes.decode_config_change(data, "/config/changes/x") == change


def test_configurations_are_strings_and_null_means_none() -> None:
    assert znodes.decode_config(znodes.encode_config({"a": "1"}), "/p") == {"a": "1"}
    assert znodes.decode_config(None, "/p") == {}
    assert znodes.decode_config(b"", "/p") == {}


@pytest.mark.parametrize(("name", "path"), [("a b*c", "a%20b%2Ac"), ("ü~/", "%C3%BC%7E%2F"), ("a.b-c_d", "a.b-c_d")])
def test_names_are_sanitised_as_kafka_does(name: str, path: str) -> None:
    assert znodes.sanitize(name) == path
    assert znodes.desanitize(path) == name


def test_producer_id_blocks() -> None:
    first = znodes.next_producer_id_block(1, None)
    assert first == ProducerIdBlock(1, 0, 999)
    assert znodes.decode_producer_id_block(None) is None
    assert znodes.decode_producer_id_block(znodes.encode_producer_id_block(first)) == first
    assert znodes.next_producer_id_block(2, first) == ProducerIdBlock(2, 1000, 1999)
    assert znodes.next_producer_id_block(2, ProducerIdBlock(1, 0, (1 << 63) - 1000)) is None
    with pytest.raises(MalformedZnode):
        znodes.decode_producer_id_block(b"")


def test_legacy_nodes_and_notifications() -> None:
    targets = {T0: (1, 2)}
    assert znodes.decode_reassignments(znodes.encode_reassignments(targets)) == targets
    with pytest.raises(MalformedZnode, match="unknown keys"):
        znodes.decode_reassignments(b'{"version":1,"partitions":[],"x":1}')
    assert znodes.decode_partition_list(b'{"version":1,"partitions":[{"topic":"t","partition":0}]}', "/p") == [T0]
    assert znodes.decode_log_dir_event(znodes.encode_log_dir_event(3), "/p") == 3
    assert znodes.decode_log_dir_event(b'{"version":1,"broker":3,"event":2}', "/p") is None


def test_the_feature_node() -> None:
    assert znodes.is_feature_enabled(znodes.encode_feature())
    assert not znodes.is_feature_enabled(b'{"version":2,"status":0,"features":{}}')
    levels = {"transaction.version": 2}
    data = znodes.encode_feature(levels)
    assert data == b'{"version":2,"status":1,"features":{"transaction.version":{"max_version_level":2}}}'
    assert znodes.decode_feature(data) == levels
    assert znodes.decode_feature(znodes.encode_feature()) == {}
    assert znodes.decode_feature(data.replace(b'"status":1', b'"status":0')) == {}
    for features in (b"[]", b'{"x":{}}', b'{"x":{"max_version_level":"y"}}'):
        with pytest.raises(MalformedZnode, match=r"^/feature"):
            znodes.decode_feature(b'{"version":2,"status":1,"features":' + features + b"}")


def test_a_broker_says_what_it_supports() -> None:
    broker = BrokerRegistration(1, (), features={"transaction.version": 2}, epoch=5)
    data = znodes.encode_broker(broker)
    assert json.loads(data)["features"] == {"transaction.version": {"min_version": 0, "max_version": 2}}
    assert znodes.decode_broker(1, data, 5) == broker


@pytest.mark.parametrize("data", [None, b"", b"{", b"[]", b"\xff", b"{}", b'{"partitions":1,"isr":1,"brokerid":"x"}'])
def test_nonsense_is_named_by_its_path(data: bytes | None) -> None:
    for read in (
        lambda: znodes.decode_topic("t", data),
        lambda: znodes.decode_broker(1, data, 1),
        lambda: znodes.decode_partition_state(T0, data, 1),
        lambda: znodes.decode_controller(data, 1),
        lambda: znodes.decode_cluster_id(data),
        lambda: znodes.decode_partition_list(data, "/p"),
    ):
        with pytest.raises(MalformedZnode, match=r"^/"):
            read()


@pytest.mark.parametrize("number", ["1e400", "-1e999", "[1]", "{}", "null"])
def test_numbers_that_are_none_are_named_by_their_path(number: str) -> None:
    place = f'{{"version":1,"partitions":[{{"topic":"t","partition":{number}'.encode()
    for read in (
        lambda: znodes.decode_reassignments(place + b',"replicas":[1]}]}'),
        lambda: znodes.decode_reassignments(place.replace(number.encode(), b'0,"replicas":[%b]}]}' % number.encode())),
        lambda: znodes.decode_partition_list(place + b"}]}", "/p"),
        lambda: znodes.decode_log_dir_event(b'{"version":1,"event":1,"broker":%b}' % number.encode(), "/l"),
        lambda: znodes.decode_topic("t", b'{"version":3,"partitions":{"0":[1,%b]}}' % number.encode()),
        lambda: znodes.decode_topic(
            "t", b'{"version":3,"partitions":{"0":[1]},"adding_replicas":{"0":[%b]}}' % number.encode()
        ),
        lambda: znodes.decode_partition_state(
            T0, b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":1,"isr":[%b]}' % number.encode(), 1
        ),
        lambda: znodes.decode_controller(b'{"version":2,"brokerid":%b}' % number.encode(), 1),
        lambda: znodes.decode_partition_state(
            T0, b'{"controller_epoch":1,"leader":%b,"version":1,"leader_epoch":1,"isr":[1]}' % number.encode(), 1
        ),
    ):
        with pytest.raises(MalformedZnode, match=r"^/"):
            read()


@pytest.mark.parametrize(
    "topic",
    [
        {"partitions": {"0": [99999999999]}},
        {"partitions": {"0": [-5]}},
        {"partitions": {"99999999999": [1]}},
        {"partitions": {"-1": [1]}},
        {"partitions": {"0": "12"}},
        {"partitions": {"0": [1.5]}},
        {"partitions": {"0": [1]}, "adding_replicas": {"0": [99999999999]}},
        {"partitions": {"0": [1]}, "removing_replicas": {"0": [1 << 31]}},
        {"partitions": {"0": [1]}, "topic_id": "A" * 40},
    ],
)
def test_a_topic_that_no_request_could_tell_of_is_none(topic: object) -> None:
    with pytest.raises(MalformedZnode, match=r"^/brokers/topics/t "):
        znodes.decode_topic("t", json.dumps(topic).encode())


@pytest.mark.parametrize(
    "state",
    [
        {"leader": 99999999999},
        {"leader": -2},
        {"leader_epoch": (1 << 31) - 1},
        {"leader_epoch": -1},
        {"controller_epoch": 1 << 31},
        {"isr": [99999999999]},
        {"isr": "12"},
        {"leader_recovery_state": 1000},
    ],
)
def test_a_state_that_no_request_could_tell_of_is_none(state: dict[str, object]) -> None:
    good = {"version": 1, "leader": 1, "leader_epoch": 0, "isr": [1], "controller_epoch": 1}
    assert znodes.decode_partition_state(T0, json.dumps(good).encode(), 1).leader == 1
    with pytest.raises(MalformedZnode, match=r"^/brokers/topics/t/partitions/0/state "):
        znodes.decode_partition_state(T0, json.dumps(good | state).encode(), 1)


@pytest.mark.parametrize(
    "broker",
    [
        {"endpoints": ["PLAINTEXT://" + "h" * 40_000 + ":1"]},
        {"endpoints": ["PLAINTEXT://\ud800:1"]},
        {"endpoints": [5]},
        {"endpoints": ["PLAINTEXT://h:1"], "rack": [1]},
        {"endpoints": ["PLAINTEXT://h:1"], "rack": "r" * 40_000},
        {"endpoints": ["PLAINTEXT://h:1"], "listener_security_protocol_map": {"PLAINTEXT": 5}},
        {"endpoints": ["PLAINTEXT://h:1"], "features": {"x": {"max_version": 40_000}}},
        {"host": None, "port": 5},
        {"host": 5, "port": 5},
    ],
)
def test_a_registration_that_no_request_could_tell_of_is_none(broker: dict[str, object]) -> None:
    with pytest.raises(MalformedZnode, match=r"^/brokers/ids/7 "):
        znodes.decode_broker(7, json.dumps({"version": 5} | broker).encode(), 1)


@pytest.mark.parametrize("data", [None, b"", b"what?", b"-1", b"1.5", b"2147483647", b"99999999999", b"\xff"])
def test_a_controller_epoch_with_none_above_it_is_none(data: bytes | None) -> None:
    assert znodes.decode_controller_epoch(b"7") == 7
    with pytest.raises(MalformedZnode, match=r"^/controller_epoch holds no epoch \(write a number "):
        znodes.decode_controller_epoch(data)


@pytest.mark.parametrize(("first", "last"), [("-9", "5"), ("0", str(1 << 63)), ("9000", "5"), ("x", "5")])
def test_a_block_of_ids_that_are_none_is_none(first: str, last: str) -> None:
    data = json.dumps({"version": 1, "broker": 1, "block_start": first, "block_end": last}).encode()
    with pytest.raises(MalformedZnode, match=r"^/latest_producer_id_block "):
        znodes.decode_producer_id_block(data)


@pytest.mark.parametrize("port", ["999999999999", "65536", "-2", "x"])
def test_a_port_that_is_none_is_no_registration(port: str) -> None:
    with pytest.raises(MalformedZnode, match=r"^/brokers/ids/7 "):
        znodes.decode_broker(7, f'{{"version":5,"endpoints":["PLAINTEXT://h:{port}"]}}'.encode(), 1)


def test_a_reassignment_keeps_all_replicas_until_it_is_over() -> None:
    moving = ReplicaAssignment((1, 2)).reassign_to((3, 2))
    assert moving == ReplicaAssignment((3, 2, 1), (3,), (1,))
    assert (moving.origin, moving.target) == ((2, 1), (3, 2))
    assert moving.reassign_to(moving.origin) == ReplicaAssignment((2, 1))
