import asyncio

import pytest

from kbroker.client import errors
from kbroker.client.client_config import AdminConfig
from kbroker.client.cluster import Cluster
from kbroker.client.group.commits import Commits, Offsets
from kbroker.client.group.coordinator import Coordinator
from kbroker.client.group.events import Identity
from kbroker.client.metadata import TopicMetadata
from kbroker.client.types import OffsetAndMetadata, TopicPartition
from kbroker.protocol.errors import ErrorCode


async def test_offsets_without_a_membership_are_stored_and_found(bootstrap: str, topic: str) -> None:
    cluster = Cluster(AdminConfig(bootstrap=bootstrap))
    try:
        commits = Commits(Coordinator(cluster, topic))
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        await commits.commit({})
        await commits.commit({first: OffsetAndMetadata(5, "why", 2)})
        assert await commits.committed([first, second]) == {first: OffsetAndMetadata(5, "why", 2), second: None}
        assert await commits.committed(None) == {first: OffsetAndMetadata(5, "why", 2)}
        assert await commits.committed([]) == {}
    finally:
        await cluster.close()


@pytest.mark.slow
async def test_refusals_are_raised_and_told(bootstrap: str, topic: str) -> None:
    cluster = Cluster(AdminConfig(bootstrap=bootstrap))
    told: list[ErrorCode] = []
    key = TopicPartition(topic, 0)
    try:
        stranger = Commits(
            Coordinator(cluster, topic), None, lambda: Identity(3, "nobody"), lambda code, identity: told.append(code)
        )
        # Kafka 4 says that there is no such group, Kafka 3 and we that it has no such generation.
        with pytest.raises((errors.IllegalGenerationError, errors.GroupIdNotFoundError), match=f"{topic}-0"):
            await stranger.commit({key: OffsetAndMetadata(1)})
        assert told in ([ErrorCode.ILLEGAL_GENERATION], [ErrorCode.GROUP_ID_NOT_FOUND])
        nobody = Commits(Coordinator(cluster, topic))
        with pytest.raises(errors.OffsetMetadataTooLargeError):
            await nobody.commit({key: OffsetAndMetadata(1, "x" * 5000)})
        with pytest.raises(errors.UnknownTopicOrPartitionError, match="no-such-topic-0"):
            await nobody.commit({TopicPartition(f"{topic}-no-such-topic", 0): OffsetAndMetadata(1)})
    finally:
        await cluster.close()


class Silent(Coordinator):
    """No broker says which it is."""

    async def find(self, timeout_ms: int | None = None) -> int:
        await asyncio.sleep(60)
        return 1


async def test_no_silence_takes_longer_than_the_caller_waits() -> None:
    cluster = Cluster(AdminConfig(bootstrap="127.0.0.1:1"))
    commits = Commits(Silent(cluster, "mine"))
    key = TopicPartition("t", 0)
    async with asyncio.timeout(5):
        with pytest.raises(errors.TimedOut, match=r"mine: .* within 20 ms"):
            await commits.committed([key], 20)
        with pytest.raises(errors.TimedOut, match=r"mine: .* within 20 ms"):
            await commits.commit({key: OffsetAndMetadata(1)}, 20)
    await cluster.close()


class BehindOnce(Commits):
    """A member that hears of its new epoch after its first commit."""

    def __init__(self, coordinator: Coordinator, code: ErrorCode) -> None:
        super().__init__(coordinator)
        self.code = code
        self.stored: list[Offsets] = []
        self.tries = 0

    async def commit_once(self, offsets: Offsets, timeout_ms: int) -> None:
        self.tries += 1
        if self.tries == 1:
            raise errors.error_for(self.code)
        self.stored.append(offsets)


async def test_a_member_that_has_not_heard_of_its_epoch_commits_again_and_others_do_not() -> None:
    cluster = Cluster(AdminConfig(bootstrap="127.0.0.1:1", retry_backoff_ms=1))
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(5)}
    behind = BehindOnce(Coordinator(cluster, "g"), ErrorCode.STALE_MEMBER_EPOCH)
    looks: list[Offsets] = []
    await behind.commit_by_newest_epoch(offsets, looks.append)
    assert (behind.tries, behind.stored, len(looks)) == (2, [offsets], 2)
    gone = BehindOnce(Coordinator(cluster, "g"), ErrorCode.UNKNOWN_MEMBER_ID)
    with pytest.raises(errors.UnknownMemberIdError):
        await gone.commit_by_newest_epoch(offsets, looks.append)
    assert gone.tries == 1
    await cluster.close()


async def test_a_commit_refused_for_a_topic_that_has_gone_is_not_made_again_for_the_next_of_its_name() -> None:
    cluster = Cluster(AdminConfig(bootstrap="127.0.0.1:1", retry_backoff_ms=1))
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(5)}
    cluster.metadata.topics["t"] = TopicMetadata("t", b"1" * 16, False, ErrorCode.NONE, {})
    ahead = BehindOnce(Coordinator(cluster, "g"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    await ahead.commit(offsets, 10_000)  # the coordinator had not heard of the topic yet
    assert (ahead.tries, ahead.stored) == (2, [offsets])

    class GoneMeanwhile(BehindOnce):
        async def commit_once(self, offsets: Offsets, timeout_ms: int) -> None:
            cluster.metadata.forget(["t"])
            await super().commit_once(offsets, timeout_ms)

    late = GoneMeanwhile(Coordinator(cluster, "g"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        await late.commit(offsets, 10_000)
    assert late.tries == 1
    await cluster.close()


async def test_a_member_that_has_lost_the_partition_meanwhile_does_not_commit_again() -> None:
    cluster = Cluster(AdminConfig(bootstrap="127.0.0.1:1", retry_backoff_ms=1))
    behind = BehindOnce(Coordinator(cluster, "g"), ErrorCode.STALE_MEMBER_EPOCH)

    def check_owned(offsets: Offsets) -> None:
        if behind.tries:
            raise errors.error_for(ErrorCode.ILLEGAL_GENERATION)

    with pytest.raises(errors.IllegalGenerationError):
        await behind.commit_by_newest_epoch({TopicPartition("t", 0): OffsetAndMetadata(5)}, check_owned)
    assert (behind.tries, behind.stored) == (1, [])
    await cluster.close()
