import pytest

from kbroker.client.kafka_releases import MARKS, release_like
from kbroker.protocol.apis import API_BY_KEY


@pytest.mark.parametrize(
    ("versions", "release"),
    [
        ({0: (0, 11), 1: (0, 17), 16: (0, 5), 35: (1, 4)}, "3.9"),
        ({0: (3, 12), 1: (4, 17), 16: (0, 5)}, "4.0"),
        ({0: (0, 11), 1: (0, 16), 16: (0, 5)}, "3.8"),
        ({0: (0, 9), 1: (0, 13), 11: (0, 9), 35: (1, 3)}, "3.2"),
        ({0: (0, 8), 45: (0, 0), 22: (0, 2)}, "2.4"),
        ({0: (0, 2)}, ""),
        ({}, ""),
    ],
)
def test_a_release_is_known_by_what_came_with_it(versions: dict[int, tuple[int, int]], release: str) -> None:
    assert release_like(versions) == release


def test_every_mark_is_of_an_api_that_there_is() -> None:
    assert len({(key, version) for _, key, version in MARKS}) == len(MARKS)
    assert not {key for _, key, _ in MARKS} - API_BY_KEY.keys()
