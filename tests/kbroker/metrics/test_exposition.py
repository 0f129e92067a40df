"""The text that Prometheus reads."""

import pytest

from kbroker.metrics import exposition
from kbroker.metrics.cluster import ACTIVE, TOPIC_PARTITIONS, UNCLEAN
from kbroker.metrics.exposition import LINES_AT_ONCE, Exposition
from kbroker.metrics.requests import REQUESTS, TOTAL
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
        times.add(4.0, times=4)
    out.add_summary(TOTAL, times, "Produce")
    scraped = Scraped(text_of(out))
    quantiles = [labels["quantile"] for name, labels, _ in scraped.samples if "quantile" in labels]
    assert quantiles == ["0.50", "0.75", "0.95", "0.98", "0.99", "0.999"]
    assert 3 < scraped.value(TOTAL.name, request="Produce", quantile="0.99") < 5
    assert scraped.value(f"{TOTAL.name}_count", request="Produce") == 40
    assert scraped.value(f"{TOTAL.name}_sum", request="Produce") == 160, "each of those looked at counts for four"


@pytest.mark.slow
def test_many_lines_come_in_pieces_and_none_is_lost() -> None:
    out = Exposition()
    for number in range(2 * LINES_AT_ONCE + 1):
        out.add(TOPIC_PARTITIONS, number, f"t{number}")
    assert len(list(out.chunks())) == 4
    assert len(Scraped(text_of(out)).find("kafka_topic_partitions")) == 2 * LINES_AT_ONCE + 1


def test_samples_are_told_under_both_names_of_their_family() -> None:
    out = Exposition()
    out.add(UNCLEAN, 2)
    out.add(REQUESTS, 7, "Produce", "11")
    text = text_of(out)
    assert text.count("# TYPE") == 4
    scraped = Scraped(text)
    assert scraped.find(UNCLEAN.name) == scraped.find(UNCLEAN.also) == [2]
    assert scraped.value("kafka_network_requestmetrics_requestspersec_total", request="Produce", version="11") == 7


def test_others_are_let_in_once_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    pauses: list[float] = []
    monkeypatch.setattr("kbroker.metrics.exposition.time.perf_counter", lambda: now[0])
    monkeypatch.setattr("kbroker.metrics.exposition.time.sleep", pauses.append)
    out = Exposition()
    for elapsed in (0.4, 0.4, 0.4, 0.4, 0.4):
        now[0] += elapsed * exposition.TURN_S
        out.let_others_in()
    assert pauses == [exposition.PAUSE_S]
