"""Tests for kbroker.verify.graphs: components, shortest cycles, and the order of time."""

from kbroker.verify.graphs import PROCESS, REALTIME, RW, WR, WW, Graph, Shape, add_processes, add_realtime, components
from kbroker.verify.graphs import shortest_cycle as shortest


def graph(*steps: tuple[int, str, int]) -> Graph:
    found = Graph()
    for step in steps:
        found.add(*step)
    return found


def test_components_are_found_over_the_wanted_edges_only() -> None:
    found = graph((1, WW, 2), (2, WW, 3), (3, WW, 1), (3, WR, 4), (4, WR, 3), (5, WW, 5))
    assert components(found, {WW}) == [{1, 2, 3}]
    assert components(found, {WR}) == [{3, 4}]
    assert components(found, {WW, WR}) == [{1, 2, 3, 4}]
    assert components(graph((1, WW, 2)), {WW}) == []


def test_a_deep_graph_does_not_exhaust_the_stack() -> None:
    deep = graph(*((at, WW, at + 1) for at in range(5_000)), (5_000, WW, 0))
    assert components(deep, {WW}) == [set(range(5_001))]


def test_the_shortest_cycle_of_a_shape_is_found() -> None:
    found = graph((1, WR, 2), (2, WW, 3), (3, WW, 1), (2, WW, 1), (4, RW, 5), (5, RW, 4))
    assert shortest(found, Shape(WR, frozenset({WW}))) == [(1, WR, 2), (2, WW, 1)]
    assert shortest(found, Shape(WW, frozenset({WW}))) is None
    assert shortest(found, Shape(RW, frozenset({WW, WR}), least_rw=1, most_rw=1)) is None
    assert shortest(found, Shape(RW, frozenset({RW}), least_rw=2)) == [(4, RW, 5), (5, RW, 4)]


def test_real_time_puts_one_before_another_only_where_it_had_ended() -> None:
    found = Graph()
    add_realtime(found, [(1, 0, 10), (2, 5, 15), (3, 12, 20), (4, 25, 30), (5, 10, 11)])
    assert found.edges[1] == {3: {REALTIME}}
    assert 2 not in found.edges[1]
    assert 4 not in found.edges[1], "it follows from the others"
    assert found.edges[3] == found.edges[2] == {4: {REALTIME}}


def test_a_process_does_one_after_the_other() -> None:
    found = Graph()
    add_processes(found, {7: [1, 2, 3]})
    assert found.edges == {1: {2: {PROCESS}}, 2: {3: {PROCESS}}, 3: {}}
