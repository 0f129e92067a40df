"""Which brokers hold a new partition: Kafka's spread over brokers and racks (pure).

Brokers a, b, c, d with start 0 and shift 0, three replicas: partition 0 on a b c, 1 on b c d, 2 on c d a, 3 on d a b;
each time round the list the followers move on by one, so that a broker's partitions fail over to different ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kbroker.protocol.errors import ErrorCode, KafkaError


@dataclass(frozen=True, slots=True)
class BrokerRack:
    """A broker that may be given replicas."""

    broker_id: int
    rack: str | None = None


def assign_replicas(
    brokers: Sequence[BrokerRack],
    partitions: int,
    replication_factor: int,
    start: int,
    shift: int,
    start_partition: int = 0,
) -> dict[int, list[int]]:
    """Replicas of `partitions` partitions, numbered from `start_partition`, the preferred leader first.

    `start` and `shift` (both ≥ 0; random for a new topic) are indexes into the brokers sorted by id. Raises KafkaError
    (INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR).
    """
    if partitions <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {len(brokers)}.",
        )
    with_rack = sum(broker.rack is not None for broker in brokers)
    if with_rack and with_rack < len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Not all brokers have rack information for replica rack aware assignment.",
        )
    numbers = range(start_partition, start_partition + partitions)
    if with_rack:
        racks = {broker.broker_id: broker.rack or "" for broker in brokers}
        return _spread_over_racks(racks, numbers, replication_factor, start, shift)
    ids = sorted(broker.broker_id for broker in brokers)
    return _spread(ids, numbers, replication_factor, start, shift)


def continue_assignment(
    brokers: Sequence[BrokerRack], existing: Mapping[int, Sequence[int]], additional: int
) -> dict[int, list[int]]:
    """Replicas of the partitions that are added to a topic, going on where its first partition began."""
    first = existing[0]
    ids = [broker.broker_id for broker in sorted(brokers, key=lambda broker: broker.broker_id)]
    start = max(0, next((index for index, broker_id in enumerate(ids) if broker_id >= first[0]), 0))
    return assign_replicas(brokers, additional, len(first), start, start, len(existing))


def _replica_index(first: int, shift: int, replica: int, brokers: int) -> int:
    """Index of the `replica`-th follower (from 0) of a partition led by the broker at index `first`."""
    return (first + 1 + (shift + replica) % (brokers - 1)) % brokers


def _spread(
    ids: Sequence[int], numbers: range, replication_factor: int, start: int, shift: int
) -> dict[int, list[int]]:
    assignment = {}
    count = len(ids)
    for number in numbers:
        if number > 0 and number % count == 0:
            shift += 1
        first = (number + start) % count
        replicas = [ids[first]]
        replicas += [ids[_replica_index(first, shift, each, count)] for each in range(replication_factor - 1)]
        assignment[number] = replicas
    return assignment


def interleave_racks(racks: Mapping[int, str]) -> list[int]:
    """Broker ids, one of each rack in turn: racks sorted by name, brokers by id."""
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, columns))
    return [column[turn] for turn in range(longest) for column in columns if turn < len(column)]


def _spread_over_racks(
    racks: Mapping[int, str], numbers: range, replication_factor: int, start: int, shift: int
) -> dict[int, list[int]]:
    ids = interleave_racks(racks)
    rack_count = len(set(racks.values()))
    assignment = {}
    for number in numbers:
        if number > 0 and number % len(ids) == 0:
            shift += 1
        first = (number + start) % len(ids)
        assignment[number] = _pick(ids, racks, rack_count, first, shift, replication_factor)
    return assignment


def _pick(
    ids: Sequence[int], racks: Mapping[int, str], rack_count: int, first: int, shift: int, replication_factor: int
) -> list[int]:
    """One partition's replicas: no rack twice while another is unused, no broker twice."""
    replicas = [ids[first]]
    used_racks = {racks[ids[first]]}
    turn = 0
    while len(replicas) < replication_factor:
        broker_id = ids[_replica_index(first, shift * rack_count, turn, len(ids))]
        turn += 1
        rack_is_free = racks[broker_id] not in used_racks or len(used_racks) == rack_count
        if rack_is_free and broker_id not in replicas:
            replicas.append(broker_id)
            used_racks.add(racks[broker_id])
    return replicas
