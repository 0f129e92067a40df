"""Cycles in small graphs of operations, edge by edge: pure and in plain Python.

A graph is a mapping node -> {node: kinds of the edge}; kinds are words (`ww`, `wr`, `rw`, `process`, `realtime`).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

WW, WR, RW, PROCESS, REALTIME = "ww", "wr", "rw", "process", "realtime"
Step = tuple[int, str, int]
"""(from, kind, to)"""
MOST_TRIES = 200


@dataclass(slots=True)
class Graph:
    """Operations and what puts one before the other."""

    edges: dict[int, dict[int, set[str]]] = field(default_factory=dict)

    def add(self, one: int, kind: str, other: int) -> None:
        """Put one operation before another."""
        if one != other:
            self.edges.setdefault(one, {}).setdefault(other, set()).add(kind)
            self.edges.setdefault(other, {})

    def successors(self, node: int, kinds: Collection[str]) -> Iterator[int]:
        """Where edges of these kinds lead."""
        for other, found in self.edges[node].items():
            if not found.isdisjoint(kinds):
                yield other


def components(graph: Graph, kinds: Collection[str]) -> list[set[int]]:
    """The strongly connected components of several nodes, over edges of these kinds (Tarjan's, without recursion)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[set[int]] = []
    for root in graph.edges:
        if root in number:
            continue
        work = [(root, graph.successors(root, kinds))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, successors = work[-1]
            for other in successors:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, graph.successors(other, kinds)))
                    break
                if other in on_stack:
                    low[node] = min(low[node], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    component = _popped(stack, node)
                    on_stack -= component
                    if len(component) > 1:
                        found.append(component)
    return found


def _popped(stack: list[int], last: int) -> set[int]:
    component = set()
    while True:
        node = stack.pop()
        component.add(node)
        if node == last:
            return component


@dataclass(frozen=True, slots=True)
class Shape:
    """What a cycle consists of: the kind it must have, the others it may have, and how many rw edges."""

    required: str
    others: frozenset[str]
    least_rw: int = 0
    most_rw: int | None = None

    @property
    def kinds(self) -> frozenset[str]:
        """All kinds of edges."""
        return self.others | {self.required}


def shortest_cycle(graph: Graph, shape: Shape) -> list[Step] | None:
    """The shortest cycle of a shape, of those that a bounded search finds; None where there is none."""
    best: list[Step] | None = None
    for component in components(graph, shape.kinds):
        tries = 0
        for one in sorted(component):
            for other in sorted(graph.edges[one]):
                if other not in component or shape.required not in graph.edges[one][other]:
                    continue
                tries += 1
                path = _path(graph, other, one, component, shape)
                if path is not None and (best is None or len(path) + 1 < len(best)):
                    cycle = [(one, shape.required, other), *path]
                    rw = sum(kind == RW for _, kind, _ in cycle)
                    if rw >= shape.least_rw and (shape.most_rw is None or rw <= shape.most_rw):
                        best = cycle
                if tries >= MOST_TRIES or (best is not None and len(best) == 2):
                    break
            if tries >= MOST_TRIES or (best is not None and len(best) == 2):
                break
    return best


def _path(graph: Graph, start: int, end: int, inside: Collection[int], shape: Shape) -> list[Step] | None:
    """The shortest way from one node to another over the other kinds of edges."""
    came: dict[int, Step] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        if node == end:
            return _steps(came, start, end)
        for other, kinds in graph.edges[node].items():
            allowed = sorted(kinds & shape.others, key=_preference)
            if allowed and other in inside and other not in came and other != start:
                came[other] = node, allowed[0], other
                waiting.append(other)
    return None


def _preference(kind: str) -> int:
    """Data before order, and what is not an anti-dependency before what is."""
    return (WW, WR, PROCESS, REALTIME, RW).index(kind)


def _steps(came: Mapping[int, Step], start: int, end: int) -> list[Step]:
    steps: list[Step] = []
    node = end
    while node != start:
        steps.append(came[node])
        node = came[node][0]
    return steps[::-1]


def add_realtime(graph: Graph, spans: Iterable[tuple[int, int, int]]) -> None:
    """Add an edge from each operation to those that began after it had ended, without those that follow from others.

    Spans are (operation, begin, end).
    """
    events: list[tuple[int, int, int, int]] = []
    for node, begin, end in spans:
        # What ends at the moment in which another begins is concurrent with it.
        events.append((begin, 0, node, begin))
        events.append((end, 1, node, begin))
    frontier: dict[int, int] = {}
    for moment, is_end, node, begin in sorted(events):
        if is_end:
            frontier = {each: ended for each, ended in frontier.items() if ended >= begin}
            frontier[node] = moment
        else:
            for each in frontier:
                graph.add(each, REALTIME, node)


def add_processes(graph: Graph, processes: Mapping[int, Sequence[int]]) -> None:
    """Add an edge from each operation of a process to its next."""
    for operations in processes.values():
        for one, other in itertools.pairwise(operations):
            graph.add(one, PROCESS, other)
