from __future__ import annotations

from kbroker.protocol.errors import ErrorCode
from kbroker.replica.log_dir_states import describe_log_dirs, log_dir_states
from tests.fixtures.data_path import TOPIC, Played
from tests.kbroker.handlers.test_fetch import append


async def test_log_directories_are_described_with_sizes(played: Played) -> None:
    await played.lead((0, 1))
    append(played)
    (found,) = await describe_log_dirs(played.replicas, None)
    assert (found.error, found.path) == (ErrorCode.NONE, played.logs.live_dirs[0])
    assert sorted((partition, size > 0) for _, partition, size, _, _ in found.replicas) == [(0, True), (1, False)]
    (some,) = await describe_log_dirs(played.replicas, {TOPIC: {1}})
    assert [partition for _, partition, *_ in some.replicas] == [1]


async def test_a_directory_that_is_gone_is_described_by_its_error(played: Played) -> None:
    await played.lead()
    played.logs.mark_offline(played.logs.live_dirs[0], OSError(5, "the disk is gone"))
    (found,) = await describe_log_dirs(played.replicas, None)
    assert (found.error, found.total_bytes, found.replicas) == (ErrorCode.KAFKA_STORAGE_ERROR, -1, [])


async def test_each_partition_of_a_directory_is_a_step(played: Played) -> None:
    await played.lead((0, 1, 2))
    assert len(list(log_dir_states(played.replicas, played.logs.describe(), {TOPIC: {0}}))) == 3
