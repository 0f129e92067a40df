"""The text that Prometheus reads."""

from kbroker.metrics.cluster import ACTIVE, TOPIC_PARTITIONS
from kbroker.metrics.exposition import LINES_AT_ONCE, Exposition
from kbroker.metrics.requests import TOTAL
from kbroker.protocol.distribution import Distribution
from tests.kbroker.metrics.scraping import Scraped


def text_of(out: Exposition) -> str:
    return b"".join(out.chunks()).decode()


def test_a_family_has_its_header_once_and_comes_in_the_order_of_its_declaration() -> None:
    out = Exposition()
    out.add(TOPIC_PARTITIONS, 3, "a")
    out.add(TOPIC_PARTITIONS, 4, "b")
    out.add(ACTIVE, True)
    text = text_of(out)
    assert text.count("# TYPE kafka_topic_partitions gauge") == 1
    assert text.index("activecontrollercount") < text.index("kafka_topic_partitions")
    assert Scraped(text).find("kafka_topic_partitions") == [3, 4]


def test_a_summary_has_quantiles_spelled_as_dashboards_ask_for_them() -> None:
    out = Exposition(now=0)
    times = Distribution()
    for _ in range(10):
        times.add(4.0)
    out.add_summary(TOTAL, times, "Produce", count=40)
    scraped = Scraped(text_of(out))
    quantiles = [labels["quantile"] for name, labels, _ in scraped.samples if "quantile" in labels]
    assert quantiles == ["0.50", "0.75", "0.95", "0.98", "0.99", "0.999"]
    assert 3 < scraped.value(TOTAL.name, request="Produce", quantile="0.99") < 5
    assert scraped.value(f"{TOTAL.name}_count", request="Produce") == 40
    assert scraped.value(f"{TOTAL.name}_sum", request="Produce") == 160, "each of those looked at counts for four"


def test_many_lines_come_in_pieces_and_none_is_lost() -> None:
    out = Exposition()
    for number in range(2 * LINES_AT_ONCE + 1):
        out.add(TOPIC_PARTITIONS, number, f"t{number}")
    assert len(list(out.chunks())) == 4
    assert len(Scraped(text_of(out)).find("kafka_topic_partitions")) == 2 * LINES_AT_ONCE + 1
