"""Where partitions end that others lead, over real sockets."""

from __future__ import annotations

import asyncio

from kbroker.cluster import latest_offsets
from kbroker.cluster.latest_offsets import LatestOffsets
from tests.fixtures.copies import Copies, until
from tests.fixtures.data_path import TOPIC


def asking(copies: Copies, broker_id: int = 2) -> LatestOffsets:
    return LatestOffsets(copies.brokers[broker_id].metadata, broker_id, "PLAINTEXT")


async def known(offsets: LatestOffsets, *partitions: int) -> dict[tuple[str, int], int]:
    """As another thread asks for it."""
    return await asyncio.to_thread(offsets, {(TOPIC, partition) for partition in partitions})


async def test_leaders_are_asked_and_what_nobody_leads_stays_unknown(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    await copies.produce(b"a", b"b", b"c")
    offsets = asking(copies)
    found: dict[tuple[str, int], int] = {}
    for _ in range(100):  # the first answer may take longer than it is waited for
        found = await known(offsets, 0, 7)
        if found:
            break
    assert found == {(TOPIC, 0): 3}
    offsets.close()


async def test_a_leader_that_is_gone_is_told_of_until_that_is_stale(copies: Copies, monkeypatch: object) -> None:
    await copies.elect(1, is_new=True)
    await copies.produce(b"a")
    offsets = asking(copies)
    await offsets.refresh([(TOPIC, 0)])
    await copies.stop(1)
    offsets._known = {key: (heard - 2 * latest_offsets.FRESH_S, end) for key, (heard, end) in offsets._known.items()}
    assert await known(offsets, 0) == {(TOPIC, 0): 1}
    offsets._known = {key: (heard - latest_offsets.STALE_S, end) for key, (heard, end) in offsets._known.items()}
    assert await known(offsets, 0) == {}
    offsets.close()


async def test_a_new_leader_is_asked_where_the_old_one_refuses(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    await copies.produce(b"a")
    await copies.until_equal()
    offsets = asking(copies)
    await offsets.refresh([(TOPIC, 0)])
    await copies.elect(3)
    await copies.produce(b"b")
    await until(lambda: copies.hosted(3).log.high_watermark == 2)
    await offsets.refresh([(TOPIC, 0)])
    assert await known(offsets, 0) == {(TOPIC, 0): 2}
    offsets.close()


async def test_after_the_close_nobody_is_asked(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    offsets = asking(copies)
    offsets.close()
    assert await known(offsets, 0) == {}
