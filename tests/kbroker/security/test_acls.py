"""Access rules as values."""

import itertools
import random

import pytest

from kbroker.security.acls import (
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    Entry,
    EntryFilters,
    Pattern,
    RuleFilter,
    camel,
    java_address,
    word_of,
)

LITERAL, PREFIXED, MATCH = AclPattern.LITERAL, AclPattern.PREFIXED, AclPattern.MATCH
TOPIC = AclResource.TOPIC


@pytest.mark.parametrize(
    ("address", "java"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::a0b:1%eth0", "fe80:0:0:0:0:0:a0b:1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("nowhere", "nowhere"),
    ],
)
def test_a_host_is_written_as_java_writes_it(address: str, java: str) -> None:
    assert java_address(address) == java


def test_words_are_kafkas_in_any_case() -> None:
    assert camel(AclResource.TRANSACTIONAL_ID) == "TransactionalId"
    assert camel(AclOperation.DESCRIBE_CONFIGS) == "DescribeConfigs"
    for text in ("TRANSACTIONAL_ID", "TransactionalId", "transactionalid"):
        assert word_of(AclResource, text) is AclResource.TRANSACTIONAL_ID
    with pytest.raises(ValueError, match="Bogus"):
        word_of(AclResource, "Bogus")
    assert str(Pattern(TOPIC, PREFIXED, "a-")) == "Topic:PREFIXED:a-"


@pytest.mark.parametrize(
    ("wanted", "kind", "name", "is_meant"),
    [
        (RuleFilter(), PREFIXED, "x", True),
        (RuleFilter(TOPIC, "orders"), LITERAL, "orders", True),
        (RuleFilter(TOPIC, "orders"), PREFIXED, "orders", True),
        (RuleFilter(TOPIC, "orders"), LITERAL, "*", False),
        (RuleFilter(TOPIC, "orders", PREFIXED), LITERAL, "orders", False),
        (RuleFilter(TOPIC, "orders", MATCH), LITERAL, "*", True),
        (RuleFilter(TOPIC, "orders", MATCH), LITERAL, "order", False),
        (RuleFilter(TOPIC, "orders", MATCH), PREFIXED, "order", True),
        (RuleFilter(TOPIC, "orders", MATCH), PREFIXED, "orders-", False),
        (RuleFilter(TOPIC, None, MATCH), PREFIXED, "orders-", True),
        (RuleFilter(AclResource.GROUP, "orders"), LITERAL, "orders", False),
    ],
)
def test_a_filter_means_what_kafkas_means(wanted: RuleFilter, kind: AclPattern, name: str, is_meant: bool) -> None:
    assert wanted.takes(Pattern(TOPIC, kind, name)) is is_meant


def test_a_filter_for_all_operations_means_only_the_rules_for_all() -> None:
    everything = Entry("User:a", "*", AclOperation.ALL, AclPermission.ALLOW)
    read = everything._replace(operation=AclOperation.READ)
    wanted = RuleFilter(operation=AclOperation.ALL)
    assert [wanted.takes_entry(entry) for entry in (everything, read)] == [True, False]
    assert not RuleFilter(principal="User:b").takes_entry(read)
    assert not RuleFilter(host="h").takes_entry(read)
    assert not RuleFilter(permission=AclPermission.DENY).takes_entry(read)


def test_only_a_filter_with_type_name_and_pattern_means_one_pattern() -> None:
    assert RuleFilter(TOPIC, "a", LITERAL).only == Pattern(TOPIC, LITERAL, "a")
    for wanted in (RuleFilter(TOPIC, "a"), RuleFilter(TOPIC, "a", MATCH), RuleFilter(TOPIC, None, LITERAL)):
        assert wanted.only is None


def test_the_first_of_many_filters_is_found_as_if_each_were_looked_at() -> None:
    rng = random.Random(7)
    choices = (
        (None, "User:a", "User:b"),
        (None, "*", "h"),
        (AclOperation.ANY, AclOperation.READ, AclOperation.WRITE),
        (AclPermission.ANY, AclPermission.ALLOW, AclPermission.DENY),
    )
    entries = [Entry(*parts) for parts in itertools.product(*(each[1:] for each in choices))]  # type: ignore[arg-type]
    for _ in range(200):
        filters = []
        for number in range(rng.randrange(6)):
            principal, host, operation, permission = (rng.choice(each) for each in choices)
            made = RuleFilter(principal=principal, host=host, operation=operation, permission=permission)  # type: ignore[arg-type]
            filters.append((number, made))
        rng.shuffle(filters)
        found = EntryFilters(filters)
        for entry in entries:
            means = [number for number, each in filters if each.takes_entry(entry)]
            assert found.first(entry) == min(means, default=None)
