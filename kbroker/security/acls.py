"""Access rules (Kafka's ACLs) as values: what they speak of, and the words for it on the wire and in ZooKeeper."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import compress
from typing import Any, NamedTuple, TypeVar

CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""
EVERY_NAME = "*"
EVERY_HOST = "*"
EVERYBODY = "User:*"
ANONYMOUS = "User:ANONYMOUS"
"""Who has not said who they are."""


class _Code(IntEnum):
    """A number by which rules are found: an enumeration's own hash is that of its name, and slow."""

    __hash__ = int.__hash__


class AclResource(_Code):
    """What an access rule is about."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPattern(_Code):
    """How a rule's name is compared; MATCH and ANY only in filters."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Code):
    """What a rule is for."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermission(_Code):
    """Whether a rule allows or denies."""

    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS_OF = {
    AclResource.TOPIC: (3, 4, 5, 6, 7, 8, 10, 11),
    AclResource.GROUP: (3, 6, 8),
    AclResource.CLUSTER: (5, 7, 8, 9, 10, 11, 12),
}
"""What may be done with a resource, as far as answers tell it to who asks (KIP-430)."""


class Pattern(NamedTuple):
    """The resources that a rule is about."""

    resource: AclResource
    kind: AclPattern
    name: str

    def __str__(self) -> str:
        return f"{camel(self.resource)}:{self.kind.name}:{self.name}"


class Entry(NamedTuple):
    """Who may or may not do what, from where: a rule without its resources."""

    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission


Word = TypeVar("Word", AclResource, AclOperation, AclPermission)


_WORDS: dict[type[IntEnum], dict[str, Any]] = {
    kind: {word.name.replace("_", "").lower(): word for word in kind}
    for kind in (AclResource, AclOperation, AclPermission)
}


@lru_cache(typed=True)
def camel(word: IntEnum) -> str:
    """Return Kafka's word for logs and znodes: TransactionalId, DescribeConfigs, Allow."""
    return "".join(part.capitalize() for part in word.name.split("_"))


def word_of(kind: type[Word], text: str) -> Word:
    """Return what a word means, whatever its case, with or without underscores; raises ValueError."""
    word: Word | None = _WORDS[kind].get(text.replace("_", "").lower())
    if word is not None:
        return word
    raise ValueError(f"{text!r} is none of {', '.join(camel(word) for word in kind)}")


def bits(operations: Iterable[int]) -> int:
    """Return the field of authorised operations: a bit per code."""
    return sum(1 << operation for operation in operations)


def java_address(host: str) -> str:
    """Return an address as Java writes it, for rules name hosts so: 0:0:0:0:0:0:0:1, and IPv4 inside IPv6 as IPv4."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":"))


@dataclass(frozen=True, slots=True)
class RuleFilter:
    """Which rules are meant; None and ANY match everything."""

    resource: AclResource = AclResource.ANY
    name: str | None = None
    pattern: AclPattern = AclPattern.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def takes(self, pattern: Pattern) -> bool:
        """Whether rules about these resources are meant."""
        if self.resource not in (AclResource.ANY, pattern.resource):
            return False
        if self.pattern not in (AclPattern.ANY, AclPattern.MATCH, pattern.kind):
            return False
        if self.name is None or self.pattern is not AclPattern.MATCH:
            return self.name in (None, pattern.name)
        if pattern.kind is AclPattern.LITERAL:
            return pattern.name in (self.name, EVERY_NAME)
        return self.name.startswith(pattern.name)

    def takes_entry(self, entry: Entry) -> bool:
        """Whether a rule's entry is meant."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermission.ANY, entry.permission)
        )

    @property
    def entry(self) -> tuple[str | None, str | None, AclOperation | None, AclPermission | None]:
        """Return what an entry has to be; None where it may be anything."""
        operation = None if self.operation is AclOperation.ANY else self.operation
        return self.principal, self.host, operation, None if self.permission is AclPermission.ANY else self.permission

    @property
    def only(self) -> Pattern | None:
        """The one pattern that can be meant; None where there may be several."""
        if self.name is None or self.resource is AclResource.ANY or self.pattern in (AclPattern.ANY, AclPattern.MATCH):
            return None
        return Pattern(self.resource, self.pattern, self.name)


class EntryFilters:
    """Many filters about one pattern: which of them, if any, means an entry is found without looking at each."""

    def __init__(self, filters: Iterable[tuple[int, RuleFilter]]) -> None:
        """`filters`: with their numbers, of which the lowest is the first."""
        self._by_form: dict[tuple[bool, ...], dict[tuple[object, ...], int]] = {}
        for number, each in filters:
            wanted = each.entry
            same_form = self._by_form.setdefault(tuple(part is not None for part in wanted), {})
            parts = tuple(part for part in wanted if part is not None)
            same_form[parts] = min(number, same_form.get(parts, number))

    def first(self, entry: Entry) -> int | None:
        """Return the number of the first filter that means an entry."""
        found = (numbers.get(tuple(compress(entry, form))) for form, numbers in self._by_form.items())
        return min((number for number in found if number is not None), default=None)
