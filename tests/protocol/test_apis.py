"""The index of APIs."""

from kbroker.protocol.apis import API_BY_KEY, api_of
from kbroker.protocol.messages.fetch import FetchRequest, FetchResponse


def test_an_api_is_found_by_its_request_and_by_its_response() -> None:
    assert api_of(FetchRequest) is api_of(FetchResponse) is API_BY_KEY[1]
    assert (API_BY_KEY[1].name, API_BY_KEY[1].min_version, API_BY_KEY[1].max_version) == ("Fetch", 4, 17)
    assert API_BY_KEY[1].flexible_from == 12


def test_an_api_that_never_is_flexible_says_so() -> None:
    assert API_BY_KEY[17].flexible_from > API_BY_KEY[17].max_version
