"""Who comes to a broker when its disk has just been damaged, and looks whether it serves that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.client.connection import Connection
from kbroker.protocol.records.batch import verify_crc
from tests.simulation.promises import PromiseBroken
from tests.simulation.strangers import Stranger, fetch

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedBroker

PATIENCE_S = 4.0
"""So long a broker may take to start."""
LOOK_S = 0.1
SMALLEST_BATCH, LENGTH_ENDS = 61, 12


async def look_for_damage(
    visitor: Stranger, broker: SimulatedBroker, path: Path, done: Callable[[], None] = lambda: None
) -> None:
    """Read a partition from where a damaged segment begins, as consumers do, leader or not."""

    async def look(connection: Connection, key: str) -> None:
        topic, partition = path.parent.name.rsplit("-", 1)
        flips = broker.disks[0].flips
        answer = await fetch(connection, topic, int(partition), -1, int(path.stem))
        records = bytes(answer.responses[0].partitions[0].records or b"") if answer.responses else b""
        if has_damage(records) and broker.disks[0].flips == flips:
            raise PromiseBroken(f"{broker.host} serves a damaged batch of {path.parent.name}/{path.name}")

    loop = asyncio.get_running_loop()
    latest = loop.time() + PATIENCE_S
    try:
        while not broker.is_serving and loop.time() < latest:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        await visitor.call_on(broker.host, path.parent.name, look)
    finally:
        done()


def has_damage(records: bytes) -> bool:
    """Whether a whole batch does not match its checksum."""
    position = 0
    while position + SMALLEST_BATCH <= len(records):
        size = LENGTH_ENDS + int.from_bytes(records[position + 8 : position + LENGTH_ENDS], signed=True)
        if size < SMALLEST_BATCH:
            return True
        if position + size > len(records):
            return False  # cut short by the answer's end
        if not verify_crc(records, position, size):
            return True
        position += size
    return False
