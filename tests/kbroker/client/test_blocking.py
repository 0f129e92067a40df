import os
import threading

import pytest

from kbroker import Admin, Consumer, Producer
from kbroker.client.errors import ClientClosed, ConfigurationError


def test_all_three_clients_work_without_a_loop(bootstrap: str, topic_name: str) -> None:
    threads = threading.active_count()
    with Admin(bootstrap) as admin:
        admin.create_topic(topic_name, partitions=2)
        assert topic_name in admin.list_topics()
    outcomes = []
    with Producer(bootstrap) as producer:
        for i in range(100):
            producer.send(topic_name, b"%d" % i, key=b"k", on_delivery=lambda m, e: outcomes.append((m, e)))
        producer.flush(30)
    assert len(outcomes) == 100
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic_name])
        found = []
        for record in consumer:
            found.append(record.value)
            if len(found) == 100:
                break
        consumer.seek_to_beginning()
        assert sum(batch.num_rows for batch in consumer.batches(timeout=1.0)) == 100
    assert found == [b"%d" % i for i in range(100)]
    assert threading.active_count() == threads


def test_a_closed_client_says_so_and_closes_again() -> None:
    producer = Producer("127.0.0.1:1")
    producer.close()
    producer.close()
    with pytest.raises(ClientClosed):
        producer.send("t", b"x")


def test_a_wrong_argument_leaves_no_thread() -> None:
    threads = threading.active_count()
    with pytest.raises(ConfigurationError, match="linger_ms"):
        Producer("127.0.0.1:1", linger=3)
    assert threading.active_count() == threads


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_told_to_make_its_own() -> None:
    with Producer("127.0.0.1:1") as producer:
        child = os.fork()
        if child == 0:
            try:
                producer.send("t", b"x")
            except ClientClosed:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
