from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.protocol.errors import ErrorCode
from kbroker.replica.partition import (
    REFUSED_MS,
    AssignLeaderEpoch,
    Assignment,
    HighWatermarkMoved,
    Partition,
    ProposeIsr,
    Role,
    StartFetching,
    StopFetching,
)

ALL = (1, 2, 3)
LAG_MS = 100


def assignment(leader: int = 1, epoch: int = 0, isr: tuple[int, ...] = ALL, **more: Any) -> Assignment:
    return Assignment(leader, epoch, isr, more.pop("partition_epoch", epoch), more.pop("replicas", ALL), **more)


def leading(log_end_offset: int = 0, isr: tuple[int, ...] = ALL, min_insync_replicas: int = 1) -> Partition:
    partition = Partition("orders", 0, 1, log_end_offset, 0, min_insync_replicas, LAG_MS)
    partition.become_leader(assignment(isr=isr), log_end_offset, 0, ALL)
    partition.check()
    return partition


def fetched(partition: Partition, follower: int, offset: int, now_ms: int = 1) -> list[Any]:
    found = partition.follower_fetched(follower, offset, 0, now_ms, ALL, partition.log_end_offset)
    partition.check()
    return found


def test_a_single_replica_moves_the_high_watermark_with_its_log() -> None:
    partition = Partition("orders", 0, 1)
    partition.become_leader(assignment(isr=(1,), replicas=(1,)), 0, 0, ALL)
    assert partition.log_grew(5, 0, ALL)
    assert not partition.log_grew(5, 0, ALL)
    assert partition.high_watermark == 5


def test_a_follower_without_remote_replicas_is_not_alone() -> None:
    partition = Partition("orders", 0, 1)
    partition.become_follower(assignment(leader=2))
    assert not partition.log_grew(5, 0, ALL)
    assert partition.high_watermark == 0
    partition.check()


def test_becoming_leader_of_a_new_epoch_notes_where_it_begins() -> None:
    partition = Partition("orders", 0, 1, log_end_offset=7)
    assert partition.become_leader(assignment(epoch=4), 7, 0, ALL) == [AssignLeaderEpoch(4, 7)]
    assert partition.leader_epoch_start_offset == 7


def test_the_same_epoch_again_keeps_what_is_known_of_the_followers() -> None:
    partition = leading(5)
    fetched(partition, 2, 3)
    assert partition.become_leader(assignment(partition_epoch=1), 5, 0, ALL) == []
    assert partition.remotes[2].log_end_offset == 3


def test_a_follower_fetches_from_its_leader_and_a_leader_stops() -> None:
    partition = Partition("orders", 0, 1)
    assert partition.become_follower(assignment(leader=2)) == [StartFetching(2, 0)]
    assert partition.become_leader(assignment(epoch=1), 0, 0, ALL) == [StopFetching(), AssignLeaderEpoch(1, 0)]
    assert partition.become_follower(assignment(leader=-1, epoch=2)) == []
    partition.check()


def test_the_high_watermark_waits_for_all_of_the_isr() -> None:
    partition = leading()
    partition.log_grew(10, 0, ALL)
    assert fetched(partition, 2, 10) == []
    assert fetched(partition, 3, 4) == [HighWatermarkMoved(4)]
    assert fetched(partition, 3, 10) == [HighWatermarkMoved(10)]


def test_a_leader_that_hears_late_of_an_earlier_flush_keeps_its_end() -> None:
    partition = leading()
    partition.log_grew(13, 0, ALL)
    partition.log_grew(12, 0, ALL)
    assert fetched(partition, 2, 13) == []
    assert fetched(partition, 3, 13) == [HighWatermarkMoved(13)]


def test_the_high_watermark_stands_still_below_min_insync_replicas() -> None:
    partition = leading(isr=(1,), min_insync_replicas=2)
    assert not partition.log_grew(10, 1000, ALL)
    assert not partition.has_enough_in_sync
    assert partition.isr_changed((1, 2), 0, 1, 1000, ()) == []
    assert fetched(partition, 2, 10, now_ms=1000) == [HighWatermarkMoved(10)]


def test_a_replica_that_has_caught_up_is_proposed_for_the_isr_once() -> None:
    partition = leading(isr=(1, 2))
    partition.log_grew(10, 1000, ALL)
    assert fetched(partition, 2, 10, now_ms=1000) == [HighWatermarkMoved(10)]
    assert fetched(partition, 3, 9, now_ms=1000) == []
    assert fetched(partition, 3, 10, now_ms=1000) == [ProposeIsr((1, 2, 3), 0, 0)]
    assert fetched(partition, 3, 10, now_ms=1000) == []
    assert partition.maximal_isr == (1, 2, 3)
    partition.isr_changed((1, 2, 3), 0, 1, 2, ALL)
    assert (partition.isr, partition.partition_epoch, partition.proposed_isr) == ((1, 2, 3), 1, None)


def test_a_dead_replica_is_not_proposed() -> None:
    partition = leading(isr=(1, 2))
    assert partition.follower_fetched(3, 0, 0, 1, (1, 2), 0) == []


def test_a_slow_member_is_left_out() -> None:
    partition = leading()
    partition.log_grew(10, 0, ALL)
    fetched(partition, 2, 10)
    assert partition.check_isr(LAG_MS, 10) == []
    assert partition.check_isr(LAG_MS + 1, 10) == [ProposeIsr((1, 2), 0, 0)]
    assert partition.high_watermark == 0
    assert partition.isr_changed((1, 2), 0, 1, LAG_MS + 1, ALL) == [HighWatermarkMoved(10)]


def test_a_member_that_is_no_replica_any_more_is_left_out() -> None:
    """A reassignment ends with a leader epoch whose ISR still has the replica that goes."""
    partition = leading()
    partition.become_leader(assignment(epoch=1, replicas=(1, 2)), 0, 0, ALL)
    partition.check()
    assert partition.check_isr(1, 0) == [ProposeIsr((1, 2), 1, 1)]


@pytest.mark.parametrize(
    ("error", "again", "pending"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, False, False),
        (ErrorCode.INVALID_UPDATE_VERSION, False, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True, True),
    ],
)
def test_a_refused_isr_change(error: ErrorCode, again: bool, pending: bool) -> None:
    partition = leading(isr=(1, 2))
    (proposal,) = fetched(partition, 3, 0)
    assert partition.isr_refused(proposal, error, 1, ALL) == ([proposal] if again else [])
    assert (partition.proposed_isr is not None) == pending


def test_a_replica_that_the_controller_does_not_want_holds_nobody_up_for_a_while() -> None:
    partition = leading(isr=(1, 2))
    (proposal,) = fetched(partition, 3, 0)
    partition.log_grew(5, 1, ALL)
    fetched(partition, 2, 5)
    assert partition.high_watermark == 0
    assert partition.isr_refused(proposal, ErrorCode.INELIGIBLE_REPLICA, 1, ALL) == [HighWatermarkMoved(5)]
    assert fetched(partition, 3, 5, now_ms=2) == []
    assert fetched(partition, 3, 5, now_ms=1 + REFUSED_MS) == [ProposeIsr((1, 2, 3), 0, 0)]


def test_a_replica_that_has_gone_holds_nobody_up() -> None:
    partition = leading(isr=(1, 2))
    partition.proposed_isr = None
    partition.remotes[3].fetched(0, 0, 0, 1)
    partition.log_grew(5, 1, ALL)
    fetched(partition, 2, 5)
    assert partition.high_watermark == 0
    assert partition.alive_changed(2, (1, 2)) == [HighWatermarkMoved(5)]


def test_leader_epochs_of_requests() -> None:
    partition = Partition("orders", 0, 1)
    partition.become_leader(assignment(epoch=3), 0, 0, ALL)
    assert partition.leader_error(-1, True) is ErrorCode.NONE
    assert partition.leader_error(2, True) is ErrorCode.FENCED_LEADER_EPOCH
    assert partition.leader_error(4, True) is ErrorCode.UNKNOWN_LEADER_EPOCH
    partition.become_follower(assignment(leader=2, epoch=4))
    assert partition.leader_error(4, True) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.leader_error(4, False) is ErrorCode.NONE


def test_assignments_of_no_newer_epoch_are_refused() -> None:
    partition = leading()
    assert partition.assignment_error(assignment()) is ErrorCode.STALE_CONTROLLER_EPOCH
    elsewhere = assignment(epoch=1, replicas=(2, 3), isr=(2, 3))
    assert partition.assignment_error(elsewhere) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partition.assignment_error(assignment(epoch=1)) is ErrorCode.NONE


def test_a_follower_high_watermark_follows_within_its_log() -> None:
    partition = Partition("orders", 0, 1)
    partition.become_follower(assignment(leader=2))
    assert partition.follower_log_changed(5, 9, 0)
    assert partition.high_watermark == 5
    assert not partition.follower_log_changed(8, 5, 0)


EVENTS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 5)),
    st.tuples(st.just("fetch"), st.sampled_from([2, 3]), st.floats(0, 1)),
    st.tuples(st.just("tick"), st.integers(0, 2 * LAG_MS)),
    st.tuples(st.just("answer"), st.booleans()),
    st.tuples(st.just("lead"), st.sets(st.sampled_from([2, 3]))),
    st.tuples(st.just("follow"), st.integers(0, 3)),
    st.tuples(st.just("stop"), st.none()),
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(EVENTS, max_size=40), st.integers(1, 3))
def test_any_history_keeps_the_invariants(events: list[Any], min_insync_replicas: int) -> None:
    partition = leading(min_insync_replicas=min_insync_replicas)
    now = epoch = partition_epoch = 0
    for event in events:
        now += 1
        before = (partition.role, partition.high_watermark)
        proposed = partition.proposed_isr
        match event:
            case ("append", count) if partition.is_leader:
                partition.log_grew(partition.log_end_offset + count, now, ALL)
            case ("fetch", follower, part) if partition.is_leader:
                offset = int(partition.log_end_offset * part)
                partition.follower_fetched(follower, offset, 0, now, ALL, partition.log_end_offset)
            case ("tick", passed):
                now += passed
                partition.check_isr(now, partition.log_end_offset)
            case ("answer", True) if proposed is not None:
                partition_epoch += 1
                partition.isr_changed(proposed, epoch, partition_epoch, now, ALL)
            case ("answer", False) if proposed is not None:
                proposal = ProposeIsr(proposed, epoch, partition.partition_epoch)
                partition.isr_refused(proposal, ErrorCode.INELIGIBLE_REPLICA, now, ALL)
            case ("lead", others):
                epoch, partition_epoch = epoch + 1, partition_epoch + 1
                given_isr = (1, *sorted(others))
                new = assignment(1, epoch, given_isr, partition_epoch=partition_epoch)
                partition.become_leader(new, partition.log_end_offset, now, ALL)
            case ("follow", cut):
                epoch, partition_epoch = epoch + 1, partition_epoch + 1
                partition.become_follower(assignment(2, epoch, (2, 3), partition_epoch=partition_epoch))
                end = max(partition.high_watermark, partition.log_end_offset - cut)
                partition.follower_log_changed(end, partition.high_watermark, 0)
            case ("stop", None):
                partition.stop()
        partition.check()
        assert partition.high_watermark >= before[1]
        if partition.is_leader and partition.high_watermark > before[1]:
            assert len(partition.isr) >= min(min_insync_replicas, 3)
            for member in partition.isr:
                if member != 1:
                    assert partition.remotes[member].log_end_offset >= partition.high_watermark
        assert before[0] in Role
