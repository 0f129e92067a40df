"""Noticing that the process stood still, on a clock of the test's."""

from __future__ import annotations

import asyncio

import pytest

from kbroker.controller.znode_operations import ZooKeeperError
from kbroker.replica.standstill import Standstill, proof

PATIENCE_S = 5.0


class Played:
    """A standstill's clock, and the proof that is waited for."""

    def __init__(self) -> None:
        self.now = 100.0
        self.asked = 0
        self.proven = asyncio.Event()
        self.standstill = Standstill(PATIENCE_S, self._prove, lambda: self.now)

    async def _prove(self) -> None:
        self.asked += 1
        await self.proven.wait()


async def test_a_short_gap_is_no_standstill() -> None:
    played = Played()
    await asyncio.sleep(0)
    played.now += PATIENCE_S
    assert not played.standstill.is_unproven()
    played.standstill.close()
    assert played.asked == 0


async def test_writes_wait_until_it_is_known_who_leads() -> None:
    played = Played()
    await asyncio.sleep(0)
    played.now += PATIENCE_S + 0.1
    assert played.standstill.is_unproven(), "noticed by the first write, before any timer"
    await asyncio.sleep(0)
    assert played.standstill.is_unproven()
    assert played.asked == 1
    played.proven.set()
    async with asyncio.timeout(20):
        while played.standstill.is_unproven():  # noqa: ASYNC110
            await asyncio.sleep(0)
    played.now += PATIENCE_S
    assert not played.standstill.is_unproven()
    played.standstill.close()


async def test_a_failed_proof_does_not_close_the_broker_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    played = Played()
    await asyncio.sleep(0)
    played.now += 2 * PATIENCE_S
    assert played.standstill.is_unproven()
    await asyncio.sleep(0)
    played.standstill.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not played.standstill.is_unproven()
    assert "stood still for 10.0 s" in caplog.text


async def test_the_proof_is_asked_for_until_zookeeper_knows_the_present_life() -> None:
    answers: list[int | ZooKeeperError | None] = [ZooKeeperError("the connection is lost"), None, 7, 9]

    async def registered_epoch() -> int | None:
        answer = answers.pop(0)
        if isinstance(answer, ZooKeeperError):
            raise answer
        return answer

    await asyncio.wait_for(proof(registered_epoch, lambda present: present == 9), 30)
    assert answers == []


async def test_no_proof_is_waited_for_without_end_while_zookeeper_is_silent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kbroker.replica.standstill.PROOF_S", 0.05)
    silent = asyncio.Event()

    async def registered_epoch() -> int | None:
        await silent.wait()
        return 9

    await asyncio.wait_for(proof(registered_epoch, lambda present: present == 9), 30)
    assert "silent for 0.05 s: leading on as before" in caplog.text
