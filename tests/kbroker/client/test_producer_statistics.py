from kbroker.client.delivery import Batch
from kbroker.client.producer_statistics import ProducerStatistics


def test_what_is_sent_again_counts_as_sent_and_as_retried() -> None:
    statistics = ProducerStatistics()
    batch = Batch("t", 0, None, 10.0, 20.0)
    batch.count, batch.size, batch.data = 4, 200, bytearray(50)
    statistics.requests = 2
    statistics.sent(batch, 10.5)
    batch.attempts = 1
    statistics.sent(batch, 11.5)
    statistics.answered(0.25, 100)
    statistics.answered(0.75, 0)
    statistics.acknowledged(batch)
    found = statistics.metrics()
    assert (found["record-send-total"], found["record-retry-total"], found["record-acknowledged-total"]) == (8, 4, 4)
    assert (found["byte-total"], found["byte-acknowledged-total"], found["compression-rate-avg"]) == (100, 50, 0.25)
    assert (found["record-queue-time-avg"], found["records-per-request-avg"]) == (500, 4)
    assert (found["request-latency-avg"], found["request-latency-max"]) == (500, 750)
    assert (found["produce-throttle-time-avg"], found["produce-throttle-time-max"]) == (50, 100)


def test_before_anything_is_sent_all_is_zero() -> None:
    assert set(ProducerStatistics().metrics().values()) == {0}
