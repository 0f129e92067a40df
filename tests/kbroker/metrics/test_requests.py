"""The requests that the dispatcher has counted."""

from types import SimpleNamespace

import pytest

from kbroker.metrics import requests
from kbroker.network.metering import Meter
from kbroker.network.request_times import ApiRequests, Times
from kbroker.protocol.errors import ErrorCode
from kbroker.security.quotas import ClientQuotas
from tests.fixtures.data_path import Played
from tests.kbroker.metrics.scraping import collected, sources_of

PREFIX = "kafka_network_requestmetrics_"


def counted(apis: dict[int, SimpleNamespace]) -> SimpleNamespace:
    """A dispatcher."""
    return SimpleNamespace(apis=apis, meter=Meter(ClientQuotas(1, 1000, 1)))


def test_fetches_are_told_in_three_ways_and_silent_apis_not_at_all(played: Played) -> None:
    fetches, silent = ApiRequests("Fetch", 18), ApiRequests("Metadata", 13)
    fetches.from_brokers, fetches.from_consumers = Times(), Times()
    fetches.by_version[17], fetches.by_version_from_brokers[17] = 5, 2
    fetches.errors[ErrorCode.UNKNOWN_SERVER_ERROR] += 1
    for times in (fetches.times, fetches.from_brokers):
        times.total.add(8.0)
    apis = {1: SimpleNamespace(requests=fetches), 3: SimpleNamespace(requests=silent)}
    found = collected(requests.collect, sources_of(played, dispatcher=counted(apis)))
    counts = [
        found.value(PREFIX + "requests_total", request=name, version="17")
        for name in ("Fetch", "FetchConsumer", "FetchFollower")
    ]
    assert counts == [5, 3, 2]
    assert found.value(PREFIX + "errors_total", request="Fetch", error="UNKNOWN_SERVER_ERROR") == 1
    assert 6 < found.value(PREFIX + "totaltimems", request="FetchFollower", quantile="0.99") < 10
    assert found.find(PREFIX + "requests_total", request="Metadata") == []


def test_what_replicas_did_not_copy_in_time_is_told(played: Played) -> None:
    expired = "kafka_server_delayedproducemetrics_expires_total"
    produces = ApiRequests("Produce", 12)
    apis: dict[int, SimpleNamespace] = {}
    sources = sources_of(played, dispatcher=counted(apis))
    assert collected(requests.collect, sources).value(expired) == 0
    apis[0] = SimpleNamespace(requests=produces)
    produces.errors[ErrorCode.REQUEST_TIMED_OUT] += 2
    assert collected(requests.collect, sources).value(expired) == 2


def test_who_is_throttled_is_told(played: Played) -> None:
    dispatcher = counted({0: SimpleNamespace(requests=ApiRequests("Produce", 12))})
    sources = sources_of(played, dispatcher=dispatcher)
    assert collected(requests.collect, sources).find("kbroker_throttled_requests_total") == []
    dispatcher.meter.throttled[0] += 2
    dispatcher.meter.throttled_ms[0] += 1500
    found = collected(requests.collect, sources)
    assert found.value("kbroker_throttled_requests_total", request="Produce") == 2
    assert found.value("kbroker_throttled_seconds_total", request="Produce") == 1.5


def test_sum_and_count_of_the_times_never_fall_while_requests_wait_for_their_answers(played: Played) -> None:
    fetches = ApiRequests("Fetch", 18)
    sources = sources_of(played, dispatcher=counted({1: SimpleNamespace(requests=fetches)}))
    told: list[tuple[float, float]] = []
    for milliseconds in (5.0, 0.1, 0.2):
        fetches.by_version[17] += 1
        for is_answered in (False, True):
            if is_answered:
                fetches.times.total.add(milliseconds)
            found = collected(requests.collect, sources)
            sums, counts = (found.value(f"{PREFIX}totaltimems_{each}", request="Fetch") for each in ("sum", "count"))
            told.append((sums, counts))
    assert told == sorted(told)
    assert told[-1] == pytest.approx((5.3, 3))
