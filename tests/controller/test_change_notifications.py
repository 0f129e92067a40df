"""Notifications that every broker reads."""

from __future__ import annotations

import asyncio
import time

import pytest

from kbroker.controller.change_notifications import EXPIRY_MS, ChangeNotifications
from kbroker.controller.znode_operations import SessionExpired, Stat, ZooKeeperError
from kbroker.controller.znodes import MalformedZnode
from tests.controller.conftest import Connect, until

PATH = "/some-changes"


def decode(data: bytes | None, path: str) -> str | None:
    if data == b"nonsense":
        raise MalformedZnode(path)
    return None if data == b"of the future" else (data or b"").decode()


async def test_changes_are_told_once_and_in_order_without_those_that_nobody_can_read(connect: Connect) -> None:
    writer, reader = await connect(), await connect()
    await writer.create(PATH, None)
    await writer.create(f"{PATH}/c_", b"before", sequential=True)
    told: list[str] = []

    async def take(change: str) -> None:
        await asyncio.sleep(0)
        told.append(change)

    await ChangeNotifications(reader, PATH, decode, take).watch()
    assert told == ["before"]
    for data in (b"nonsense", b"of the future", *(b"%d" % number for number in range(10))):
        await writer.create(f"{PATH}/c_", data, sequential=True)
    await until(lambda: len(told) == 11)
    assert told[1:] == [str(number) for number in range(10)]


async def test_a_change_whose_reading_the_sessions_end_interrupted_is_read_again(connect: Connect) -> None:
    session = await connect()
    await session.create(PATH, None)
    told: list[str] = []

    async def take(change: str) -> None:
        told.append(change)
        if told == ["revoked"]:
            raise ZooKeeperError("the session has ended")

    notifications = ChangeNotifications(session, PATH, decode, take)
    await notifications.watch()
    await session.create(f"{PATH}/c_", b"revoked", sequential=True)
    await until(lambda: told == ["revoked"])
    await notifications.watch()  # as when a new session stands
    assert told == ["revoked", "revoked"]


async def test_what_is_not_read_is_said_unless_the_session_ended_as_it_does_when_a_broker_stops(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    session = await connect()
    await session.create(PATH, None)
    failures: list[ZooKeeperError] = [ZooKeeperError("no answer"), SessionExpired("closed")]
    seen: list[str] = []

    async def take(change: str) -> None:
        seen.append(change)
        if failures:
            raise failures.pop()

    await ChangeNotifications(session, PATH, decode, take).watch()
    for number in (1, 2, 3):
        await session.create(f"{PATH}/c_", b"same", sequential=True)
        await until(lambda number=number: len(seen) == number)  # type: ignore[misc]
    assert [record.message for record in caplog.records if "not read" in record.message] == [
        f"changes below {PATH} not read: no answer"
    ]


async def test_a_change_that_nobody_can_follow_does_not_hold_up_those_behind_it(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    session = await connect()
    await session.create(PATH, None)
    told: list[str] = []

    async def take(change: str) -> None:
        told.append(change)
        if change == "bad":
            raise ValueError("a bug")

    for data in (b"bad", b"good"):
        await session.create(f"{PATH}/c_", data, sequential=True)
    await ChangeNotifications(session, PATH, decode, take).watch()
    assert told == ["bad", "good"]
    assert sum("could not be followed" in line for line in caplog.messages) == 1


async def test_a_change_of_what_nobody_can_read_is_said_in_a_line(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    session = await connect()
    await session.create(PATH, None)

    async def take(change: str) -> None:
        raise MalformedZnode("/config/topics/t does not hold JSON")

    await session.create(f"{PATH}/c_", b"bad", sequential=True)
    await ChangeNotifications(session, PATH, decode, take).watch()
    (line,) = [record for record in caplog.records if "is not followed" in record.message]
    assert "/config/topics/t does not hold JSON" in line.message
    assert line.exc_info is None


async def test_old_changes_are_removed(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await connect()
    await session.create(PATH, None)
    await session.create(f"{PATH}/c_", b"old", sequential=True)
    later = time.time() + EXPIRY_MS / 1000 + 60
    monkeypatch.setattr(time, "time", lambda: later)
    await ChangeNotifications(session, PATH, decode, lambda change: None).watch()
    assert await session.children(PATH) == []


async def test_of_the_changes_that_are_to_stay_only_the_oldest_is_looked_at(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await connect()
    await session.create(PATH, None)
    for _ in range(3):
        await session.create(f"{PATH}/c_", b"old", sequential=True)
    await asyncio.sleep(0.02)
    staying = [await session.create(f"{PATH}/c_", b"young", sequential=True) for _ in range(20)]
    _, oldest = await session.get(staying[0])
    monkeypatch.setattr(time, "time", lambda: (oldest.ctime_ms + EXPIRY_MS - 1) / 1000)
    looked_at: list[str] = []
    exists = session.exists

    async def look(path: str) -> Stat | None:
        looked_at.append(path)
        return await exists(path)

    monkeypatch.setattr(session, "exists", look)
    await ChangeNotifications(session, PATH, decode, lambda change: None).watch()
    assert [f"{PATH}/{name}" for name in await session.children(PATH)] == staying
    assert len(looked_at) == 4


async def test_what_several_changes_say_is_told_once(connect: Connect) -> None:
    session = await connect()
    await session.create(PATH, None)
    for data in (b"a", b"b", b"a", b"nonsense", b"c", b"a"):
        await session.create(f"{PATH}/c_", data, sequential=True)
    told: list[str] = []

    async def take(change: str) -> None:
        told.append(change)

    await ChangeNotifications(session, PATH, decode, take).watch()
    assert told == ["b", "c", "a"]
