"""May they do that? The decisions of Kafka's AclAuthorizer, found in an index. Pure.

    super user                                                     yes
    no rule about the resource, whoever it is for                  as allow.everyone.if.no.acl.found says
    a Deny for them (or everybody, from everywhere, for All)       no; a Deny implies nothing else
    an Allow for them, also one that implies what they want        yes
    else                                                           no

Rules about a resource: those of its literal name, of the literal `*`, of each prefix of its name. An `Authority` is
one principal at one address: it remembers what was decided until a rule changes. Each answer is a line in the audit log
`kafka.authorizer.logger`: a refusal at INFO, what is allowed at DEBUG, mere probes at TRACE. What is allowed and not
worth a line stands in `granted`, where one look-up finds it: when the log's level changes, it is to be forgotten, too.
"""

from __future__ import annotations

import logging
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from weakref import WeakSet

from kbroker.security.acls import (
    CLUSTER_NAME,
    EVERY_HOST,
    EVERY_NAME,
    EVERYBODY,
    OPERATIONS_OF,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    Entry,
    Pattern,
    bits,
    camel,
    java_address,
)
from kbroker.security.limited_lines import LimitedLines

audit = logging.getLogger("kafka.authorizer.logger")
TRACE = 5
AUDITED_EACH, AUDITED_OF_ALL = 3, 500
"""Lines about the same refusal, and about all, in ten seconds."""

LONGEST_REMEMBERED = 255
"""Of names: a longer one is no topic's, and is decided each time it is asked for."""
MOST_REMEMBERED = 10_000
"""Decisions that an authority remembers."""
MOST_AUTHORITIES = 10_000
MOST_BYTES = 1 << 28
"""Of what all authorities remember together: who may choose addresses and names fills no memory with them."""
BYTES_EACH = 150
"""Of a decision, besides the name: as measured."""
MOST_SPOKEN = 1_000
"""Of what may be said to somebody about an operation: who lists ten thousand topics asks the same of each."""

_IMPLIED_BY = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
"""Who is allowed one of these is allowed that."""


@lru_cache(MOST_SPOKEN)
def _spoken(permission: AclPermission, who: str, host: str, operations: tuple[AclOperation, ...]) -> frozenset[Entry]:
    """Return the entries of which one is enough to allow (or deny) one of the operations to who asks."""
    return frozenset(
        Entry(principal, place, operation, permission)
        for principal in (who, EVERYBODY)
        for place in (host, EVERY_HOST)
        for operation in operations
    )


class Authorizer:
    """All rules, by what they are about."""

    def __init__(self, super_users: Iterable[str] = (), allow_without_rules: bool = False) -> None:
        self.super_users = frozenset(super_users)
        self.allow_without_rules = allow_without_rules
        """Whether what no rule speaks of is everybody's."""
        self.version = 0
        """Grows with each change: what was decided before may not hold."""
        self._rules: dict[Pattern, frozenset[Entry]] = {}
        self._prefix_lengths: dict[AclResource, dict[int, int]] = {}
        """Resource type -> length of a prefix -> how many prefixes have it."""
        self._authorities: dict[tuple[str, str], Authority] = {}
        self._remembering: WeakSet[Authority] = WeakSet()
        self._bytes = 0
        """Of what is remembered, and by authorities that are gone since all was forgotten."""
        self.refusals = LimitedLines(audit, "refusals", each=AUDITED_EACH, most=AUDITED_OF_ALL)
        """Whoever asks again and again for the same is in the audit log some times, and then counted."""

    # -- the rules ----------------------------------------------------------------------------------------------------

    def replace(self, pattern: Pattern, entries: Iterable[Entry]) -> None:
        """These are the rules about a pattern now; none: it is forgotten."""
        entries = frozenset(entries)
        known = self._rules.pop(pattern, None)
        if entries:
            self._rules[pattern] = entries
        if pattern.kind is AclPattern.PREFIXED:
            counts = self._prefix_lengths.setdefault(pattern.resource, {})
            length = len(pattern.name)
            counts[length] = counts.get(length, 0) + bool(entries) - (known is not None)
            if not counts[length]:
                del counts[length]
        self.version += 1
        self.forget()

    def forget(self) -> None:
        """What was decided, and who is told of it, may be otherwise now."""
        for authority in self._remembering:
            authority.forget()
        self._bytes = 0

    def remembers(self, count: int) -> None:
        """An authority is about to remember so many bytes more: where all have too many, none keeps any."""
        if self._bytes + count > MOST_BYTES:
            self.forget()
        self._bytes += count

    def forgot(self, count: int) -> None:
        """An authority has so many bytes less."""
        self._bytes -= count

    def entries(self, pattern: Pattern) -> frozenset[Entry]:
        """Return the rules about a pattern."""
        return self._rules.get(pattern, frozenset())

    def patterns(self) -> list[Pattern]:
        """Return the patterns that rules are about."""
        return list(self._rules)

    # -- decisions ----------------------------------------------------------------------------------------------------

    def authority(self, principal: str, address: str) -> Authority:
        """Return what remembers the decisions about a principal at an address."""
        key = principal, address
        found = self._authorities.get(key)
        if found is None:
            while len(self._authorities) >= MOST_AUTHORITIES:
                del self._authorities[next(iter(self._authorities))]
            found = self._authorities[key] = Authority(self, principal, address)
            self._remembering.add(found)
        return found

    def decide(self, who: str, host: str, operation: AclOperation, resource: AclResource, name: str) -> bool:
        """Whether a principal at a host may do that with a resource."""
        if who in self.super_users:
            return True
        candidates = list(self._about(resource, name))
        if not candidates:
            return self.allow_without_rules
        exactly = (operation, AclOperation.ALL)
        denials = _spoken(AclPermission.DENY, who, host, exactly)
        if not all(map(denials.isdisjoint, candidates)):
            return False
        allowances = _spoken(AclPermission.ALLOW, who, host, (*exactly, *_IMPLIED_BY.get(operation, ())))
        return not all(map(allowances.isdisjoint, candidates))

    def _about(self, resource: AclResource, name: str) -> Iterator[frozenset[Entry]]:
        find = self._rules.get
        for literal in (name, EVERY_NAME) if name != EVERY_NAME else (name,):
            rules = find(Pattern(resource, AclPattern.LITERAL, literal))
            if rules is not None:
                yield rules
        for length in self._prefix_lengths.get(resource, ()):
            if length <= len(name):
                rules = find(Pattern(resource, AclPattern.PREFIXED, name[:length]))
                if rules is not None:
                    yield rules

    def decide_for_any(self, who: str, host: str, operation: AclOperation, resource: AclResource) -> bool:
        """Whether there can be a resource of the type with which they may do that."""
        if who in self.super_users:
            return True
        denials, allowances = (
            _spoken(permission, who, host, (operation, AclOperation.ALL))
            for permission in (AclPermission.DENY, AclPermission.ALLOW)
        )
        denied: dict[AclPattern, set[str]] = {AclPattern.LITERAL: set(), AclPattern.PREFIXED: set()}
        allowed = []
        for pattern, rules in self._rules.items():
            if pattern.resource is resource:
                if not denials.isdisjoint(rules):
                    denied[pattern.kind].add(pattern.name)
                if not allowances.isdisjoint(rules):
                    allowed.append(pattern)
        if EVERY_NAME in denied[AclPattern.LITERAL]:
            return False
        return self.allow_without_rules or any(_is_left(pattern, denied) for pattern in allowed)


def _is_left(allowed: Pattern, denied: Mapping[AclPattern, set[str]]) -> bool:
    """Whether an Allow is not wholly taken back by the Denies."""
    name = allowed.name
    if allowed.kind is AclPattern.LITERAL:
        if name == EVERY_NAME:
            return True
        if name in denied[AclPattern.LITERAL]:
            return False
    prefixes = denied[AclPattern.PREFIXED]
    return not any(name[:length] in prefixes for length in range(1, len(name) + 1)) if prefixes else True


_ALL_BITS = {resource: bits(operations) for resource, operations in OPERATIONS_OF.items()}


def right(operation: AclOperation, resource: AclResource) -> int:
    """Return a number for an operation on a type of resource: hashed in no time, unlike the two."""
    return int(operation) << 8 | int(resource)


class Everything:
    """The authority of all where there is no authorizer."""

    principal = ""
    is_limited = False
    """Whether there may be something that is not allowed."""

    def __init__(self) -> None:
        self.granted: defaultdict[int, set[str]] = defaultdict(set)
        """By `right`, names of which it is known that it is allowed with them, and that nobody wants to hear of it."""

    @property
    def version(self) -> int:
        """Of the rules: what was allowed in another may not be in this."""
        return 0

    def may(
        self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME, api: str = "", times: int = 1
    ) -> bool:
        """Whether that is allowed; `times` is how often the request of this API names the resource."""
        return True

    def could(self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME, api: str = "") -> bool:
        """Whether that would be allowed: asked to choose what to show, so that a refusal is no news."""
        return True

    def may_with_any(self, operation: AclOperation, resource: AclResource, api: str = "") -> bool:
        """Whether that is allowed with some resource of the type."""
        return True

    def operations(self, resource: AclResource, name: str = CLUSTER_NAME) -> int:
        """Return what is allowed, a bit per operation."""
        return _ALL_BITS[resource]


EVERYTHING = Everything()


class Authority(Everything):
    """What one principal may do from one address."""

    def __init__(self, authorizer: Authorizer, principal: str, address: str) -> None:
        super().__init__()
        self.principal = principal
        self.host = java_address(address)
        self.is_limited = principal not in authorizer.super_users
        self._authorizer = authorizer
        self._known: dict[tuple[int, str | None], bool] = {}
        self._bytes = 0

    def forget(self) -> None:
        """A rule has changed: what was decided may not hold."""
        self._authorizer.forgot(self._bytes)
        self._bytes = 0
        self._known.clear()
        for names in self.granted.values():
            names.clear()  # who has hold of the set sees it

    @property
    def version(self) -> int:
        """See Everything."""
        return self._authorizer.version

    def may(
        self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME, api: str = "", times: int = 1
    ) -> bool:
        """See Everything; the audit log is told."""
        is_allowed = self._decide(operation, resource, name)
        level = logging.DEBUG if is_allowed else logging.INFO
        if audit.isEnabledFor(level):
            self._tell(level, is_allowed, operation, resource, name, api, times)
        return is_allowed

    def could(self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME, api: str = "") -> bool:
        """See Everything."""
        is_allowed = self._decide(operation, resource, name)
        level = logging.DEBUG if is_allowed else TRACE
        if audit.isEnabledFor(level):
            self._tell(level, is_allowed, operation, resource, name, api, 1)
        return is_allowed

    def may_with_any(self, operation: AclOperation, resource: AclResource, api: str = "") -> bool:
        """See Everything."""
        is_allowed = self._decide(operation, resource, None)
        level = logging.DEBUG if is_allowed else logging.INFO
        if audit.isEnabledFor(level):
            self._tell(level, is_allowed, operation, resource, "ANY", api, 1)
        return is_allowed

    def operations(self, resource: AclResource, name: str = CLUSTER_NAME) -> int:
        """See Everything."""
        return bits(code for code in OPERATIONS_OF[resource] if self._decide(AclOperation(code), resource, name))

    def _decide(self, operation: AclOperation, resource: AclResource, name: str | None) -> bool:
        if len(self._known) > MOST_REMEMBERED:
            self.forget()
        wanted = right(operation, resource)
        key = wanted, name
        known = self._known.get(key)
        if known is None:
            if name is None:
                known = self._authorizer.decide_for_any(self.principal, self.host, operation, resource)
            else:
                known = self._authorizer.decide(self.principal, self.host, operation, resource, name)
            if name is None or len(name) <= LONGEST_REMEMBERED:
                count = BYTES_EACH + sys.getsizeof(name or "")
                self._authorizer.remembers(count)
                self._bytes += count
                self._known[key] = known
                if known and name is not None and not audit.isEnabledFor(logging.DEBUG):
                    self.granted[wanted].add(name)
        return known

    def _tell(
        self,
        level: int,
        is_allowed: bool,
        operation: AclOperation,
        resource: AclResource,
        name: str,
        api: str,
        times: int,
    ) -> None:
        pattern = Pattern(resource, AclPattern.LITERAL, name)
        if level == logging.INFO:
            what = f"{self.principal} from host = {self.host}: {camel(operation)} on {pattern}"
            level = self._authorizer.refusals.level(what, level)
        audit.log(
            level,
            "Principal = %s is %s Operation = %s from host = %s on resource = %s for request = %s with "
            "resourceRefCount = %d",
            self.principal,
            "Allowed" if is_allowed else "Denied",
            camel(operation),
            self.host,
            pattern,
            api,
            times,
        )
