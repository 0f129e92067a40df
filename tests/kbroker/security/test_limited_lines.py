"""Lines that strangers can cause are limited, and none goes unmentioned."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from kbroker.security.limited_lines import LINES_EACH, LINES_OF_ALL, LimitedLines

log = logging.getLogger("tests.limited_lines")
A, B = "10.0.0.1", "10.0.0.2"


@pytest.fixture(autouse=True)
def _all_is_heard(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG, logger=log.name):
        yield


def test_an_address_has_some_lines_in_a_period_and_then_a_number(caplog: pytest.LogCaptureFixture) -> None:
    now = 5.0
    limit = LimitedLines(log, "refused logins", clock=lambda: now)
    levels = [limit.level(A, logging.WARNING) for _ in range(25)]
    assert levels == [logging.WARNING] * LINES_EACH + [logging.DEBUG] * (25 - LINES_EACH)
    assert limit.level(B, logging.INFO) == logging.INFO
    assert caplog.messages == []
    now = 15.0
    assert limit.level(B, logging.WARNING) == logging.WARNING
    assert caplog.messages == [f"{25 - LINES_EACH} more refused logins of {A} in 10 s"]
    assert caplog.records[0].levelno == logging.WARNING
    limit.tell()
    limit.tell()
    assert len(caplog.messages) == 1


def test_however_many_addresses_there_are_lines_and_memory_have_limits(caplog: pytest.LogCaptureFixture) -> None:
    limit = LimitedLines(log, "refused logins", clock=lambda: 5.0)
    names = [f"10.0.{number // 256}.{number % 256}" for number in range(5_000)]
    levels = [limit.level(name, logging.WARNING) for name in names]
    assert levels.count(logging.WARNING) == LINES_OF_ALL
    limit.tell()
    assert len(caplog.messages) == LINES_OF_ALL + 1
    assert caplog.messages[-1] == f"{5_000 - 2 * LINES_OF_ALL} more refused logins of others in 10 s"


async def test_what_was_held_back_is_told_though_nothing_comes_after_it(caplog: pytest.LogCaptureFixture) -> None:
    limit = LimitedLines(log, "refused logins", period_s=0.05, clock=lambda: 5.0)
    for _ in range(LINES_EACH + 1):
        limit.level(A, logging.INFO)
    async with asyncio.timeout(30):
        while not caplog.messages:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert caplog.messages == [f"1 more refused logins of {A} in 0.05 s"]
