"""The record classes of two other clients, in this process: they read what we write, we read what they write."""

import warnings
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given, settings

from kbroker.protocol.records.batch import check_batch
from kbroker.protocol.records.record import decode_batch
from tests.protocol.records.batches import Row, batch_of, rows

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of its own imports
    from kafka.record.default_records import DefaultRecordBatch as KafkaBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaBuilder

READERS = [pytest.param(AioBatch, id="aiokafka"), pytest.param(KafkaBatch, id="kafka-python")]
WRITERS = [pytest.param(AioBuilder, id="aiokafka"), pytest.param(KafkaBuilder, id="kafka-python")]


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=40, deadline=None)
@given(held=rows)
def test_others_read_our_batches(reader: Any, held: list[Row]) -> None:
    for codec in (0, 1):
        data = reader(batch_of(held, codec))
        assert data.validate_crc()
        found = [(r.key, r.value, [(k, v) for k, v in r.headers], r.timestamp, r.offset) for r in data]
        assert found == [(key, value, extra, at, index) for index, (key, value, extra, at) in enumerate(held)]


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS)
@settings(max_examples=40, deadline=None)
@given(held=rows)
def test_we_read_the_batches_of_others(writer: Any, held: list[Row]) -> None:
    for codec in (0, 1):
        filling = writer(
            magic=2,
            compression_type=codec,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 20,
        )
        for index, (key, value, extra, timestamp) in enumerate(held):
            filling.append(index, max(timestamp, 0), key, value, extra)
        data = bytes(filling.build())
        check_batch(data, 0, len(data))
        found = [(r.key, r.value, list(r.headers), r.timestamp) for r in decode_batch(data)]
        assert found == [(key, value, extra, max(at, 0)) for key, value, extra, at in held]
