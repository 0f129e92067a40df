"""What runs on an executor."""

import pickle

import pytest

from kbroker import Admin
from kbroker.client.errors import CorruptMessageError
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.records.batch import split_batches
from kbroker.spark_connector.columns import ColumnPlan
from kbroker.spark_connector.offset_ranges import OffsetRange
from kbroker.spark_connector.options import OptionError
from kbroker.spark_connector.planning import DataLossError
from kbroker.spark_connector.read_options import read_options
from tests.kbroker.client.topics import create_topic, produce_values
from tests.spark_connector.schemas import plain_schema, schema

tasks = pytest.importorskip("kbroker.spark_connector.tasks")


def test_a_pickled_share_of_the_read_is_read_as_planned(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"a", b"b", b"c"])
    given = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic_name,
        "kafkaConsumer.pollTimeoutMs": "9999",
    }
    plan = ColumnPlan(plain_schema(), tuple(plain_schema().names))
    share, options = pickle.loads(
        pickle.dumps((tasks.RangePartition(OffsetRange(topic_name, 0, 1, 3)), read_options(given)))
    )
    rows = [row["value"] for batch in tasks.read_range(options, plan, share) for row in batch.to_pylist()]
    assert rows == [b"b", b"c"]


def test_records_that_went_after_they_were_planned_for_are_a_loss_that_says_what_to_do(
    broker: BrokerProcess, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 10)
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({(topic_name, 0): 4})
    share = tasks.RangePartition(OffsetRange(topic_name, 0, 2, 10))
    plan = ColumnPlan(plain_schema(), tuple(plain_schema().names))
    options = read_options({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic_name})
    with pytest.raises(DataLossError, match=rf"{topic_name}-0: offset 2.*retention.*failOnDataLoss=false"):
        list(tasks.read_range(options, plan, share))


def test_a_corrupt_batch_ends_a_task_whatever_the_formats_unless_losses_are_allowed(
    own_broker: BrokerProcess, topic_name: str
) -> None:
    create_topic(own_broker.bootstrap, topic_name, partitions=1)
    for value in (b"first", b"second", b"third"):
        produce_values(own_broker.bootstrap, topic_name, 0, [value])
    own_broker.stop()
    [log_file] = (own_broker.directory / "data" / f"{topic_name}-0").glob("*.log")
    data = bytearray(log_file.read_bytes())
    position, size = split_batches(data)[1][:2]
    data[position + size - 2] ^= 0xFF
    log_file.write_bytes(data)
    own_broker.start().wait_until_ready(30)

    def values(**given: str) -> list[object]:
        base = {"kafka.bootstrap.servers": own_broker.bootstrap, "subscribe": topic_name}
        share = tasks.RangePartition(OffsetRange(topic_name, 0, 0, 3))
        plan = ColumnPlan(schema(value=given.get("valueFormat", "binary")), ("value",))
        return [
            row["value"]
            for b in tasks.read_range(read_options({**base, **given}), plan, share)
            for row in b.to_pylist()
        ]

    for given in (
        {},
        {"keyFormat": "string"},
        {"valueFormat": "string"},
        {"valueFormat": "string", "mode": "DROPMALFORMED"},
    ):
        with pytest.raises(CorruptMessageError, match=f"{topic_name}-0: offset 1"):
            values(**given)
        rest = values(**given, failOnDataLoss="false")
        assert rest in ([b"first", b"third"], ["first", "third"])


def test_sparks_own_retries_come_on_top_of_the_clients_patience() -> None:
    base = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "kafka.request.timeout.ms": "20000"}
    sparks_defaults = {"fetchOffset.numRetries": "3", "fetchOffset.retryIntervalMs": "10"}
    assert tasks.new_cluster(read_options({**base, **sparks_defaults})).retry_for == pytest.approx(20.03)
    assert tasks.new_cluster(read_options(base)).retry_for == 20


def test_a_wrong_client_option_is_named() -> None:
    options = read_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t", "kafka.fetch.max.byte": "5"})
    with pytest.raises(OptionError, match=r"fetch\.max\.byte.*did you mean 'fetch_max_bytes'"):
        tasks.new_cluster(options)
