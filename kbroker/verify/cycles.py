"""Cycles among operations: each would have had to happen before the other.

Edges: ww (wrote the next entry of a log), wr (read what another wrote), rw (missed what another wrote next), the order
of a process, and real time. Those of wr, process and real time alone are anomalies; all others are allowed in Kafka's
model, which isolates no writes, and looked for among transactions only.

An operation that ended stands at its end, one that nobody knows the end of at its beginning: then edges of process and
real time lead forward, and every cycle has an edge backward. So a cycle lies where intervals of backward edges overlap,
and only there graphs are built.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kbroker.verify.anomalies import Example, Finding, finding
from kbroker.verify.columns import INFO_CODE, TXN, Columns, Flags, Ints
from kbroker.verify.graphs import (
    PROCESS,
    REALTIME,
    RW,
    WR,
    WW,
    Graph,
    Shape,
    Step,
    add_processes,
    add_realtime,
    shortest_cycle,
)
from kbroker.verify.versions import OFFSET_BITS, Versions

MOST_NODES = 20_000
"""Of a graph; where more operations hang together, only the allowed cycles among the first ones are looked for."""
MOST_EDGES = 4 * MOST_NODES
MOST_GRAPHS = 200

_ALL = frozenset({WW, WR, PROCESS, REALTIME})
ILLEGAL = {
    "G1c": Shape(WR, frozenset({WR})),
    "G1c-process": Shape(PROCESS, frozenset({WR, PROCESS})),
    "G1c-realtime": Shape(REALTIME, _ALL - {WW}),
}
ALLOWED = {
    "G0": Shape(WW, frozenset({WW})),
    "G0-process": Shape(PROCESS, frozenset({WW, PROCESS})),
    "G0-realtime": Shape(REALTIME, frozenset({WW, PROCESS, REALTIME})),
    "G1c-ww": Shape(WR, frozenset({WW, WR})),
    "G-single": Shape(RW, frozenset({WW, WR}), least_rw=1, most_rw=1),
    "G-single-process": Shape(RW, frozenset({WW, WR, PROCESS}), least_rw=1, most_rw=1),
    "G-single-realtime": Shape(RW, _ALL, least_rw=1, most_rw=1),
    "G2": Shape(RW, frozenset({WW, WR, RW}), least_rw=2),
    "G2-process": Shape(RW, frozenset({WW, WR, RW, PROCESS}), least_rw=2),
    "G2-realtime": Shape(RW, _ALL | {RW}, least_rw=2),
}


@dataclass(slots=True)
class Edges:
    """Edges of one kind between operations."""

    kind: str
    one: Ints
    other: Ints


def check_cycles(columns: Columns, versions: Versions) -> list[Finding]:
    """All findings of this module."""
    wr = _wr(columns, versions)
    found = _search(columns, [wr], ILLEGAL)
    is_txn = columns.operations.kind == TXN
    among = [wr, _ww(columns, versions), _rw(columns, versions)]
    within = [_chosen(edges, is_txn[edges.one] & is_txn[edges.other]) for edges in among]
    return found + _search(columns, within, ALLOWED)


def _chosen(edges: Edges, wanted: Flags) -> Edges:
    rows = np.flatnonzero(wanted)
    return Edges(edges.kind, edges.one[rows], edges.other[rows])


def _wr(columns: Columns, versions: Versions) -> Edges:
    rows = np.flatnonzero(versions.writer_of_read >= 0)
    writer = columns.sends.operation[versions.writer_of_read[rows]]
    return _without_loops(Edges(WR, writer, columns.reads.operation[rows]))


def _without_loops(edges: Edges) -> Edges:
    return _chosen(edges, edges.one != edges.other)


def _writers(columns: Columns, versions: Versions) -> tuple[Ints, Ints]:
    """The operations that wrote entries, and the entries' keys; entries that nobody wrote are left out."""
    entries = np.flatnonzero((versions.send >= 0) & versions.is_visible)
    return columns.sends.operation[versions.send[entries]], versions.place[entries] >> OFFSET_BITS


def _ww(columns: Columns, versions: Versions) -> Edges:
    writer, key = _writers(columns, versions)
    is_txn = columns.operations.kind[writer] == TXN
    writer, key = writer[is_txn], key[is_txn]
    same = np.flatnonzero(key[1:] == key[:-1])
    return _without_loops(Edges(WW, writer[same], writer[same + 1]))


def _rw(columns: Columns, versions: Versions) -> Edges:
    """From each transaction that read a key to the writer of the entry behind the last one that it read."""
    reads, operations = columns.reads, columns.operations
    rows = np.flatnonzero(operations.kind[reads.operation] == TXN)
    if not len(rows):
        return Edges(RW, rows, rows)
    code = reads.operation[rows] * max(len(columns.keys), 1) + reads.key[rows]
    order = np.lexsort((versions.read_entry[rows], code))
    is_last = np.append(code[order][1:] != code[order][:-1], True)
    last = rows[order[is_last]]
    following = versions.read_entry[last] + 1
    is_there = following < len(versions.place)
    last, following = last[is_there], following[is_there]
    wanted = (versions.place[following] >> OFFSET_BITS == reads.key[last]) & (versions.send[following] >= 0)
    last, following = last[wanted], following[wanted]
    writer = columns.sends.operation[versions.send[following]]
    return _without_loops(Edges(RW, reads.operation[last], writer))


def _search(columns: Columns, kinds: list[Edges], shapes: dict[str, Shape]) -> list[Finding]:
    """Find the shortest cycle of each shape in each place where there may be cycles."""
    operations = columns.operations
    position = np.where(operations.type == INFO_CODE, operations.invoke_index, operations.complete_index)
    starts, ends = _intervals(position, kinds)
    inside = [_inside(position, edges, starts, ends) for edges in kinds]
    examples: dict[str, list[Example]] = {}
    for number in range(min(len(starts), MOST_GRAPHS)):
        graph = _graph(columns, position, [_chosen(edges, at == number) for edges, at in inside])
        for name, shape in shapes.items():
            cycle = shortest_cycle(graph, shape)
            if cycle is not None:
                examples.setdefault(name, []).append(_example(cycle))
    return [each for name, found in examples.items() for each in finding(name, len(found), found)]


def _inside(position: Ints, edges: Edges, starts: Ints, ends: Ints) -> tuple[Edges, Ints]:
    """The edges that lie within one interval, and which one."""
    if not len(starts):
        return edges, np.full(len(edges.one), -1)
    one, other = position[edges.one], position[edges.other]
    at = np.searchsorted(starts, one, side="right") - 1
    is_inside = (at >= 0) & (one <= ends[at]) & (other >= starts[at]) & (other <= ends[at])
    return _chosen(edges, is_inside), at[is_inside]


def _intervals(position: Ints, kinds: list[Edges]) -> tuple[Ints, Ints]:
    """Where backward edges overlap: the first positions, and the last ones."""
    one = np.concatenate([position[edges.one] for edges in kinds])
    other = np.concatenate([position[edges.other] for edges in kinds])
    backward = np.flatnonzero(one > other)
    if not len(backward):
        return backward, backward
    begin, end = other[backward], one[backward]
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    reach = np.maximum.accumulate(end)
    starts = np.flatnonzero(np.append(True, begin[1:] > reach[:-1]))
    lasts = np.append(starts[1:], len(begin)) - 1
    return begin[starts], reach[lasts]


def _graph(columns: Columns, position: Ints, kinds: list[Edges]) -> Graph:
    graph = Graph()
    for edges in kinds:
        for one, other in zip(edges.one[:MOST_EDGES].tolist(), edges.other[:MOST_EDGES].tolist(), strict=True):
            graph.add(one, edges.kind, other)
    operations = columns.operations
    nodes = sorted(graph.edges, key=lambda node: int(position[node]))[:MOST_NODES]
    processes: dict[int, list[int]] = {}
    for node in nodes:
        processes.setdefault(int(operations.process[node]), []).append(node)
    add_processes(graph, processes)
    ends = operations.end_time
    spans = [(node, int(operations.invoke_time[node]), int(ends[node])) for node in nodes]
    add_realtime(graph, spans)
    return graph


def _example(cycle: list[Step]) -> Example:
    words = {
        WW: "wrote before",
        WR: "was read by",
        RW: "missed what was written by",
        PROCESS: "came, in its process, before",
        REALTIME: "had ended when there began",
    }
    names = {node: f"T{number}" for number, (node, _, _) in enumerate(cycle, 1)}
    text = "; ".join(f"{names[one]} {words[kind]} {names[other]}" for one, kind, other in cycle)
    return Example(text, tuple(names))
