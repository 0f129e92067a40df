"""When sessions expire."""

from kbroker.dev.stand_in.session_clock import SessionClock


def test_a_session_expires_when_nobody_heard_of_it_for_its_timeout() -> None:
    clock = SessionClock()
    assert clock.next_look_ms() is None
    clock.heard_of(1, 100, now_ms=0)
    clock.heard_of(2, 50, now_ms=0)
    assert clock.next_look_ms() == 50
    assert clock.expired(49) == []
    clock.heard_of(2, 50, now_ms=49)
    assert clock.expired(98) == []
    assert clock.expired(100) == [2, 1]
    assert clock.expired(1000) == []


def test_a_session_that_was_closed_does_not_expire() -> None:
    clock = SessionClock()
    clock.heard_of(1, 100, now_ms=0)
    clock.forget(1)
    assert clock.expired(1000) == []
    assert clock.next_look_ms() is None


def test_a_shorter_timeout_counts_from_when_it_was_told() -> None:
    clock = SessionClock()
    clock.heard_of(1, 1000, now_ms=0)
    clock.heard_of(1, 10, now_ms=5)
    assert clock.next_look_ms() == 15
    assert clock.expired(15) == [1]
    assert clock.expired(2000) == []


def test_many_sessions_that_are_heard_of_all_the_time_cost_no_more_than_one_entry_each() -> None:
    clock = SessionClock()
    for now_ms in range(0, 10_000, 10):
        for session_id in range(5):
            clock.heard_of(session_id, 100, now_ms)
        assert clock.expired(now_ms) == []
    assert len(clock._queue) == 5
