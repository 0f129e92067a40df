"""All that is served, gathered in turns: each part's module adds its own."""

from __future__ import annotations

import time

from kbroker.metrics import cluster, coordinators, network, replicas, requests, runtime, topics
from kbroker.metrics.exposition import Exposition
from kbroker.metrics.sources import Sources

COLLECTORS = (
    runtime.collect,
    network.collect,
    requests.collect,
    topics.collect,
    replicas.collect,
    cluster.collect,
    coordinators.collect,
)


def gather(sources: Sources) -> list[bytes]:
    """Return what is served, in pieces. For a thread of its own: it lets the event loop in every millisecond or so."""
    begun = time.perf_counter()
    out = Exposition()
    for collect in COLLECTORS:
        collect(sources, out)
    out.add(runtime.SCRAPE, time.perf_counter() - begun)
    return list(out.chunks())
