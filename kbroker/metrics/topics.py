"""Kafka's BrokerTopicMetrics: what producers wrote and consumers read, by topic and for the whole broker."""

from __future__ import annotations

from collections import defaultdict

from kbroker.metrics.exposition import Exposition
from kbroker.metrics.families import Family, Section
from kbroker.metrics.sources import Sources
from kbroker.replica.hosted import HostedPartition
from kbroker.replica.replica_manager import ReplicaManager
from kbroker.replica.traffic import Traffic

_declare = Section("Topics")
PREFIX = "kafka_server_brokertopicmetrics_"


def _topic_counter(name: str, help: str) -> Family:
    meaning = f"{help} The series without a topic is the broker's sum."
    return _declare.meter(f"{PREFIX}{name}", meaning, "topic")


MESSAGES_IN = _topic_counter("messagesin", "Records that leaders here appended; not what was replicated.")
BYTES_IN = _topic_counter("bytesin", "Bytes of their batches, as they are in the log.")
BYTES_OUT = _topic_counter("bytesout", "Bytes of records sent to consumers.")
BYTES_REJECTED = _topic_counter("bytesrejected", "Bytes of batches that were larger than max.message.bytes.")
PRODUCES = _topic_counter("totalproducerequests", "Partitions that Produce requests named.")
FAILED_PRODUCES = _topic_counter(
    "failedproducerequests", "Those of them that failed for other reasons than a stale view of the cluster."
)
FETCHES = _topic_counter("totalfetchrequests", "Partitions that Fetch requests read, followers' too.")
FAILED_FETCHES = _topic_counter(
    "failedfetchrequests", "Those of them that failed for other reasons than a stale view of the cluster."
)
REPLICATED_IN = _declare.meter(f"{PREFIX}replicationbytesin", "Bytes appended as a follower.")
REPLICATED_OUT = _declare.meter(f"{PREFIX}replicationbytesout", "Bytes of records sent to followers.")

PLAIN = (
    (BYTES_OUT, "bytes_out", "bytes_out"),
    (BYTES_REJECTED, "bytes_rejected", "bytes_rejected"),
    (PRODUCES, "produces", "produces"),
    (FAILED_PRODUCES, "failed_produces", "produces"),
    (FETCHES, "fetches", "fetches"),
    (FAILED_FETCHES, "failed_fetches", "fetches"),
)
"""Counter, where its count is, and the count with which a topic's series begins: failures are told as 0 before the
first one, so that a rate sees it.
"""
MOST_ATTEMPTS = 20


def collect(sources: Sources, out: Exposition) -> None:
    """Add the counters of each topic, and their sums."""
    replicas = sources.services.replicas
    known = sources.services.metadata.topics
    traffic = dict(replicas.traffic)
    gone = replicas.totals.gone
    appended = appended_by_topic(replicas, out)
    for place, (family, of_gone) in enumerate(((MESSAGES_IN, gone.messages_in), (BYTES_IN, gone.bytes_in))):
        _add(out, family, {topic: both[place] for topic, both in appended.items() if both[place]}, of_gone)
    for family, attribute, begins_with in PLAIN:
        by_topic = {topic: getattr(each, attribute) for topic, each in traffic.items() if getattr(each, begins_with)}
        _add(out, family, by_topic, getattr(gone, attribute))
        out.let_others_in()
    deleted = [topic for topic in traffic if topic not in known]
    if deleted:
        sources.server.loop.call_soon_threadsafe(replicas.forget_traffic, deleted)
    out.add(REPLICATED_IN, replicas.totals.replicated_in)
    out.add(REPLICATED_OUT, replicas.totals.replicated_out)


def _add(out: Exposition, family: Family, by_topic: dict[str, int], of_gone: int) -> None:
    for topic, count in by_topic.items():
        out.add(family, count, topic)
    out.add(family, sum(by_topic.values()) + of_gone, "")


def appended_by_topic(replicas: ReplicaManager, out: Exposition) -> dict[str, tuple[int, int]]:
    """Return messages and bytes: what is settled, and what the partitions led now have appended since."""
    hosted_by_topic = defaultdict(list)
    for hosted in list(replicas.hosted.values()):
        hosted_by_topic[hosted.topic].append(hosted)
    appended = {}
    for number, (topic, traffic) in enumerate(list(replicas.traffic.items())):
        appended[topic] = _appended(traffic, hosted_by_topic[topic])
        if number % 100 == 99:
            out.let_others_in()
    return appended


def _appended(traffic: Traffic, partitions: list[HostedPartition]) -> tuple[int, int]:
    """Read again when a partition's part was settled meanwhile: counted twice or not at all, it would look like a
    restart.
    """
    for _ in range(MOST_ATTEMPTS):
        settled = traffic.settled
        messages, size = traffic.messages_in, traffic.bytes_in
        for hosted in partitions:
            more_messages, more_bytes = hosted.appended_as_leader()
            messages += more_messages
            size += more_bytes
        if settled == traffic.settled and not settled % 2:
            break
    return messages, size
