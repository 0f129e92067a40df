"""The access rules of a cluster, seen by two brokers."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any

import pytest

from kbroker.cluster import access_rules
from kbroker.cluster.access_rules import AccessRules, open_access_rules
from kbroker.config.broker_config import read_broker_config
from kbroker.controller import acl_store
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.security.acls import (
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    Entry,
    EntryFilters,
    Pattern,
    RuleFilter,
)
from tests.fixtures.others import Others
from tests.fixtures.zookeeper import ZooKeeperAddress

TOPIC = Pattern(AclResource.TOPIC, AclPattern.LITERAL, "t")
READ = Entry("User:a", "*", AclOperation.READ, AclPermission.ALLOW)
WRITE = READ._replace(operation=AclOperation.WRITE)


def properties(address: ZooKeeperAddress, **more: str) -> dict[str, str]:
    authorizer = "kafka.security.authorizer.AclAuthorizer"
    return {"broker.id": "1", "zookeeper.connect": address.connect_string, "authorizer.class.name": authorizer, **more}


@pytest.fixture
async def sessions(zookeeper: ZooKeeperAddress) -> AsyncIterator[list[ZooKeeper]]:
    made = [ZooKeeper(zookeeper.connect_string) for _ in range(2)]
    for each in made:
        await each.connect()
    yield made
    for each in made:
        await each.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def may_read(rules: AccessRules) -> bool:
    return rules.authorizer.authority("User:a", "h").may(AclOperation.READ, AclResource.TOPIC, "t")


async def opened(config: dict[str, str], zookeeper: ZooKeeper) -> AccessRules:
    rules = await open_access_rules(read_broker_config(config), zookeeper)
    assert rules is not None
    return rules


async def test_a_rule_holds_at_once_where_it_is_made_and_soon_elsewhere(
    zookeeper: ZooKeeperAddress, sessions: list[ZooKeeper]
) -> None:
    one, other = [await opened(properties(zookeeper), session) for session in sessions]
    assert not may_read(one)
    await one.add(TOPIC, [READ, WRITE])
    assert may_read(one)
    await until(lambda: may_read(other))
    assert other.authorizer.patterns() == [TOPIC]
    assert await other.remove(TOPIC, EntryFilters([(0, RuleFilter(operation=AclOperation.READ))])) == [READ]
    assert not may_read(other)
    await until(lambda: not may_read(one))
    assert one.authorizer.entries(TOPIC) == {WRITE}


async def test_what_another_takes_away_while_a_rule_is_made_stays_away(
    zookeeper: ZooKeeperAddress, sessions: list[ZooKeeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = [await opened(properties(zookeeper), session) for session in sessions]
    change, replace = sessions[0].change_acls, one.authorizer.replace
    taken: list[frozenset[Entry]] = []

    def note(pattern: Pattern, entries: frozenset[Entry]) -> None:
        taken.append(entries)
        replace(pattern, entries)

    async def overtaken(*arguments: Any) -> Any:
        changed = await change(*arguments)
        await until(lambda: may_read(other))
        await other.remove(TOPIC, EntryFilters([(0, RuleFilter())]))
        await until(lambda: frozenset() in taken)
        return changed

    monkeypatch.setattr(one.authorizer, "replace", note)
    monkeypatch.setattr(sessions[0], "change_acls", overtaken)
    await one.add(TOPIC, [READ])
    assert not may_read(one)


async def test_rules_are_read_at_start_by_whoever_super_users_are(
    zookeeper: ZooKeeperAddress, sessions: list[ZooKeeper]
) -> None:
    await (await opened(properties(zookeeper), sessions[0])).add(TOPIC, [WRITE])
    more = {"super.users": " User:a ; User:CN=x,OU=y", "authorizer.zookeeper.url": zookeeper.connect_string}
    later = await opened(properties(zookeeper, **more), sessions[1])
    assert later.authorizer.super_users == {"User:a", "User:CN=x,OU=y"}
    assert later.authorizer.entries(TOPIC) == {WRITE}
    await later.close()
    assert sessions[1].is_connected, "only its own session is closed"


async def test_without_an_authorizer_there_are_no_rules(zookeeper: ZooKeeperAddress, sessions: list[ZooKeeper]) -> None:
    config = read_broker_config(properties(zookeeper) | {"authorizer.class.name": ""})
    assert await open_access_rules(config, sessions[0]) is None


@pytest.mark.slow
async def test_very_many_rules_about_one_pattern_are_read_written_and_told_beside_others(
    zookeeper: ZooKeeperAddress,
    sessions: list[ZooKeeper],
    others: Others,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    at_work: set[int] = set()

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            at_work.add(threading.get_ident())
            return function(*arguments)

        return called

    rules = await opened(properties(zookeeper), sessions[0])
    await rules.add(TOPIC, [READ._replace(principal=f"User:{number}") for number in range(1_000)])
    for module, name in ((acl_store, "decode_acls"), (acl_store, "encode_acls"), (access_rules, "_sorted_difference")):
        monkeypatch.setattr(module, name, noted(getattr(module, name)))
    turns: Counter[int] = Counter()
    caplog.set_level(logging.INFO, access_rules.__name__)
    monkeypatch.setattr(access_rules.log, "filters", [lambda record: turns.update([others.turns]) or True])
    removed = await rules.remove(TOPIC, EntryFilters([(0, RuleFilter(operation=AclOperation.READ))]))
    assert len(removed) == sum(turns.values()) == 1_000
    assert max(turns.values()) <= access_rules.LINES_AT_ONCE
    assert at_work
    assert threading.get_ident() not in at_work


async def test_rules_whose_reading_takes_long_do_not_replace_newer_ones(
    zookeeper: ZooKeeperAddress, sessions: list[ZooKeeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = await opened(properties(zookeeper), sessions[0])
    await rules.add(TOPIC, [READ])
    is_read, goes_on, unhurried, calls = asyncio.Event(), asyncio.Event(), acl_store._unhurried, count()

    async def long(function: Callable[[], frozenset[Entry]], data: bytes | None) -> frozenset[Entry]:
        entries = await unhurried(function, data)
        if next(calls) == 0:
            is_read.set()
            await goes_on.wait()
        return entries

    monkeypatch.setattr(acl_store, "_unhurried", long)
    older = asyncio.ensure_future(rules._read_again(TOPIC))
    await is_read.wait()
    await sessions[1].change_acls(TOPIC, lambda present: frozenset())
    newer = asyncio.ensure_future(rules._read_again(TOPIC))
    await asyncio.wait([newer], timeout=0.5)
    goes_on.set()
    await asyncio.gather(older, newer)
    assert not may_read(rules)
