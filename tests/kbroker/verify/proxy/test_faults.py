"""Which links a fault concerns, and for how long."""

import asyncio

import pytest

from kbroker.verify.proxy.faults import (
    ActiveFaults,
    Cut,
    Delay,
    Direction,
    LinkName,
    LoseAnswer,
    Refuse,
    ResetAfter,
    Throttle,
    Where,
)

LINK = LinkName(7, "orders-3", 2)
TO_BROKER, TO_CLIENT = Direction.TO_BROKER, Direction.TO_CLIENT


@pytest.mark.parametrize(
    ("where", "concerns"),
    [
        (Where(), True),
        (Where(client_id="orders-3"), True),
        (Where(client_id="orders-*"), True),
        (Where(client_id="orders"), False),
        (Where(client_id="orders-*", broker=2), True),
        (Where(client_id="orders-*", broker=1), False),
        (Where(link=7), True),
        (Where(link=8), False),
    ],
)
def test_a_fault_concerns_the_links_that_fulfil_all_it_names(where: Where, concerns: bool) -> None:
    assert where.concerns(LINK) is concerns


def test_a_link_without_a_client_id_is_met_by_faults_for_all_alone() -> None:
    assert Where().concerns(LinkName(1))
    assert not Where(client_id="*").concerns(LinkName(1))


def test_what_a_fault_concerns_is_told_in_words() -> None:
    assert str(Where()) == "all links"
    assert str(Where("me", 2, 7)) == "client me, broker 2, link 7"


async def test_a_cut_holds_one_direction_until_it_is_healed() -> None:
    faults = ActiveFaults()
    cut = Cut(where=Where(broker=2), direction=TO_BROKER)
    faults.add(cut)
    await faults.until_open(LINK, TO_CLIENT)
    await faults.until_open(LinkName(8, "orders-3", 1), TO_BROKER)
    before = bool(cut.happened)
    waiting = asyncio.create_task(faults.until_open(LINK, TO_BROKER))
    await asyncio.sleep(0)
    other = Delay(seconds=0.0)
    faults.add(other)
    faults.remove(other)
    await asyncio.sleep(0)
    assert (before, bool(cut.happened)) == (False, True)
    assert not waiting.done()
    faults.remove(cut)
    await asyncio.wait_for(waiting, 20)
    assert not faults


async def test_a_delay_ends_by_itself_or_with_the_healing() -> None:
    faults = ActiveFaults()
    short, long = Delay(seconds=0.02), Delay(seconds=3_600)
    faults.add(short)
    begin = asyncio.get_running_loop().time()
    await faults.delay(LINK, TO_BROKER)
    assert asyncio.get_running_loop().time() - begin >= 0.02
    faults.clear()
    faults.add(long)
    waiting = asyncio.create_task(faults.delay(LINK, TO_BROKER))
    await asyncio.sleep(0)
    assert not waiting.done()
    faults.clear()
    await asyncio.wait_for(waiting, 20)


async def test_a_request_fault_happens_as_often_as_it_should() -> None:
    faults = ActiveFaults()
    faults.add(LoseAnswer(api_key=0, times=2, where=Where(broker=2)))
    assert faults.take(LoseAnswer, LINK, 1) is None
    assert faults.take(LoseAnswer, LinkName(1, "me", 1), 0) is None
    assert faults.take(LoseAnswer, LINK, 0) is not None
    assert faults
    assert faults.take(LoseAnswer, LINK, 0) is not None
    assert faults.take(LoseAnswer, LINK, 0) is None
    assert not faults


async def test_the_slowest_throttle_counts() -> None:
    faults = ActiveFaults()
    for rate in (300, 100, 200):
        faults.add(Throttle(bytes_per_second=rate, direction=TO_CLIENT))
    slowest = faults.throttle(LINK, TO_CLIENT)
    assert slowest is not None
    assert slowest.bytes_per_second == 100
    assert faults.throttle(LINK, TO_BROKER) is None


async def test_refusals_and_resets_are_found_where_they_hold() -> None:
    faults = ActiveFaults()
    refuse, reset = Refuse(where=Where(client_id="orders-*")), ResetAfter(bytes_left=5, direction=TO_BROKER)
    faults.add(refuse)
    faults.add(reset)
    assert faults.refuses(LINK)
    assert refuse.has_happened.is_set()
    assert not faults.refuses(LinkName(1, "me"))
    assert faults.reset_after(LINK, TO_BROKER) is reset
    assert faults.reset_after(LINK, TO_CLIENT) is None
    faults.remove(reset)
    faults.remove(reset)
    assert not faults.holds(reset)
