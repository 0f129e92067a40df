"""One member on its way to its target."""

from __future__ import annotations

from kbroker.coordinator.consumer_member import ConsumerMember, MemberState, Partitions, difference, intersection, union

T, U = b"t" * 16, b"u" * 16


def parts(*numbers: int, topic: bytes = T) -> Partitions:
    return {topic: frozenset(numbers)} if numbers else {}


def member(assigned: Partitions, epoch: int = 1) -> ConsumerMember:
    return ConsumerMember("m", epoch=epoch, assigned=assigned)


def step(
    each: ConsumerMember, target: Partitions, owned: Partitions | None, taken: tuple[int, ...] = (), epoch: int = 2
) -> None:
    each.reconcile(epoch, target, owned, lambda topic, partition: partition not in taken)


def test_nothing_to_give_up_leads_to_the_target_at_once() -> None:
    each = member(parts(0))
    step(each, parts(0, 1), None)
    assert (each.state, each.epoch, each.previous_epoch) == (MemberState.STABLE, 2, 1)
    assert each.assigned == parts(0, 1)


def test_what_must_be_given_up_keeps_the_member_in_its_epoch_until_it_says_so() -> None:
    each = member(parts(0, 1, 2))
    step(each, parts(0, 3), parts(0, 1, 2))
    assert (each.state, each.epoch) == (MemberState.UNREVOKED_PARTITIONS, 1)
    assert (each.assigned, each.pending_revocation) == (parts(0), parts(1, 2))
    for owned in (None, parts(0, 2)):
        step(each, parts(0, 3), owned)
        assert each.state is MemberState.UNREVOKED_PARTITIONS
    step(each, parts(0, 3), parts(0))
    assert (each.state, each.epoch, each.assigned) == (MemberState.STABLE, 2, parts(0, 3))
    assert not each.pending_revocation


def test_what_others_still_have_is_waited_for_in_the_new_epoch() -> None:
    each = member(parts(0))
    step(each, parts(0, 1, 2), None, taken=(1, 2))
    assert (each.state, each.epoch, each.assigned) == (MemberState.UNRELEASED_PARTITIONS, 2, parts(0))
    step(each, parts(0, 1, 2), None, taken=(2,))
    assert (each.state, each.assigned) == (MemberState.UNRELEASED_PARTITIONS, parts(0, 1))
    step(each, parts(0, 1, 2), None)
    assert (each.state, each.assigned) == (MemberState.STABLE, parts(0, 1, 2))
    assert each.previous_epoch == 1


def test_a_target_that_changes_again_on_the_way_is_gone_to_from_there() -> None:
    each = member(parts(0, 1))
    step(each, parts(0), parts(0, 1))
    assert each.state is MemberState.UNREVOKED_PARTITIONS
    step(each, parts(0, 1), parts(0), epoch=3)
    assert (each.state, each.epoch, each.assigned) == (MemberState.STABLE, 3, parts(0, 1))


def test_a_member_that_does_not_have_what_it_should_give_up_need_not_wait() -> None:
    each = member(parts(0, 1))
    step(each, parts(2), {})
    assert (each.state, each.assigned) == (MemberState.STABLE, parts(2))


def test_partitions_are_sets_by_topic() -> None:
    first, second = parts(0, 1) | parts(5, topic=U), parts(1, 2)
    assert union(first, second) == parts(0, 1, 2) | parts(5, topic=U)
    assert intersection(first, second) == parts(1)
    assert difference(first, second) == parts(0) | parts(5, topic=U)
    assert difference(second, second) == {}
