from kbroker.coordinator.group_life import GroupState
from tests.kbroker.coordinator.play import GroupPlay, subscription


def test_states_have_kafkas_names() -> None:
    assert [state.value for state in GroupState] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]


def test_the_record_of_a_group_holds_only_what_the_generation_uses() -> None:
    play = GroupPlay()
    play.join("a", {"range": subscription("t"), "sticky": b"more"}, instance="one", session_ms=7000, rebalance_ms=8000)
    play.sync("a", {"a": b"all"})
    value = play.writes[0].value
    assert (value.protocol_type, value.generation, value.protocol, value.leader) == ("consumer", 1, "range", "a-1")
    assert value.current_state_timestamp == play.now
    (member,) = value.members
    assert (member.member_id, member.group_instance_id, member.client_id, member.client_host) == (
        "a-1",
        "one",
        "a",
        "/host",
    )
    assert (member.session_timeout, member.rebalance_timeout) == (7000, 8000)
    assert (member.subscription, member.assignment) == (subscription("t"), b"all")


def test_only_the_leader_is_told_of_all_members() -> None:
    play = GroupPlay(delay_ms=100)
    play.join("a", version=3)
    play.join("b", version=3)
    play.wait(200)
    assert [line.endswith("of a-1 b-1") for line in play.lines] == [True, False]


def test_the_deadline_of_a_group_without_timers_does_not_come() -> None:
    play = GroupPlay()
    play.form("a")
    play.leave("a")
    play.wait(1_000_000)
    assert play.group.deadline > play.now + 1_000_000_000
