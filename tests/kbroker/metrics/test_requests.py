"""The requests that the dispatcher has counted."""

from types import SimpleNamespace

from kbroker.metrics import requests
from kbroker.network.request_times import ApiRequests, Times
from kbroker.protocol.errors import ErrorCode
from tests.fixtures.data_path import Played
from tests.kbroker.metrics.scraping import collected, sources_of

PREFIX = "kafka_network_requestmetrics_"


def test_fetches_are_told_in_three_ways_and_silent_apis_not_at_all(played: Played) -> None:
    fetches, silent = ApiRequests("Fetch", 18), ApiRequests("Metadata", 13)
    fetches.from_brokers, fetches.from_consumers = Times(), Times()
    fetches.by_version[17], fetches.by_version_from_brokers[17] = 5, 2
    fetches.errors[ErrorCode.UNKNOWN_SERVER_ERROR] += 1
    for times in (fetches.times, fetches.from_brokers):
        times.total.add(8.0)
    apis = {1: SimpleNamespace(requests=fetches), 3: SimpleNamespace(requests=silent)}
    found = collected(requests.collect, sources_of(played, dispatcher=SimpleNamespace(apis=apis)))
    counts = [
        found.value(PREFIX + "requests_total", request=name, version="17")
        for name in ("Fetch", "FetchConsumer", "FetchFollower")
    ]
    assert counts == [5, 3, 2]
    assert found.value(PREFIX + "errors_total", request="Fetch", error="UNKNOWN_SERVER_ERROR") == 1
    assert 6 < found.value(PREFIX + "totaltimems", request="FetchFollower", quantile="0.99") < 10
    assert found.find(PREFIX + "requests_total", request="Metadata") == []
