"""Classic members in a group of the newer protocol: taken over, answered at once, handed back."""

from __future__ import annotations

import pytest

from kbroker.coordinator.consumer_group import ConsumerHeartbeat, ConsumerSettings
from kbroker.coordinator.consumer_member import MemberState
from kbroker.coordinator.consumer_records import StoredGroup, load_record
from kbroker.coordinator.group_events import JoinRequest
from kbroker.coordinator.mixed_group import MixedGroup
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.groups import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kbroker.protocol.versioned import decode_versioned, encode_versioned
from tests.kbroker.coordinator.play import GroupPlay
from tests.kbroker.coordinator.test_consumer_group import Client, FakeTopics

TYPE = ("consumer", "range")


def subscription(owned: tuple[int, ...] = (), rack: str | None = None) -> bytes:
    part = ConsumerProtocolSubscription.TopicPartition(topic="t", partitions=list(owned))
    told = ConsumerProtocolSubscription(topics=["t"], owned_partitions=[part] if owned else [], rack_id=rack)
    return encode_versioned(told, 3)


def assignment(*partitions: int) -> bytes:
    part = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=list(partitions))
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[part]), 3)


def join_request(name: str, owned: tuple[int, ...] = (), instance: str | None = None, known: str = "") -> JoinRequest:
    protocols = (("range", subscription(owned)),)
    return JoinRequest(known, instance, name, "/h", 10_000, 60_000, "consumer", protocols, f"{name}-1", False)


def numbers(blob: bytes) -> list[int]:
    read = decode_versioned(ConsumerProtocolAssignment, blob)
    return [number for part in read.assigned_partitions for number in part.partitions]


@pytest.fixture
def topics() -> FakeTopics:
    known = FakeTopics()
    known.set("t", 4)
    return known


@pytest.fixture
def mixed(topics: FakeTopics) -> MixedGroup:
    """A classic group of a and b, two partitions each, that c of the newer protocol has joined."""
    play = GroupPlay(delay_ms=1000)
    for name in ("a", "b"):
        play.join(name, {"range": subscription()}, version=3)
    play.wait(3000)
    play.sync("a", {"a": assignment(0, 1), "b": assignment(2, 3)})
    play.sync("b")
    play.written()
    group = MixedGroup("orders", ConsumerSettings(), topics)
    group.take_over(play.group)
    group.start(0)
    Client(group, "c", {"t"}).heartbeat(0)
    group.check()
    return group


def test_members_of_the_classic_group_keep_what_they_have_until_they_join_again(mixed: MixedGroup) -> None:
    assert mixed.epoch == 2
    assert [member.epoch for member in mixed.members.values()] == [1, 1, 2]
    assert mixed.heartbeat_classic("a-1", None, 1, 0) is ErrorCode.REBALANCE_IN_PROGRESS
    assert numbers(mixed.sync_classic("a-1", None, 1, TYPE).assignment) == [0, 1]


def test_a_cooperative_member_gives_up_in_two_steps(mixed: MixedGroup) -> None:
    first = mixed.join_classic(join_request("a", (0, 1), known="a-1"), 0)
    assert (first.error, first.generation_id, first.leader) == (ErrorCode.NONE, 1, "")
    left = numbers(mixed.sync_classic("a-1", None, 1, TYPE).assignment)
    if len(left) < 2:
        assert mixed.heartbeat_classic("a-1", None, 1, 0) is ErrorCode.REBALANCE_IN_PROGRESS
        again = mixed.join_classic(join_request("a", tuple(left), known="a-1"), 0)
        assert again.generation_id == 2
    assert mixed.heartbeat_classic("a-1", None, 2, 0) is ErrorCode.NONE


def test_an_eager_member_has_given_up_everything_when_it_joins(mixed: MixedGroup) -> None:
    for name in ("a", "b"):
        assert mixed.join_classic(join_request(name, known=f"{name}-1"), 0).generation_id == 2
    client = Client(mixed, "c", {"t"})
    client.heartbeat(0)
    mixed.check()
    shares = [numbers(mixed.sync_classic(f"{name}-1", None, 2, TYPE).assignment) for name in ("a", "b")]
    given = [number for parts in client.owned.values() for number in parts]
    assert sorted(shares[0] + shares[1] + given) == [0, 1, 2, 3]
    assert mixed.state_name == "Stable"


def test_a_partition_that_becomes_free_calls_a_classic_member_back(mixed: MixedGroup) -> None:
    client = Client(mixed, "c", {"t"})
    mixed.join_classic(join_request("a", known="a-1"), 0)
    mixed.join_classic(join_request("b", known="b-1"), 0)
    client.heartbeat(0)
    mixed.heartbeat(ConsumerHeartbeat("c", -1), 0)
    assert mixed.heartbeat_classic("a-1", None, 2, 0) is ErrorCode.REBALANCE_IN_PROGRESS
    mixed.join_classic(join_request("a", known="a-1"), 0)
    mixed.join_classic(join_request("b", known="b-1"), 0)
    shares = [numbers(mixed.sync_classic(f"{name}-1", None, 3, TYPE).assignment) for name in ("a", "b")]
    assert sorted(shares[0] + shares[1]) == [0, 1, 2, 3]


def test_topics_that_a_classic_member_wants_anew_are_named(mixed: MixedGroup, topics: FakeTopics) -> None:
    topics.set("u", 1)
    other = (("range", encode_versioned(ConsumerProtocolSubscription(topics=["u"]), 3)),)
    request = JoinRequest("a-1", None, "a", "/h", 10_000, 60_000, "consumer", other, "a-1", False, reason="subscribe")
    mixed.join_classic(request, 0)
    told = mixed.story.rebalances[-1].reasons[-1]
    assert told == "a-1 (h) changed what it reads: now also topic u; no longer topic t: subscribe"


def test_a_new_classic_member_gets_an_id_first_where_its_version_wants_that(mixed: MixedGroup) -> None:
    request = JoinRequest("", None, "d", "/h", 10_000, 60_000, "consumer", (("range", subscription()),), "d-1", True)
    assert mixed.join_classic(request, 0).error is ErrorCode.MEMBER_ID_REQUIRED
    assert "d-1" not in mixed.members
    answer = mixed.join_classic(join_request("d", known="d-1"), 0)
    assert (answer.error, answer.member_id) == (ErrorCode.NONE, "d-1")
    mixed.check()


def test_a_static_classic_member_is_replaced_by_either_kind(mixed: MixedGroup) -> None:
    mixed.join_classic(join_request("s", instance="one"), 0)
    former = mixed.static_members["one"]
    request = JoinRequest("", "one", "s", "/h", 10_000, 60_000, "consumer", (("range", subscription()),), "s-2")
    assert mixed.join_classic(request, 0).member_id == "s-2"
    with pytest.raises(KafkaError) as fenced:
        mixed.heartbeat_classic(former, "one", 3, 0)
    assert fenced.value.code is ErrorCode.FENCED_INSTANCE_ID
    newer = ConsumerHeartbeat("s-3", 0, "one", rebalance_timeout_ms=1, topic_names=frozenset({"t"}), owned={})
    mixed.heartbeat(newer, 0)
    assert mixed.members["s-3"].classic is None
    mixed.check()


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [
        ("connect", (("range", subscription()),)),
        ("consumer", (("sticky", subscription()),)),
        ("consumer", ()),
        ("consumer", (("range", b"\0"),)),
    ],
)
def test_who_has_nothing_in_common_is_refused_and_changes_nothing(
    mixed: MixedGroup, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    mixed.take_records()
    request = JoinRequest("", None, "d", "/h", 10_000, 60_000, protocol_type, protocols, "d-1", False)
    with pytest.raises(KafkaError) as refused:
        mixed.join_classic(request, 0)
    assert refused.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (len(mixed.members), mixed.take_records()) == (3, [])


def test_classic_requests_of_strangers_are_refused(mixed: MixedGroup) -> None:
    for member_id, generation, error in (
        ("stranger", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("c", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a-1", 7, ErrorCode.ILLEGAL_GENERATION),
    ):
        with pytest.raises(KafkaError) as refused:
            mixed.heartbeat_classic(member_id, None, generation, 0)
        assert refused.value.code is error
    with pytest.raises(KafkaError) as wrong:
        mixed.sync_classic("a-1", None, 1, ("consumer", "sticky"))
    assert wrong.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_who_commits_with_an_old_epoch_hears_of_it_in_the_words_of_its_protocol(mixed: MixedGroup) -> None:
    for member_id, error in (("a-1", ErrorCode.ILLEGAL_GENERATION), ("c", ErrorCode.STALE_MEMBER_EPOCH)):
        epoch = mixed.members[member_id].epoch
        assert mixed.commit_error(member_id, None, epoch, 0) is ErrorCode.NONE
        assert mixed.commit_error(member_id, None, epoch + 1, 0) is error


def test_silence_ends_a_classic_member_after_its_own_session(mixed: MixedGroup) -> None:
    assert [line for line in mixed.tick(10_000) if line.startswith("a-1 ") and line.endswith("session timeout of 10 s")]
    assert set(mixed.members) == {"c"}


def test_when_the_last_newer_member_leaves_a_classic_group_goes_on(mixed: MixedGroup) -> None:
    before = mixed.is_all_classic
    mixed.heartbeat(ConsumerHeartbeat("c", -1), 0)
    assert (before, mixed.is_all_classic) == (False, True)
    play = GroupPlay()
    mixed.hand_over(play.group, play.now)
    play.group.check()
    assert play.group.state_name == "PreparingRebalance"
    assert play.group.generation_id == mixed.epoch
    play.ids = {"a": "a-1", "b": "b-1"}
    play.join("a", {"range": subscription()})
    play.join("b", {"range": subscription()})
    assert play.group.state_name == "CompletingRebalance"


def test_only_groups_of_consumers_are_taken_over(topics: FakeTopics) -> None:
    play = GroupPlay()
    request = JoinRequest("", None, "w", "/h", 10_000, 60_000, "connect", (("default", b""),), "w-1", False)
    play.group.join(request, ("join", "w"), play.now)
    with pytest.raises(KafkaError, match="connect"):
        MixedGroup("orders", ConsumerSettings(), topics).take_over(play.group)


def test_a_mixed_group_is_read_from_its_records(mixed: MixedGroup, topics: FakeTopics) -> None:
    stored: dict[str, StoredGroup] = {}
    for key, value in mixed.take_records():
        load_record(stored, key, value)
    again = MixedGroup("orders", ConsumerSettings(), topics)
    again.restore(stored["orders"])
    again.start(0)
    again.check()
    assert {key: member.subscription() for key, member in again.members.items()} == {
        key: member.subscription() for key, member in mixed.members.items()
    }
    assert again.members["a-1"].state is MemberState.STABLE
    assert numbers(again.sync_classic("a-1", None, 1, TYPE).assignment) == [0, 1]
