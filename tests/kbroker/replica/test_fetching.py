from __future__ import annotations

from typing import Any

from kbroker.replica.fetching import FetchParameters
from kbroker.replica.hosted import HostedPartition
from tests.fixtures.data_path import Played
from tests.kbroker.handlers.test_fetch import append, ask, fetch_request, partitions_of


def test_a_consumer_is_held_to_fetch_max_bytes_and_a_follower_is_not() -> None:
    request = fetch_request(max_bytes=1 << 30, min_bytes=1 << 29)
    parameters = FetchParameters(request, 17, "PLAINTEXT", 0, 1000)
    assert (parameters.max_bytes, parameters.min_bytes, parameters.is_follower) == (1000, 1000, False)
    follower = FetchParameters(fetch_request(max_bytes=1 << 30, replica_id=2), 17, "PLAINTEXT", 0, 1000)
    assert (follower.max_bytes, follower.is_follower) == (1 << 30, True)


async def test_the_budget_shrinks_from_partition_to_partition(played: Played) -> None:
    await played.lead((0, 1, 2))
    for partition in (0, 1, 2):
        append(played, partition, bytes(1000))
    sizes = [
        len(each.records) for each in partitions_of(ask(played, fetch_request((0, 0), (1, 0), (2, 0), max_bytes=2300)))
    ]
    assert sizes[0] > 1000
    assert sizes[1] > 1000
    assert sizes[2] == 0


async def test_an_idle_partition_of_a_session_is_not_read_again(played: Played) -> None:
    await played.lead((0, 1))
    session = ask(played, fetch_request((0, 0), (1, 0), session=(0, 0))).session_id
    context: Any = played.replicas.sessions.sessions[session]
    hosted = [target.hosted for target in context.targets.values()]
    assert [target.seen_changes for target in context.targets.values()] == [each.changes for each in hosted]


async def test_a_selector_sends_the_consumer_to_another_replica(played: Played) -> None:
    await played.lead(replicas=(1, 2))
    append(played)

    def select(hosted: HostedPartition, rack: str, fetch_offset: int) -> int | None:
        return 2

    played.replicas.replica_selector = select
    (found,) = partitions_of(ask(played, fetch_request((0, 0), max_wait_ms=5000)))
    assert (found.preferred_read_replica, len(found.records)) == (2, 0)


async def test_a_follower_serves_consumers_up_to_its_high_watermark(played: Played) -> None:
    await played.lead()
    append(played)
    await played.lead(replicas=(1, 2), leader=2, leader_epoch=1, partition_epoch=1)
    (found,) = partitions_of(ask(played, fetch_request((0, 0))))
    assert len(found.records) > 0
    (refused,) = partitions_of(ask(played, fetch_request((0, 0)), version=10))
    assert refused.error_code == 6
