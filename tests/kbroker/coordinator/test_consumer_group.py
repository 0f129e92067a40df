"""A group of the newer protocol alone: answers to misuse, and random histories of members that lose answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kbroker.coordinator.consumer_group import ConsumerAnswer, ConsumerGroup, ConsumerHeartbeat, ConsumerSettings
from kbroker.coordinator.consumer_member import LEAVE_STATIC_EPOCH, MemberState, Partitions
from kbroker.coordinator.consumer_records import StoredGroup, load_record
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.security.acls import AclOperation, AclPattern, AclPermission, AclResource, Entry, Pattern
from kbroker.security.authorizer import EVERYTHING, Authorizer, Everything


@dataclass
class FakeTopic:
    topic_id: bytes
    partitions: dict[int, object]


@dataclass
class FakeTopics:
    """Stands for the metadata cache."""

    updates: int = 0
    topics: dict[str, FakeTopic] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        if self.seen != self.topics.keys():
            self.seen = frozenset(self.topics)
        return self.seen

    def set(self, name: str, count: int) -> None:
        self.updates += 1
        self.topics[name] = FakeTopic(name.encode()[-16:].rjust(16, b"\0"), dict.fromkeys(range(count)))

    def delete(self, name: str) -> None:
        self.updates += 1
        self.topics.pop(name, None)


class Client:
    """A member that does as KIP-848 wants: gives up at once what it is told to, joins again when it is fenced."""

    def __init__(self, group: ConsumerGroup, name: str, topics: set[str], instance: str | None = None) -> None:
        self.group = group
        self.name = name
        self.topics = frozenset(topics)
        self.instance = instance
        self.epoch = 0
        self.owned: Partitions = {}
        self.tells_all = True

    def heartbeat(self, now: int, answer_is_lost: bool = False) -> None:
        full = self.epoch == 0 or self.tells_all
        request = ConsumerHeartbeat(
            self.name,
            self.epoch,
            self.instance,
            rebalance_timeout_ms=60_000 if full else -1,
            topic_names=self.topics if full else None,
            owned=({} if self.epoch == 0 else self.owned),
        )
        try:
            answer = self.group.heartbeat(request, now)
        except KafkaError as error:
            if error.code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                raise
            self.epoch, self.owned, self.tells_all = 0, {}, True
            return
        self.tells_all = answer_is_lost
        if not answer_is_lost:
            self.epoch = answer.epoch
            if answer.assigned is not None:
                self.owned = dict(answer.assigned)


def make(topics: dict[str, int], **options: Any) -> tuple[ConsumerGroup, FakeTopics]:
    known = FakeTopics()
    for name, count in topics.items():
        known.set(name, count)
    return ConsumerGroup("orders", ConsumerSettings(**options), known), known


def settle(clients: list[Client], now: int = 0, rounds: int = 12) -> None:
    for _ in range(rounds):
        for client in clients:
            client.heartbeat(now)


def sizes(clients: list[Client]) -> list[int]:
    return [sum(len(numbers) for numbers in client.owned.values()) for client in clients]


def test_one_member_gets_all_and_a_second_one_half() -> None:
    group, _ = make({"t": 6})
    first, second = Client(group, "a", {"t"}), Client(group, "b", {"t"})
    settle([first])
    assert sizes([first]) == [6]
    assert group.state_name == "Stable"
    second.heartbeat(0)
    assert sizes([second]) == [0], "nothing before the first member gave it up"
    assert group.state_name == "Reconciling"
    settle([first, second])
    assert sizes([first, second]) == [3, 3]
    group.check()


def test_a_partition_is_never_given_to_two() -> None:
    group, _ = make({"t": 4})
    first, second = Client(group, "a", {"t"}), Client(group, "b", {"t"})
    settle([first])
    second.heartbeat(0)
    first.heartbeat(0, answer_is_lost=True)
    settle([second])
    assert sizes([first, second]) == [4, 0]
    settle([first, second])
    assert sizes([first, second]) == [2, 2]


def test_topics_that_come_grow_and_go_change_the_assignment() -> None:
    group, topics = make({})
    member = Client(group, "a", {"t", "u"})
    settle([member])
    assert sizes([member]) == [0]
    topics.set("t", 2)
    settle([member])
    assert sizes([member]) == [2]
    topics.set("u", 3)
    topics.set("t", 4)
    settle([member])
    assert sizes([member]) == [7]
    topics.delete("u")
    settle([member])
    assert sizes([member]) == [4]


def test_a_pattern_follows_the_topics_internal_ones_too() -> None:
    group, topics = make({"orders-eu": 1, "other": 1, "__consumer_offsets": 2})
    join = ConsumerHeartbeat("a", 0, rebalance_timeout_ms=1, topic_regex="orders-.*|__.*", owned={})
    ids = {name: topic.topic_id for name, topic in topics.topics.items()}
    expected = {ids["orders-eu"]: frozenset({0}), ids["__consumer_offsets"]: frozenset({0, 1})}
    assert group.heartbeat(join, 0).assigned == expected
    topics.set("orders-us", 1)
    answer = group.heartbeat(ConsumerHeartbeat("a", 1), 0)
    assert answer.assigned is not None
    assert len(answer.assigned) == 3


def test_only_expressions_of_members_are_kept() -> None:
    group, _ = make({"orders": 1})

    def heard(member_id: str, epoch: int, regex: str) -> int:
        request = ConsumerHeartbeat(member_id, epoch, rebalance_timeout_ms=60_000, topic_regex=regex, owned={})
        return group.heartbeat(request, 0).epoch

    epoch = heard("a", 0, "orders.*")
    heard("a", epoch, "orders")  # it means the same topics
    assert group.subscribed.patterns.keys() == {"orders"}
    with pytest.raises(KafkaError) as stranger:
        heard("b", 7, "o.*")
    assert stranger.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(KafkaError) as wrong:
        heard("b", 0, "(")
    assert wrong.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert group.subscribed.patterns.keys() == {"orders"}
    assert group.members.keys() == {"a"}


def topics_of(group: ConsumerGroup) -> set[str]:
    return {bytes(topic_id).lstrip(b"\0").decode() for topic_id in group.members["a"].assigned}


def test_a_pattern_matches_only_what_its_member_may_describe() -> None:
    authorizer = Authorizer()

    def allow(*names: str) -> None:
        for name in ("open", "shut", "new"):
            entries = [Entry("User:ann", "*", AclOperation.READ, AclPermission.ALLOW)] if name in names else []
            authorizer.replace(Pattern(AclResource.TOPIC, AclPattern.LITERAL, name), entries)

    allow("open")
    group, topics = make({"open": 1, "shut": 1})
    authority = authorizer.authority("User:ann", "10.0.0.1")
    owned: Partitions = {}

    def heard(epoch: int) -> int:
        nonlocal owned
        regex, timeout_ms = (".*", 60_000) if epoch == 0 else (None, -1)
        request = ConsumerHeartbeat(
            "a", epoch, rebalance_timeout_ms=timeout_ms, topic_regex=regex, owned=owned, authority=authority
        )
        answer = group.heartbeat(request, 0)
        owned = owned if answer.assigned is None else answer.assigned
        return answer.epoch

    epoch = heard(0)
    assert topics_of(group) == {"open"}
    topics.set("new", 1)
    epoch = heard(epoch)
    assert topics_of(group) == {"open"}
    allow("open", "new")
    epoch = heard(epoch)
    assert topics_of(group) == {"open", "new"}
    allow("shut")
    epoch = heard(heard(heard(epoch)))
    assert topics_of(group) == {"shut"}
    # Another broker takes over: it does not know yet what the member may, and keeps to what there was.
    taken_over = moved(group, topics)
    assert taken_over.subscribed.read_by(taken_over.members.values()) == [{"shut"}]


def moved(group: ConsumerGroup, topics: Any) -> ConsumerGroup:
    """The group at another coordinator."""
    stored: dict[str, StoredGroup] = {}
    for key, value in group.take_records():
        load_record(stored, key, value)
    taken_over = ConsumerGroup("orders", ConsumerSettings(), topics)
    taken_over.restore(stored["orders"])
    taken_over.start(0)
    return taken_over


class Reader:
    """A member whose pattern means all that it may describe, unless told otherwise."""

    def __init__(self, name: str, authority: Everything, regex: str = ".*", instance_id: str | None = None) -> None:
        self.name, self.authority, self.regex, self.instance_id = name, authority, regex, instance_id
        self.epoch = 0
        self.owned: Partitions = {}

    def heard(self, group: ConsumerGroup) -> None:
        regex, timeout_ms = (self.regex, 60_000) if self.epoch == 0 else (None, -1)
        request = ConsumerHeartbeat(
            self.name,
            self.epoch,
            self.instance_id,
            rebalance_timeout_ms=timeout_ms,
            topic_regex=regex,
            owned=self.owned,
            authority=self.authority,
        )
        answer = group.heartbeat(request, 0)
        self.epoch, self.owned = answer.epoch, self.owned if answer.assigned is None else answer.assigned

    @property
    def topics(self) -> set[str]:
        return {bytes(topic_id).lstrip(b"\0").decode() for topic_id in self.owned}


def hear(readers: list[Reader], group: ConsumerGroup) -> None:
    """As often as any rebalance of theirs takes."""
    for _ in range(8):
        for reader in readers:
            reader.heard(group)


def test_rules_about_one_members_topics_count_though_another_reads_them_and_after_a_fail_over() -> None:
    authorizer = Authorizer(super_users=["User:root"])

    def allow_ann(*names: str) -> None:
        for name in ("open", "shut"):
            entries = [Entry("User:ann", "*", AclOperation.READ, AclPermission.ALLOW)] if name in names else []
            authorizer.replace(Pattern(AclResource.TOPIC, AclPattern.LITERAL, name), entries)

    allow_ann("open")
    group, topics = make({"open": 2, "shut": 6})
    ann = Reader("a", authorizer.authority("User:ann", "10.0.0.1"))
    readers = [ann, Reader("b", authorizer.authority("User:root", "10.0.0.2"))]
    hear(readers, group)
    assert ann.topics == {"open"}
    for names in ({"open", "shut"}, {"open"}, {"shut"}, {"open"}):
        allow_ann(*names)
        hear(readers, group)
        assert ann.topics == names
    limited = ann.authority
    for authority, names in ((readers[1].authority, {"open", "shut"}), (limited, {"open"})):
        ann.authority = authority  # it connects anew, as somebody else
        hear(readers, group)
        assert ann.topics == names
    assert any("may read other topics" in reason for told in group.story.rebalances for reason in told.all_reasons())
    epoch = group.epoch
    hear(readers, group)
    assert group.epoch == epoch, "no change, no rebalance"
    taken_over = moved(group, topics)
    readers.append(Reader("c", readers[1].authority))
    readers[2].heard(taken_over)  # targets are made while nobody knows what the others may
    hear(readers, taken_over)
    assert ann.topics == {"open"}


def test_a_topic_that_is_made_while_the_coordinator_moves_is_read_whoever_is_heard_first() -> None:
    group, topics = make({"a1": 2, "b1": 2})
    readers = [Reader("b", EVERYTHING, "b.*"), Reader("a", EVERYTHING, "a.*")]
    hear(readers, group)
    topics.set("a2", 2)
    group = moved(group, topics)
    hear(readers, group)
    assert readers[1].topics == {"a1", "a2"}


def test_neither_a_move_nor_a_static_members_return_under_rules_makes_a_rebalance() -> None:
    authorizer = Authorizer()
    entries = [Entry("User:ann", "*", AclOperation.READ, AclPermission.ALLOW)]
    authorizer.replace(Pattern(AclResource.TOPIC, AclPattern.LITERAL, "open"), entries)
    group, topics = make({"open": 4, "shut": 4})
    readers = [Reader(f"m{n}", authorizer.authority("User:ann", f"10.0.0.{n}"), instance_id=f"i{n}") for n in (1, 2)]
    hear(readers, group)
    epoch = group.epoch
    group.heartbeat(ConsumerHeartbeat("m1", LEAVE_STATIC_EPOCH, "i1", authority=readers[0].authority), 0)
    readers[0] = Reader("m3", authorizer.authority("User:ann", "10.0.0.3"), instance_id="i1")
    hear(readers, group)
    assert group.epoch == epoch
    group = moved(group, topics)
    hear(readers, group)
    assert group.epoch == epoch


class Counting(Everything):
    """May describe everything, which has to be decided each time."""

    is_limited = True
    version = 0

    def __init__(self) -> None:
        super().__init__()
        self.decisions = 0

    def could(self, *_: object) -> bool:
        self.decisions += 1
        return True


def test_no_heartbeat_decides_for_all_members() -> None:
    group, topics = make({f"t{number}": 1 for number in range(30)})
    readers = [Reader(f"m{number}", Counting()) for number in range(20)]
    authorities = [reader.authority for reader in readers if isinstance(reader.authority, Counting)]

    def decided() -> list[int]:
        counts = [each.decisions for each in authorities]
        for each in authorities:
            each.decisions = 0
        return counts

    hear(readers, group)
    decided()
    for each in authorities:
        each.version = 1
    readers[3].heard(group)
    assert decided() == [30 * (number == 3) for number in range(20)]
    topics.set("another", 1)
    readers[5].heard(group)
    assert decided() == [1 + 30 * (number == 5) for number in range(20)]
    readers[5].heard(group)
    assert decided() == [0] * 20


@pytest.mark.parametrize("regex", ["(", "(?=a)", "a{1000}{1000}"])
def test_what_is_no_re2_expression_is_refused_and_changes_nothing(regex: str) -> None:
    group, _ = make({"t": 1})
    with pytest.raises(KafkaError) as refused:
        group.heartbeat(ConsumerHeartbeat("a", 0, rebalance_timeout_ms=1, topic_regex=regex, owned={}), 0)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert (group.members, group.take_records()) == ({}, [])


def test_an_unknown_assignor_is_refused() -> None:
    group, _ = make({"t": 1})
    with pytest.raises(KafkaError, match="uniform, range") as refused:
        group.heartbeat(ConsumerHeartbeat("a", 0, topic_names=frozenset("t"), server_assignor="mine", owned={}), 0)
    assert refused.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_the_assignor_that_most_members_want_is_used() -> None:
    group, _ = make({"t": 1})
    for name, wanted in (("a", "range"), ("b", None), ("c", "uniform"), ("d", "range")):
        group.heartbeat(ConsumerHeartbeat(name, 0, topic_names=frozenset("t"), server_assignor=wanted, owned={}), 0)
    assert group.assignor == "range"


def test_members_are_known_by_id_and_epoch() -> None:
    group, _ = make({"t": 2})
    member = Client(group, "a", {"t"})
    settle([member])
    for epoch, error in ((member.epoch + 1, ErrorCode.FENCED_MEMBER_EPOCH), (member.epoch - 1, None)):
        request = ConsumerHeartbeat("a", epoch, owned={})
        if error is None and epoch == group.members["a"].previous_epoch:
            continue
        with pytest.raises(KafkaError) as refused:
            group.heartbeat(request, 0)
        assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    with pytest.raises(KafkaError) as unknown:
        group.heartbeat(ConsumerHeartbeat("stranger", 1), 0)
    assert unknown.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.commit_error("a", None, member.epoch, 0) is ErrorCode.NONE
    assert group.commit_error("a", None, member.epoch - 1, 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.commit_error("", None, -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_whose_answer_was_lost_may_go_on_with_its_former_epoch() -> None:
    group, _ = make({"t": 2})
    first = Client(group, "a", {"t"})
    settle([first])
    before = first.epoch
    Client(group, "b", {"t"}).heartbeat(0)
    owned = {topic: frozenset({0}) for topic in first.owned}
    group.heartbeat(ConsumerHeartbeat("a", before, owned=first.owned), 0)
    given = group.heartbeat(ConsumerHeartbeat("a", before, owned=group.members["a"].assigned), 0)
    assert given.epoch > before
    again = group.heartbeat(ConsumerHeartbeat("a", before, owned=group.members["a"].assigned), 0)
    assert again.epoch == given.epoch
    strange = {topic: frozenset({7}) for topic in owned}
    with pytest.raises(KafkaError):
        group.heartbeat(ConsumerHeartbeat("a", before, owned=strange), 0)


def test_a_static_member_that_comes_back_has_its_partitions_at_once() -> None:
    group, _ = make({"t": 4})
    first, second = Client(group, "a", {"t"}, "one"), Client(group, "b", {"t"})
    settle([first, second])
    with pytest.raises(KafkaError) as refused:
        group.heartbeat(ConsumerHeartbeat("c", 0, "one", topic_names=frozenset({"t"}), owned={}), 0)
    assert refused.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
    epoch = group.epoch
    group.heartbeat(ConsumerHeartbeat("a", -2, "one"), 0)
    back = group.heartbeat(
        ConsumerHeartbeat("c", 0, "one", topic_names=frozenset({"t"}), rebalance_timeout_ms=60_000, owned={}), 0
    )
    assert back.assigned == first.owned
    assert group.epoch == epoch
    with pytest.raises(KafkaError) as fenced:
        group.heartbeat(ConsumerHeartbeat("a", epoch, "one"), 0)
    assert fenced.value.code is ErrorCode.FENCED_INSTANCE_ID
    group.check()


def test_static_members_keep_their_ranges_whatever_ids_they_come_back_with() -> None:
    group, topics = make({"t": 4}, default_assignor="range")
    clients = [Client(group, "a", {"t"}, "one"), Client(group, "b", {"t"}, "two")]
    settle(clients)
    ranges = [client.owned for client in clients]
    assert [set(*owned.values()) for owned in ranges] == [{0, 1}, {2, 3}]
    for number, name in enumerate(("z", "y")):
        group.heartbeat(ConsumerHeartbeat(clients[number].name, -2, clients[number].instance), 0)
        clients[number] = Client(group, name, {"t"}, clients[number].instance)
        clients[number].heartbeat(0)
    topics.set("other", 1)
    clients[0].topics |= {"other"}
    clients[0].tells_all = True
    settle(clients)
    t = topics.topics["t"].topic_id
    assert [client.owned[t] for client in clients] == [owned[t] for owned in ranges]
    dynamic = Client(group, "a", {"t"})
    settle([*clients, dynamic])
    assert [client.owned[t] for client in (*clients, dynamic)] == [{0, 1}, {2}, {3}]
    group.check()


def test_who_is_silent_or_does_not_give_up_is_removed() -> None:
    group, _ = make({"t": 4})
    first, second = Client(group, "a", {"t"}), Client(group, "b", {"t"})
    settle([first])
    second.heartbeat(0)
    group.heartbeat(ConsumerHeartbeat("a", first.epoch), 0)
    assert group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    for now in range(0, 60_000, 10_000):
        group.heartbeat(ConsumerHeartbeat("a", first.epoch), now)
        second.heartbeat(now)
        assert not group.tick(now)
    assert [line for line in group.tick(60_000) if "did not give up" in line]
    settle([second], 60_000)
    assert sizes([second]) == [4]
    assert [line for line in group.tick(105_000) if "not heard of" in line]
    assert group.state_name == "Empty"


def test_a_full_group_refuses() -> None:
    group, _ = make({"t": 1}, max_size=1)
    Client(group, "a", {"t"}).heartbeat(0)
    with pytest.raises(KafkaError) as refused:
        group.heartbeat(ConsumerHeartbeat("b", 0, topic_names=frozenset({"t"}), owned={}), 0)
    assert refused.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED


class ConsumerHistory(RuleBasedStateMachine):
    """Members come, lose answers, are replaced by the log's state; in the end everybody has a share."""

    names = st.sampled_from(["a", "b", "c", "d"])

    def __init__(self) -> None:
        super().__init__()
        self.group, self.topics = make({"t": 5, "u": 3})
        self.clients: dict[str, Client] = {}
        self.now = 0
        self.stored: dict[str, StoredGroup] = {}

    def log(self) -> None:
        for key, value in self.group.take_records():
            load_record(self.stored, key, value)

    @rule(name=names, topics=st.sampled_from([{"t"}, {"u"}, {"t", "u"}]), static=st.booleans(), lost=st.booleans())
    def join(self, name: str, topics: set[str], static: bool, lost: bool) -> None:
        if name not in self.clients:
            self.clients[name] = Client(self.group, name, topics, f"static-{name}" if static else None)
        self.clients[name].heartbeat(self.now, lost)
        self.log()

    @rule(name=names, lost=st.booleans())
    def heartbeat(self, name: str, lost: bool) -> None:
        if name in self.clients:
            self.clients[name].heartbeat(self.now, lost)
            self.log()

    @rule(name=names)
    def leave(self, name: str) -> None:
        client = self.clients.pop(name, None)
        if client is not None and client.name in self.group.members:
            self.group.heartbeat(ConsumerHeartbeat(name, -1, client.instance), self.now)
            self.log()

    @rule(topic=st.sampled_from(["t", "u", "v"]), count=st.integers(1, 7))
    def change_topic(self, topic: str, count: int) -> None:
        known = self.topics.topics.get(topic)
        self.topics.set(topic, max(count, len(known.partitions) if known else 0))

    @rule(ms=st.sampled_from([1000, 20_000, 46_000]))
    def wait(self, ms: int) -> None:
        self.now += ms
        if self.group.deadline <= self.now:
            self.group.tick(self.now)
        self.log()

    @rule()
    def fail_over(self) -> None:
        """Another coordinator reads the log and goes on."""
        group = ConsumerGroup("orders", ConsumerSettings(), self.topics)
        group.restore(self.stored.get("orders", StoredGroup()))
        group.start(self.now)
        self.group = group
        for client in self.clients.values():
            client.group = group

    @invariant()
    def holds(self) -> None:
        self.group.check()

    def teardown(self) -> None:
        clients = list(self.clients.values())
        for _ in range(2):
            settle(clients, self.now)
            self.log()
        assert set(self.group.members) >= {client.name for client in clients}
        gone = set(self.group.members) - {client.name for client in clients}
        if gone:
            self.now += 44_000
            settle(clients, self.now)
            self.now += 44_000
            self.group.tick(self.now)
            settle(clients, self.now)
            self.log()
        assert self.group.state_name == ("Stable" if clients else "Empty")
        for name, topic in self.topics.topics.items():
            readers = [client for client in clients if name in client.topics]
            numbers = [number for client in readers for number in client.owned.get(topic.topic_id, ())]
            assert sorted(numbers) == (sorted(topic.partitions) if readers else [])
        self.group.check()


TestHistory = pytest.mark.slow(ConsumerHistory.TestCase)
TestHistory.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def test_the_answer_names_the_member() -> None:
    group, _ = make({"t": 1})
    answer = group.heartbeat(ConsumerHeartbeat("a", 0, topic_names=frozenset({"t"}), owned={}), 0)
    assert answer == ConsumerAnswer("a", 1, answer.assigned)
