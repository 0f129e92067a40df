"""Decisions on access rules: those of Kafka's AclAuthorizer, one by one."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest

from kbroker.security.acls import AclOperation, AclPattern, AclPermission, AclResource, Entry, Pattern
from kbroker.security.authorizer import (
    AUDITED_EACH,
    BYTES_EACH,
    EVERYTHING,
    LONGEST_REMEMBERED,
    Authorizer,
    audit,
    right,
)

READ, WRITE, ALL, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL, AclOperation.DESCRIBE
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = AclPattern.LITERAL, AclPattern.PREFIXED
TOPIC, GROUP, CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER

Rule = tuple[str, AclPattern, AclPermission, AclOperation]


def ruled(*rules: Rule, who: str = "User:a", host: str = "*", **options: bool) -> Authorizer:
    """Rules about topics: (name, pattern, permission, operation)."""
    authorizer = Authorizer(["User:root"], **options)
    for name, kind, permission, operation in rules:
        pattern = Pattern(TOPIC, kind, name)
        entry = Entry(who, host, operation, permission)
        authorizer.replace(pattern, authorizer.entries(pattern) | {entry})
    return authorizer


def may(
    authorizer: Authorizer, operation: AclOperation, name: str, who: str = "User:a", host: str = "10.0.0.1"
) -> bool:
    return authorizer.authority(who, host).may(operation, TOPIC, name)


def test_what_no_rule_speaks_of_is_nobodys_or_everybodys() -> None:
    assert not may(Authorizer(), READ, "t")
    open_to_all = ruled(("u", LITERAL, ALLOW, READ), allow_without_rules=True)
    assert may(open_to_all, READ, "t")
    assert not may(open_to_all, WRITE, "u", who="User:b"), "a rule for anybody closes the resource for the others"


def test_a_super_user_needs_no_rule_and_hears_no_denial() -> None:
    assert may(ruled(("*", LITERAL, DENY, ALL), who="User:root"), WRITE, "t", who="User:root")
    assert not ruled().authority("User:root", "h").is_limited
    assert not may(ruled(), WRITE, "t", who="Group:root"), "type and name must be equal"


def test_a_denial_goes_before_what_is_allowed_and_implies_nothing() -> None:
    authorizer = ruled(("t", LITERAL, ALLOW, ALL), ("t", LITERAL, DENY, READ))
    assert not may(authorizer, READ, "t")
    assert may(authorizer, DESCRIBE, "t")
    assert may(authorizer, WRITE, "t")
    assert not may(ruled(("t", LITERAL, ALLOW, READ), ("t", LITERAL, DENY, DESCRIBE)), DESCRIBE, "t")


@pytest.mark.parametrize("operation", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_who_may_do_something_with_a_topic_may_describe_it(operation: AclOperation) -> None:
    authorizer = ruled(("t", LITERAL, ALLOW, operation))
    assert may(authorizer, DESCRIBE, "t")
    assert not may(authorizer, AclOperation.DESCRIBE_CONFIGS, "t")


def test_who_may_alter_configurations_may_see_them() -> None:
    authorizer = ruled(("t", LITERAL, ALLOW, AclOperation.ALTER_CONFIGS))
    assert may(authorizer, AclOperation.DESCRIBE_CONFIGS, "t")
    assert not may(authorizer, DESCRIBE, "t")


def test_prefixes_and_the_star_speak_of_many() -> None:
    authorizer = ruled(("pay-", PREFIXED, ALLOW, READ), ("p", PREFIXED, ALLOW, WRITE), ("*", PREFIXED, ALLOW, ALL))
    assert may(authorizer, READ, "pay-1")
    assert may(authorizer, READ, "pay-")
    assert not may(authorizer, READ, "pay")
    assert may(authorizer, WRITE, "pay-1")
    assert may(authorizer, READ, "*x"), "a prefix * is that character"
    assert may(ruled(("*", LITERAL, ALLOW, READ)), READ, "anything")
    authorizer.replace(Pattern(TOPIC, PREFIXED, "pay-"), ())
    assert not may(authorizer, READ, "pay-1"), "what was decided is decided anew"


def test_rules_hold_for_a_principal_everybody_and_hosts() -> None:
    assert may(ruled(("t", LITERAL, ALLOW, READ), who="User:*"), READ, "t", who="User:z")
    here = ruled(("t", LITERAL, ALLOW, READ), host="10.0.0.1")
    assert may(here, READ, "t")
    assert not may(here, READ, "t", host="10.0.0.2")
    assert not may(here, READ, "t", who="User:b")
    mapped = ruled(("t", LITERAL, ALLOW, READ), host="0:0:0:0:0:0:0:1")
    assert may(mapped, READ, "t", host="::1")


def some_topic(authorizer: Authorizer) -> bool:
    return authorizer.authority("User:a", "h").may_with_any(WRITE, TOPIC)


def test_some_topic_is_one_whose_permission_no_denial_takes_back() -> None:
    assert not some_topic(ruled())
    assert some_topic(ruled(allow_without_rules=True))
    assert some_topic(ruled(("t", LITERAL, ALLOW, WRITE)))
    assert not some_topic(ruled(("t", LITERAL, ALLOW, READ)))
    assert not some_topic(ruled(("t", LITERAL, ALLOW, WRITE), ("t", LITERAL, DENY, WRITE)))
    assert not some_topic(ruled(("tt", LITERAL, ALLOW, WRITE), ("t", PREFIXED, DENY, WRITE)))
    assert not some_topic(ruled(("tt", PREFIXED, ALLOW, WRITE), ("t", PREFIXED, DENY, ALL)))
    assert some_topic(ruled(("t", PREFIXED, ALLOW, WRITE), ("tt", PREFIXED, DENY, WRITE)))
    assert some_topic(ruled(("*", LITERAL, ALLOW, WRITE), ("t", PREFIXED, DENY, WRITE)))
    assert not some_topic(ruled(("t", LITERAL, ALLOW, WRITE), ("*", LITERAL, DENY, WRITE), allow_without_rules=True))


@pytest.mark.parametrize("is_allowed", [True, False])
def test_names_that_are_no_topics_are_decided_and_not_remembered(is_allowed: bool) -> None:
    """Whoever asks decides how long they are: what is remembered of thousands of them has to be bounded."""
    authority = ruled(allow_without_rules=is_allowed).authority("User:a", "10.0.0.1")
    longest = "n" * LONGEST_REMEMBERED
    for name in (longest, *(f"{longest}{number}" for number in range(100))):
        assert authority.may(READ, TOPIC, name) is is_allowed
        assert authority.could(READ, TOPIC, name) is is_allowed
    assert [name for _, name in authority._known] == [longest]
    assert longest + "1" not in authority.granted[right(READ, TOPIC)]
    assert (longest in authority.granted[right(READ, TOPIC)]) is is_allowed


def test_the_bits_of_what_is_allowed_are_kafkas() -> None:
    assert [EVERYTHING.operations(each) for each in (TOPIC, GROUP, CLUSTER)] == [3576, 328, 8096]
    authority = ruled(("t", LITERAL, ALLOW, READ), ("u", LITERAL, ALLOW, ALL)).authority("User:a", "h")
    assert authority.operations(TOPIC, "t") == 1 << READ | 1 << DESCRIBE
    assert authority.operations(TOPIC, "u") == 3576
    assert authority.operations(GROUP, "g") == 0


def test_each_answer_is_a_line_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    authority = ruled(("t", LITERAL, ALLOW, READ)).authority("User:a", "10.0.0.1")
    with caplog.at_level(logging.INFO, audit.name):
        assert authority.may(READ, TOPIC, "t", "Fetch")
        assert not authority.may(WRITE, TOPIC, "t", "Produce", 2)
        assert not authority.may(WRITE, TOPIC, "t", "Produce", 2)
        assert not authority.could(WRITE, TOPIC, "t", "Metadata")
    line = (
        "Principal = User:a is Denied Operation = Write from host = 10.0.0.1 on resource = Topic:LITERAL:t "
        "for request = Produce with resourceRefCount = 2"
    )
    assert caplog.messages == [line, line]
    caplog.clear()
    with caplog.at_level(logging.DEBUG, audit.name):
        assert authority.may(READ, TOPIC, "t", "Fetch")
    assert "is Allowed Operation = Read" in caplog.text


def test_what_the_audit_log_wants_to_hear_of_is_not_granted_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = ruled(("t", LITERAL, ALLOW, READ))
    authority = authorizer.authority("User:a", "h")
    granted = authority.granted[right(READ, TOPIC)]
    with caplog.at_level(logging.DEBUG, audit.name):
        assert authority.may(READ, TOPIC, "t")
        assert not granted
    authorizer.forget()
    assert authority.may(READ, TOPIC, "t")
    assert granted == {"t"}
    authorizer.forget()
    assert not granted


def test_very_many_rules_are_taken_over_without_a_look_at_each() -> None:
    authorizer, pattern = Authorizer(), Pattern(TOPIC, LITERAL, "t")
    unseen: frozenset[Any] = frozenset(object() for _ in range(3))
    authorizer.replace(pattern, unseen)
    assert authorizer.entries(pattern) is unseen


def slow_decision(rules: dict[Pattern, set[Entry]], who: str, host: str, operation: AclOperation, name: str) -> bool:
    """The rules in the order of Kafka's text, without any index."""
    about = [
        entry
        for pattern, entries in rules.items()
        for entry in entries
        if (pattern.kind is LITERAL and pattern.name in (name, "*"))
        or (pattern.kind is PREFIXED and name.startswith(pattern.name))
    ]
    mine = [entry for entry in about if entry.principal in (who, "User:*") and entry.host in (host, "*")]
    if any(entry.permission is DENY and entry.operation in (operation, ALL) for entry in mine):
        return False
    enough = {operation, ALL} | ({READ, WRITE} if operation is DESCRIBE else set())
    return any(entry.permission is ALLOW and entry.operation in enough for entry in mine)


@pytest.mark.parametrize("seed", range(5))
def test_the_index_decides_as_the_rules_read_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    authorizer = Authorizer()
    rules: dict[Pattern, set[Entry]] = {}
    names, people, hosts = ("a", "ab", "abc", "b", "*"), ("User:a", "User:b", "User:*"), ("h", "i", "*")
    for _ in range(300):
        pattern = Pattern(TOPIC, rng.choice((LITERAL, PREFIXED)), rng.choice(names))
        entries = {
            Entry(
                rng.choice(people),
                rng.choice(hosts),
                rng.choice((READ, WRITE, ALL, DESCRIBE)),
                rng.choice(list(AclPermission)[1:]),
            )
            for _ in range(rng.randrange(3))
        }
        rules[pattern] = entries
        authorizer.replace(pattern, entries)
        who, host, name = rng.choice(people[:2]), rng.choice(hosts[:2]), rng.choice(("a", "abc", "b", "c"))
        operation = rng.choice((READ, WRITE, DESCRIBE))
        decided = authorizer.authority(who, host).may(operation, TOPIC, name)
        assert decided is slow_decision(rules, who, host, operation, name)


def test_the_same_refusal_again_and_again_is_counted_and_another_is_told(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = Authorizer()
    eve = authorizer.authority("User:eve", "10.0.0.1")
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        for _ in range(100):
            assert not eve.may(AclOperation.READ, AclResource.TOPIC, "orders", "Fetch")
        assert not eve.may(AclOperation.READ, AclResource.TOPIC, "other", "Fetch")
        authorizer.refusals.tell()
    lines = [line for line in caplog.messages if "is Denied" in line]
    assert len(lines) == AUDITED_EACH + 1
    assert "Topic:LITERAL:other" in lines[-1]
    assert caplog.messages[-1].startswith(f"{100 - AUDITED_EACH} more refusals of User:eve from host = 10.0.0.1")
    assert "Read on Topic:LITERAL:orders" in caplog.messages[-1]


def test_who_asks_for_many_names_from_many_addresses_fills_no_memory_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kbroker.security.authorizer.MOST_BYTES", 100 * BYTES_EACH)
    authorizer = ruled(("there", PREFIXED, ALLOW, READ))
    asked = [(f"10.0.0.{address}", f"there-{number:04}") for address in range(20) for number in range(20)]
    authorities = {host: authorizer.authority("User:a", host) for host, _ in asked}
    for host, name in asked:
        assert may(authorizer, READ, name, host=host)
        assert not may(authorizer, WRITE, name, host=host)
        assert sum(len(each._known) for each in authorities.values()) < 100
        assert sum(len(each) for authority in authorities.values() for each in authority.granted.values()) < 100
    assert may(authorizer, READ, "there-0001")


def test_who_asks_for_ever_new_names_makes_nothing_forgotten_but_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbroker.security.authorizer.MOST_REMEMBERED", 20)
    monkeypatch.setattr("kbroker.security.authorizer.MOST_BYTES", 100 * BYTES_EACH)
    authorizer = ruled(("there", PREFIXED, ALLOW, READ))
    other = authorizer.authority("User:a", "10.0.0.2")
    assert other.may(READ, TOPIC, "there")
    for number in range(1_000):
        assert may(authorizer, READ, f"there-{number}", host="10.0.0.1")
    assert other.granted[right(READ, TOPIC)] == {"there"}
