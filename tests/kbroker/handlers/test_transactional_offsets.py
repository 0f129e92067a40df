"""TxnOffsetCommit on a real coordinator and real logs; markers by WriteTxnMarkers, answers read by OffsetFetch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from kbroker.cluster.topic_names import OFFSETS_TOPIC
from kbroker.cluster.transaction_verifier import Transaction
from kbroker.coordinator.consumer_group import ConsumerHeartbeat
from kbroker.coordinator.group_events import JoinAnswer
from kbroker.coordinator.group_offsets import CommittedOffset
from kbroker.handlers.committed_offsets import offset_fetch
from kbroker.handlers.transactional_offsets import txn_offset_commit
from kbroker.handlers.transactions import write_txn_markers
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.groups import OffsetFetchRequest
from kbroker.protocol.messages.transactions import TxnOffsetCommitRequest, WriteTxnMarkersRequest
from kbroker.protocol.records.batch import read_header
from tests.fixtures.data_path import TOPIC
from tests.kbroker.asking import told
from tests.kbroker.coordinator.conftest import Coordinated
from tests.kbroker.handlers.test_transactions import PRODUCER, marker
from tests.kbroker.replica.test_verification import PlayedVerifier

Partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
Codes = dict[int, ErrorCode]


class Offsets:
    """A group coordinator whose groups commit in transactions."""

    def __init__(self, coordinated: Coordinated) -> None:
        self.coordinated = coordinated
        self.played = coordinated.played
        self.groups = coordinated.groups
        self.played.services.groups = coordinated.groups

    async def _answer(self, answer: Any, version: int) -> Any:
        return told(await asyncio.wait_for(answer, 20) if isinstance(answer, Awaitable) else answer, version)

    async def commit(self, *offsets: int, version: int = 4, metadata: str = "note", **values: Any) -> Codes:
        """Commit for partitions 0, 1, …"""
        partitions = [
            Partition(partition_index=n, committed_offset=each, committed_leader_epoch=3, committed_metadata=metadata)
            for n, each in enumerate(offsets)
        ]
        request = TxnOffsetCommitRequest(
            **{
                "transactional_id": "mine",
                "group_id": "g",
                "producer_id": PRODUCER,
                "producer_epoch": 0,
                "topics": [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
                **values,
            }
        )
        answer = txn_offset_commit(self.played.services, self.played.ctx(version), told(request, version))
        (topic,) = (await self._answer(answer, version)).topics
        return {each.partition_index: each.error_code for each in topic.partitions}

    async def end(self, commit: bool = True, epoch: int = 0) -> None:
        one = marker(self.groups.partition_for("g"), commit=commit, epoch=epoch, topic=OFFSETS_TOPIC)
        answer = write_txn_markers(self.played.services, self.played.ctx(1), WriteTxnMarkersRequest(markers=[one]))
        (answered,) = (await self._answer(answer, 1)).markers
        assert answered.topics[0].partitions[0].error_code is ErrorCode.NONE

    async def fetch(self, partition: int = 0, require_stable: bool = True) -> tuple[int, ErrorCode]:
        wanted = OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[partition])
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[wanted])
        request = OffsetFetchRequest(groups=[group], require_stable=require_stable)
        answer = await self._answer(offset_fetch(self.played.services, self.played.ctx(9), request), 9)
        (found,) = answer.groups[0].topics[0].partitions
        return found.committed_offset, found.error_code

    @property
    def log(self) -> Any:
        return self.played.replicas.hosted[OFFSETS_TOPIC, self.groups.partition_for("g")].log


@pytest.fixture
async def offsets(tmp_path: Path) -> AsyncIterator[Offsets]:
    coordinated = Coordinated(tmp_path)
    coordinated.groups.start()
    await coordinated.lead()
    await coordinated.played.lead((0, 1, 2))
    yield Offsets(coordinated)
    await coordinated.close()


def member(joined: JoinAnswer, **values: Any) -> dict[str, Any]:
    return {"generation_id": joined.generation_id, "member_id": joined.member_id, **values}


UNSTABLE = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
NOTHING = (-1, ErrorCode.NONE)


@pytest.mark.parametrize(("commit", "after"), [(True, (42, ErrorCode.NONE)), (False, NOTHING)])
async def test_offsets_count_once_their_transaction_isCommittedOffset(
    offsets: Offsets, commit: bool, after: tuple[int, ErrorCode]
) -> None:
    assert await offsets.commit(42, 43) == {0: 0, 1: 0}
    assert await offsets.fetch() == UNSTABLE
    assert await offsets.fetch(require_stable=False) == NOTHING
    await offsets.end(commit)
    assert await offsets.fetch() == after
    await offsets.coordinated.restart()
    offsets.played.services.groups = offsets.coordinated.groups
    assert await offsets.fetch() == after, "as the next coordinator reads them"


async def test_they_are_one_batch_of_their_producer_and_behind_what_came_before(offsets: Offsets) -> None:
    plain = asyncio.ensure_future(offsets.coordinated.commit("g", ((TOPIC, 2), CommittedOffset(1))))
    await asyncio.sleep(0)
    assert await offsets.commit(42, 43) == {0: 0, 1: 0}
    assert await plain is ErrorCode.NONE
    data = offsets.log.read(0, 1 << 20).read()
    first = read_header(data)
    second = read_header(data, first.size)
    assert (first.is_transactional, first.producer_id, first.count) == (False, -1, 1)
    assert (second.is_transactional, second.producer_id, second.producer_epoch, second.count) == (True, PRODUCER, 0, 2)
    assert second.base_sequence == 0
    assert offsets.log.last_stable_offset == 1


async def test_a_later_plain_commit_is_not_overwritten_by_a_transaction_that_began_before_it(offsets: Offsets) -> None:
    await offsets.commit(42)
    await offsets.coordinated.commit("g", ((TOPIC, 0), CommittedOffset(50)))
    await offsets.end()
    assert await offsets.fetch() == (50, ErrorCode.NONE)


async def test_partitions_are_unstable_until_the_append_counts_and_stable_again_when_it_fails(tmp_path: Path) -> None:
    coordinated = Coordinated(tmp_path)
    coordinated.groups.start()
    await coordinated.lead(replicas=(1, 2))
    await coordinated.played.lead((0, 1, 2))
    offsets = Offsets(coordinated)
    committing = asyncio.ensure_future(offsets.commit(42))
    await asyncio.sleep(0.02)
    assert not committing.done()
    assert await offsets.fetch() == UNSTABLE
    group, _ = offsets.groups.committed("g")
    assert group is not None
    await coordinated.lead(replicas=(1, 2), leader=2)
    assert await asyncio.wait_for(committing, 20) == {0: ErrorCode.NOT_COORDINATOR}
    assert not group.offsets.is_waiting
    await coordinated.close()


async def test_members_are_checked_as_in_kafka(offsets: Offsets) -> None:
    joined = await offsets.coordinated.stable("g")
    assert await offsets.commit(1, **member(joined)) == {0: ErrorCode.NONE}
    assert await offsets.commit(1) == {0: ErrorCode.NONE}, "older producers tell no member"
    assert await offsets.commit(1, **member(joined, generation_id=7)) == {0: ErrorCode.ILLEGAL_GENERATION}
    assert await offsets.commit(1, **member(joined, member_id="other")) == {0: ErrorCode.UNKNOWN_MEMBER_ID}
    assert await offsets.commit(1, **member(joined), group_id="new") == {0: ErrorCode.UNKNOWN_MEMBER_ID}
    assert offsets.groups.committed("new") == (None, ErrorCode.NONE)


async def test_an_old_epoch_of_a_member_of_the_newer_protocol_is_told_as_producers_know_it(offsets: Offsets) -> None:
    join = ConsumerHeartbeat("a", 0, rebalance_timeout_ms=60_000, topic_names=frozenset({TOPIC}), owned={})
    joined = offsets.groups.consumer_heartbeat("g", join)
    answer = await joined if isinstance(joined, Awaitable) else joined
    assert await offsets.commit(1, member_id="a", generation_id=answer.epoch) == {0: ErrorCode.NONE}
    old = await offsets.commit(1, member_id="a", generation_id=answer.epoch + 1)
    assert old == {0: ErrorCode.ILLEGAL_GENERATION}


async def test_a_static_member_that_was_replaced_is_fenced(offsets: Offsets) -> None:
    first = await offsets.coordinated.join("g", group_instance_id="one")
    await offsets.coordinated.sync("g", first)
    second = await offsets.coordinated.join("g", group_instance_id="one")
    assert second.member_id != first.member_id
    fenced = await offsets.commit(1, **member(first, group_instance_id="one"))
    assert fenced == {0: ErrorCode.FENCED_INSTANCE_ID}
    assert await offsets.commit(1, **member(second, group_instance_id="one")) == {0: ErrorCode.NONE}


async def test_a_rebalance_refuses_no_commit_and_a_commit_is_no_heartbeat(offsets: Offsets) -> None:
    joined = await offsets.coordinated.join("g")
    assert await offsets.commit(1, **member(joined)) == {0: ErrorCode.NONE}
    await offsets.coordinated.sync("g", joined)
    offsets.coordinated.now += 9_000
    assert await offsets.commit(1, **member(joined)) == {0: ErrorCode.NONE}
    offsets.coordinated.now += 1_001
    offsets.groups._timers.run_due()
    assert await offsets.commit(1, **member(joined)) == {0: ErrorCode.UNKNOWN_MEMBER_ID}


async def test_unknown_partitions_and_long_texts_have_their_own_errors(offsets: Offsets) -> None:
    assert await offsets.commit(1, 2, 3, 4) == {0: 0, 1: 0, 2: 0, 3: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    long = await offsets.commit(1, metadata="x" * 4097)
    assert long == {0: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert await offsets.commit(1, 2, 3, 4, group_id="") == {
        **dict.fromkeys(range(3), ErrorCode.INVALID_GROUP_ID),
        3: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize("version", range(5))
async def test_every_version_commits(offsets: Offsets, version: int) -> None:
    assert await offsets.commit(42, version=version) == {0: ErrorCode.NONE}
    await offsets.end()
    group, _ = offsets.groups.committed("g")
    assert group is not None
    assert group.offsets.committed[TOPIC, 0][:3] == (42, 3 if version >= 2 else -1, "note")


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, 14)])
async def test_old_producers_do_not_hear_of_loading(offsets: Offsets, version: int, code: int) -> None:
    offsets.groups._owned.by_number[offsets.groups.partition_for("g")].is_loading = True
    assert await offsets.commit(1, version=version) == {0: code}


# --- verification ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "version", "code"),
    [
        (ErrorCode.NETWORK_EXCEPTION, 4, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NETWORK_EXCEPTION, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 4, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 4, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
async def test_what_is_not_verified_is_notCommittedOffset(
    offsets: Offsets, said: ErrorCode, version: int, code: ErrorCode
) -> None:
    verifier = PlayedVerifier(offsets.played)
    partition = (OFFSETS_TOPIC, offsets.groups.partition_for("g"))
    verifier.says[partition] = said
    assert await offsets.commit(1, version=version) == {0: code}
    assert verifier.asked == [(Transaction("mine", PRODUCER, 0), [partition])]
    assert offsets.log.log_end_offset == 0
    assert offsets.groups.committed("g") == (None, ErrorCode.NONE)


async def test_the_first_commit_of_a_transaction_is_verified_and_the_others_are_not(offsets: Offsets) -> None:
    verifier = PlayedVerifier(offsets.played)
    assert await offsets.commit(1) == {0: ErrorCode.NONE}
    assert await offsets.commit(2) == {0: ErrorCode.NONE}
    assert len(verifier.asked) == 1
    await offsets.end()
    assert await offsets.fetch() == (2, ErrorCode.NONE)
    assert await offsets.commit(3) == {0: ErrorCode.NONE}
    assert len(verifier.asked) == 2


async def test_an_abort_during_the_verification_makes_the_commit_fail(offsets: Offsets) -> None:
    verifier = PlayedVerifier(offsets.played, at_once=False)
    committing = asyncio.ensure_future(offsets.commit(1))
    await asyncio.sleep(0.01)
    plain = await offsets.coordinated.commit("g", ((TOPIC, 0), CommittedOffset(50)))
    assert plain is ErrorCode.NONE, "others do not wait"
    await offsets.end(commit=False)
    verifier.answer()
    assert await asyncio.wait_for(committing, 20) == {0: ErrorCode.INVALID_TXN_STATE}
    assert await offsets.fetch() == (50, ErrorCode.NONE)


# --- the end of offsets ---------------------------------------------------------------------------------------


async def test_offsets_of_an_open_transaction_neither_expire_nor_does_their_group(offsets: Offsets) -> None:
    await offsets.coordinated.commit("g", ((TOPIC, 0), CommittedOffset(7)))
    await offsets.commit(42)
    offsets.coordinated.now += 600_000_000
    await offsets.groups.expire_offsets()
    assert await offsets.fetch(require_stable=False) == (7, ErrorCode.NONE)
    await offsets.end()
    assert await offsets.fetch() == (42, ErrorCode.NONE)


@pytest.mark.parametrize("restarted", [None, "before its end", "after its end"])
async def test_a_group_deleted_during_a_transaction_has_only_what_comes_behind_that(
    offsets: Offsets, restarted: str | None
) -> None:
    async def restart() -> None:
        await offsets.coordinated.restart()
        offsets.groups = offsets.played.services.groups = offsets.coordinated.groups

    await offsets.coordinated.commit("g", ((TOPIC, 0), CommittedOffset(7)))
    await offsets.commit(42, 42)
    assert await offsets.groups.delete_groups(["g"]) == {"g": ErrorCode.NONE}
    assert offsets.groups.committed("g") == (None, ErrorCode.NONE)
    await offsets.commit(43)
    if restarted == "before its end":
        await restart()
    await offsets.end()
    if restarted == "after its end":
        await restart()
    assert await offsets.fetch() == (43, ErrorCode.NONE)
    assert await offsets.fetch(1) == NOTHING
    assert await offsets.groups.delete_groups(["g"]) == {"g": ErrorCode.NONE}
    assert offsets.groups.committed("g") == (None, ErrorCode.NONE)
