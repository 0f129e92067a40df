"""Access rules in ZooKeeper, as Kafka's AclAuthorizer keeps them.

    /kafka-acl/Topic/orders                     the rules about the topic orders; `*` is the name of all
    /kafka-acl-extended/prefixed/Topic/or       those about all topics whose names begin with or
        {"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"*"}]}
    /kafka-acl-changes/acl_changes_<n>          TOPIC:orders                                 read these rules anew
    /kafka-acl-extended-changes/acl_changes_<n> {"version":1,"resourceType":"TOPIC","name":"or",…}

A change is written with the version that was read, and made again when somebody else was faster.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from kbroker.controller.change_notifications import ChangeNotifications
from kbroker.controller.znode_operations import BadVersion, NodeExists, NoNode, Znodes
from kbroker.controller.znode_values import UNREADABLE, read_json, write_json
from kbroker.controller.znodes import MalformedZnode
from kbroker.security.acls import AclOperation, AclPattern, AclPermission, AclResource, Entry, Pattern, camel, word_of

log = logging.getLogger(__name__)

ROOTS = {AclPattern.LITERAL: "/kafka-acl", AclPattern.PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGES = {AclPattern.LITERAL: "/kafka-acl-changes", AclPattern.PREFIXED: "/kafka-acl-extended-changes"}
CHANGE_NAME = "acl_changes_"
KINDS = (AclPattern.LITERAL, AclPattern.PREFIXED)
RESOURCES = tuple(each for each in AclResource if each is not AclResource.ANY)

MUCH = 1 << 14
"""Bytes of rules that take milliseconds to read."""
ATTEMPTS = 11
PAUSE_S = 0.1

Entries = frozenset[Entry]


def acl_path(pattern: Pattern) -> str:
    """Where the rules about a pattern are."""
    return f"{ROOTS[pattern.kind]}/{camel(pattern.resource)}/{pattern.name}"


def encode_acls(entries: Iterable[Entry]) -> bytes:
    """Data of a pattern's node."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": camel(entry.permission),
            "operation": camel(entry.operation),
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return write_json({"version": 1, "acls": acls})


def decode_acls(data: bytes | None, path: str) -> Entries:
    """The rules in a pattern's node; raises MalformedZnode, above all for another version than 1."""
    if not data:
        return frozenset()
    try:
        value = read_json(data)
        if value["version"] != 1:
            raise MalformedZnode(f"{path} has version {value['version']}, 1 is known")
        return frozenset(
            Entry(
                str(acl["principal"]),
                str(acl["host"]),
                word_of(AclOperation, acl["operation"]),
                word_of(AclPermission, acl["permissionType"]),
            )
            for acl in value.get("acls", ())
        )
    except UNREADABLE as error:
        raise MalformedZnode(f"{path} does not hold access rules: {error!r}") from error


def encode_acl_change(pattern: Pattern) -> bytes:
    """Data of the notification that a pattern's rules have changed."""
    resource = pattern.resource.name
    if pattern.kind is AclPattern.LITERAL:
        return f"{resource}:{pattern.name}".encode()
    return write_json({"version": 1, "resourceType": resource, "name": pattern.name, "patternType": pattern.kind.name})


def _decode_literal_change(data: bytes | None, path: str) -> Pattern | None:
    try:
        resource, colon, name = (data or b"").decode().partition(":")
        if not colon:
            raise ValueError("no colon")
        return Pattern(word_of(AclResource, resource), AclPattern.LITERAL, name)
    except ValueError as error:
        raise MalformedZnode(f"{path} names no resource: {error}") from error


def _decode_extended_change(data: bytes | None, path: str) -> Pattern | None:
    try:
        value = read_json(data)
        if value["version"] != 1:
            return None
        if value["patternType"] != AclPattern.PREFIXED.name:
            raise ValueError(f"pattern type {value['patternType']}")
        return Pattern(word_of(AclResource, value["resourceType"]), AclPattern.PREFIXED, str(value["name"]))
    except UNREADABLE as error:
        raise MalformedZnode(f"{path} names no resource: {error!r}") from error


async def _unhurried(function: Callable[[], Entries], data: bytes | None) -> Entries:
    """Read rules; a thread reads very many of them."""
    return function() if len(data or b"") < MUCH else await asyncio.to_thread(function)


class AclStore(Znodes):
    """The authorizer's side of ZooKeeper."""

    async def ensure_acl_paths(self) -> None:
        """Make the directories that the authorizer makes."""
        paths = [f"{ROOTS[kind]}/{camel(resource)}" for kind in KINDS for resource in RESOURCES]
        for path in (*paths, *CHANGES.values()):
            if await self.exists(path) is None:
                try:
                    await self.create_recursive(path, None)
                except NodeExists:
                    continue

    async def read_all_acls(self) -> dict[Pattern, Entries]:
        """All rules; raises MalformedZnode for some that cannot be read. Types that nobody knows are left out."""
        patterns = []
        for kind in KINDS:
            for word in await self.children(ROOTS[kind]):
                try:
                    resource = word_of(AclResource, word)
                except ValueError as error:
                    log.warning("access rules below %s/%s are left out: %s", ROOTS[kind], word, error)
                    continue
                names = await self.children(f"{ROOTS[kind]}/{word}")
                patterns += [Pattern(resource, kind, name) for name in names]
        paths = [acl_path(pattern) for pattern in patterns]
        found = {}
        for pattern, path, node in zip(patterns, paths, await self.get_many(paths), strict=True):
            if node is not None:
                found[pattern] = decode_acls(node[0], path)
        return found

    async def read_acls(self, pattern: Pattern) -> tuple[Entries, int | None]:
        """The rules about a pattern and the version of their node, None where there is none."""
        path = acl_path(pattern)
        try:
            data, stat = await self.get(path)
        except NoNode:
            return frozenset(), None
        return await _unhurried(partial(decode_acls, data, path), data), stat.version

    async def change_acls(self, pattern: Pattern, change: Callable[[Entries], Entries]) -> tuple[Entries, Entries]:
        """Change the rules about a pattern and tell every broker; returns those before and after.

        Raises BadVersion when others were faster all the time.
        """
        path = acl_path(pattern)
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(PAUSE_S * (1 + random.random()))
            before, version = await self.read_acls(pattern)
            after = await asyncio.to_thread(change, before)
            if after == before:
                if attempt:  # it was written, perhaps, and the answer lost
                    await self._tell(pattern)
                return before, after
            try:
                if version is None:
                    await self.create_recursive(path, await asyncio.to_thread(encode_acls, after))
                elif after:
                    await self.set(path, await asyncio.to_thread(encode_acls, after), version)
                else:
                    await self.delete(path, version)
            except (BadVersion, NodeExists, NoNode):
                continue
            await self._tell(pattern)
            return before, after
        raise BadVersion(path)

    async def _tell(self, pattern: Pattern) -> None:
        prefix = f"{CHANGES[pattern.kind]}/{CHANGE_NAME}"
        await self.create(prefix, encode_acl_change(pattern), sequential=True)

    async def watch_acl_changes(self, callback: Callable[[Pattern], Awaitable[None]]) -> None:
        """Call back for each pattern whose rules change from now on, and once for each change still listed."""
        literal, extended = (CHANGES[kind] for kind in KINDS)
        await ChangeNotifications(self, literal, _decode_literal_change, callback).watch()
        await ChangeNotifications(self, extended, _decode_extended_change, callback).watch()
