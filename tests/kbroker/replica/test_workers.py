from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor

import pytest

from kbroker.replica.workers import KINDS, Workers
from kbroker.segment.threads import NICER_BY
from tests.fixtures.threads import no_more_threads
from tests.segment.test_threads import niceness


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(preparing_threads=1, upkeep_threads=1)
    yield made
    made.close()


def kinds(workers: Workers) -> dict[str, Executor]:
    by_disk = {
        f"{name} {disk}": pool(disk)
        for name, pool in (
            ("flushing", workers.flushing),
            ("following", workers.following),
            ("appending", workers.appending),
            ("reading", workers.reading),
        )
        for disk in ("a", "b")
    }
    return {kind: getattr(workers, kind) for kind in KINDS} | by_disk


@pytest.mark.parametrize("stuck", sorted(kinds(Workers())))
def test_work_that_stands_still_holds_up_its_own_kind_and_disk_only(workers: Workers, stuck: str) -> None:
    go_on = threading.Event()
    try:
        waiting = [kinds(workers)[stuck].submit(go_on.wait, 60) for _ in range(20)]
        for name, pool in kinds(workers).items():
            if name != stuck:
                assert pool.submit(lambda: True).result(20)
        assert not any(each.done() for each in waiting)
    finally:
        go_on.set()


def test_a_disk_keeps_its_threads(workers: Workers) -> None:
    assert workers.reading("a") is workers.reading("a")
    assert workers.reading("a") is not workers.flushing("a")


def test_closing_waits_for_what_is_under_way_and_drops_the_rest() -> None:
    workers = Workers(preparing_threads=1)
    begun, done = threading.Event(), []

    def work() -> None:
        begun.set()
        done.append(1)

    futures = [workers.preparing.submit(work)]
    assert begun.wait(60)
    workers.close()
    assert futures[0].done()
    assert done == [1]
    with pytest.raises(RuntimeError):
        workers.preparing.submit(work)


def test_other_numbers_of_threads_hold_for_new_work_and_what_has_begun_is_done(workers: Workers) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def wait() -> str:
        begun.set()
        assert may_end.wait(60)
        return "done"

    first = workers.preparing.submit(wait)
    waiting = workers.preparing.submit(lambda: "done too")
    assert begun.wait(60)
    upkeep = workers.upkeep
    workers.resize(2, 1)
    assert workers.upkeep is upkeep
    barrier = threading.Barrier(2)
    both = [workers.preparing.submit(barrier.wait, 10) for _ in range(2)]
    assert sorted(each.result(60) for each in both) == [0, 1]
    may_end.set()
    assert (first.result(60), waiting.result(60)) == ("done", "done too")


def test_where_no_thread_can_be_started_work_is_not_taken_and_not_done_later(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    no_more_threads(monkeypatch)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        workers.appending("a").submit(done.append, "refused")
    monkeypatch.undo()
    workers.appending("a").submit(done.append, "taken").result(20)
    assert done == ["taken"]


def test_where_no_further_thread_can_be_started_those_there_are_do_the_work(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def stand() -> None:
        begun.set()
        assert go_on.wait(20)

    standing = workers.appending("a").submit(stand)
    assert begun.wait(20)
    no_more_threads(monkeypatch)
    waiting = workers.appending("a").submit(lambda: "done")
    monkeypatch.undo()
    go_on.set()
    assert waiting.result(20) == "done"
    standing.result(20)


def test_what_computes_is_nicer_than_the_rest(workers: Workers) -> None:
    here = niceness()
    found = {kind: getattr(workers, kind).submit(niceness).result(20) - here for kind in KINDS}
    nicer = min(NICER_BY, 19 - here) if sys.platform == "linux" else 0
    assert found == {"preparing": nicer, "upkeep": 0, "loading": 0, "expressions": nicer}
    workers.resize(3, 3)
    assert workers.preparing.submit(niceness).result(20) - here == nicer


def test_there_are_no_more_threads_that_compute_than_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    workers = Workers(preparing_threads=8, upkeep_threads=8)
    made = workers.preparing
    assert (made._max_workers, workers.upkeep._max_workers) == (2, 8)
    workers.resize(9, 8)
    assert workers.preparing is made
    workers.resize(1, 8)
    assert workers.preparing._max_workers == 1
    workers.close()
