"""What producers wrote and consumers read, by topic."""

import asyncio
from types import SimpleNamespace

from kbroker.handlers.produce import produce
from kbroker.metrics import topics
from kbroker.protocol.errors import ErrorCode
from tests.fixtures.data_path import TOPIC, Played, one_batch
from tests.kbroker.handlers.test_produce import request_for
from tests.kbroker.metrics.scraping import collected, sources_of

PREFIX = "kafka_server_brokertopicmetrics_"


async def test_each_topic_has_its_series_and_the_broker_the_sum(played: Played) -> None:
    await played.lead()
    await played.lead(topic="other", topic_id=b"2" * 16)
    await played.lead(topic="silent", topic_id=b"3" * 16)
    for topic, values in ((TOPIC, (b"a", b"b")), ("other", (b"c",))):
        produce(played.services, played.ctx(9), request_for((0, one_batch(*values)), topic=topic))
    found = collected(topics.collect, sources_of(played))
    by_topic = {
        labels.get("topic"): value for name, labels, value in found.samples if name == PREFIX + "messagesin_total"
    }
    assert by_topic == {TOPIC: 2, "other": 1, None: 3}
    assert found.find(PREFIX + "totalproducerequests_total", topic="silent") == []
    assert found.value(PREFIX + "failedproducerequests_total", topic="other") == 0, "told before the first one fails"
    assert found.find(PREFIX + "failedproducerequests_total", topic="silent") == []
    assert found.find(PREFIX + "failedfetchrequests_total", topic=TOPIC) == [], "nobody has read it"
    assert found.value(PREFIX + "bytesinpersec_total", topic=TOPIC) == found.value(
        PREFIX + "bytesin_total", topic=TOPIC
    )
    assert found.value(PREFIX + "bytesin_total", topic=TOPIC) == played.replicas.hosted[TOPIC, 0].log.size


async def test_the_sum_does_not_shrink_with_a_topic_that_goes(played: Played) -> None:
    await played.lead()
    produce(played.services, played.ctx(9), request_for((0, one_batch(b"a", b"b"))))
    played.replicas.drop((TOPIC, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    played.replicas.forget_traffic([TOPIC])
    found = collected(topics.collect, sources_of(played))
    assert found.find(PREFIX + "messagesin_total", topic=TOPIC) == []
    assert found.value(PREFIX + "messagesin_total", topic="") == 2
    assert found.value(PREFIX + "totalproducerequests_total", topic="") == 1


async def test_a_scrape_has_deleted_topics_forgotten_by_the_loop(played: Played) -> None:
    await played.lead()
    played.replicas.drop((TOPIC, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    played.metadata.forget([TOPIC])
    server = SimpleNamespace(loop=asyncio.get_running_loop())
    collected(topics.collect, sources_of(played, server=server))
    assert TOPIC in played.replicas.traffic
    await asyncio.sleep(0)
    assert TOPIC not in played.replicas.traffic
