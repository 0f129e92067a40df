import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kbroker.client import errors
from kbroker.client.admin import Admin
from kbroker.client.consumer import Consumer
from kbroker.client.group.commits import Commits, Offsets
from kbroker.client.group.events import Identity, ShareOut
from kbroker.client.group.listener import RebalanceListener
from kbroker.client.types import OffsetAndMetadata, TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode
from tests.kbroker.client.group.members import Diary, fill, member, poll_until, shares

ASSIGNORS = ["range", "roundrobin", "sticky", "cooperative-sticky"]


def keys(topic: str, *partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in partitions]


@pytest.mark.parametrize("assignor", ASSIGNORS)
async def test_two_members_share_a_topic_and_one_inherits_from_the_other(
    bootstrap: str, topic: str, assignor: str
) -> None:
    await fill(bootstrap, topic, 30)
    async with member(bootstrap, topic, partition_assignment_strategy=assignor) as first:
        await first.subscribe([topic])
        seen = await poll_until(lambda: len(first.assignment()) == 3, first)
        async with member(bootstrap, topic, partition_assignment_strategy=assignor) as second:
            await second.subscribe([topic])
            seen += await poll_until(lambda: shares(first, second) == [1, 2], first, second)
            assert sorted(first.assignment() + second.assignment()) == keys(topic, 0, 1, 2)
        seen += await poll_until(lambda: len(first.assignment()) == 3, first)
        while len({(record.partition, record.offset) for record in seen}) < 30:
            seen += await first.poll(10)
    assert len(seen) == 30, "what was committed on the way is not read again"


async def test_a_group_goes_on_where_it_was_closed(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 30)
    async with member(bootstrap, topic) as consumer:
        await consumer.subscribe([topic])
        first = await consumer.poll(20, 7)
    async with member(bootstrap, topic) as consumer:
        await consumer.subscribe([topic])
        rest = await poll_until(lambda: sum(consumer.positions.values()) == 30, consumer)
    assert len(first) == 7
    assert sorted(int(record.value or b"") for record in first + rest) == list(range(30))


async def test_records_that_an_iterator_did_not_yield_are_not_committed(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 30, partitions=1)
    async with member(bootstrap, topic) as consumer:
        await consumer.subscribe([topic])
        async for record in consumer:
            if record.offset == 4:
                break
        assert await consumer.position((topic, 0)) == 5
        assert [record.offset for record in await consumer.poll(10, 2)] == [5, 6]
    async with member(bootstrap, topic) as consumer:
        found = await consumer.committed(keys(topic, 0, 1))
        assert [item and item.offset for item in found.values()] == [7, 0]


async def test_manual_commits_are_found_again(bootstrap: str, topic: str) -> None:
    async with member(bootstrap, topic, enable_auto_commit=False) as consumer:
        await consumer.subscribe([topic])
        await poll_until(lambda: len(consumer.assignment()) == 3, consumer)
        assert await consumer.committed() == dict.fromkeys(keys(topic, 0, 1, 2))
        await consumer.commit({(topic, 0): 7, TopicPartition(topic, 1): OffsetAndMetadata(8, "note")})
        heard = asyncio.get_running_loop().create_future()
        consumer.commit_async({(topic, 2): 9}, lambda offsets, error: heard.set_result((offsets, error)))
        assert await asyncio.wait_for(heard, 20) == ({TopicPartition(topic, 2): OffsetAndMetadata(9)}, None)
        found = await consumer.committed()
        assert [item and (item.offset, item.metadata) for item in found.values()] == [(7, ""), (8, "note"), (9, "")]
        metadata = consumer.group_metadata()
        assert (metadata.group_id, metadata.generation_id > 0, metadata.member_id != "") == (topic, True, True)
    async with member(bootstrap, topic) as consumer:
        await consumer.assign(keys(topic, 0))
        assert await consumer.position((topic, 0)) == 7, "a partition assigned by hand begins at the commit too"


async def test_a_commit_waits_no_longer_than_it_may_for_those_before_it(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(self: Commits, offsets: Offsets, timeout_ms: int) -> None:
        await asyncio.sleep(60)

    async with member(bootstrap, topic, enable_auto_commit=False) as consumer:
        with monkeypatch.context() as patch:
            patch.setattr(Commits, "commit_once", hang)
            consumer.commit_async({(topic, 0): 1})
            async with asyncio.timeout(20):
                with pytest.raises(errors.TimedOut, match="under way"):
                    await consumer.commit({(topic, 0): 2}, timeout=0.02)
            await consumer.close(0.02)


async def test_automatic_commits_happen_while_polling(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 3)
    async with member(bootstrap, topic, auto_commit_interval_ms=100) as consumer, member(bootstrap, topic) as observer:
        await consumer.subscribe([topic])
        async with asyncio.timeout(20):
            while set(await observer.committed(keys(topic, 0, 1, 2))) and (
                sum(item.offset for item in (await observer.committed(keys(topic, 0, 1, 2))).values() if item) < 3
            ):
                await consumer.poll(0.1)


async def test_an_automatic_commit_meets_a_new_epoch_and_is_made_by_it(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(bootstrap, topic, 3)
    refused: list[Offsets] = []
    commit_once = Commits.commit_once

    async def refuse_first(self: Commits, offsets: Offsets, timeout_ms: int) -> None:
        if not refused:
            refused.append(offsets)
            raise errors.error_for(ErrorCode.STALE_MEMBER_EPOCH)
        await commit_once(self, offsets, timeout_ms)

    monkeypatch.setattr(Commits, "commit_once", refuse_first)
    async with member(bootstrap, topic, auto_commit_interval_ms=200) as consumer:
        await consumer.subscribe([topic])
        async with asyncio.timeout(20):
            while not consumer.statistics()["commit_total"]:
                await consumer.poll(0.1)
    assert refused
    assert "an automatic commit failed" not in caplog.text


async def test_the_listener_hears_in_order_and_may_seek(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 30)
    diary = Diary()

    class Seeker(Diary):
        def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            super().on_assigned(partitions)
            for key in partitions:
                consumer.seek(key, 9)

    seeker = Seeker()
    async with member(bootstrap, topic) as consumer:
        await consumer.subscribe([topic], listener=seeker)
        records = await poll_until(lambda: sum(consumer.positions.values()) == 30, consumer)
        assert [record.offset for record in records] == [9, 9, 9]
        async with member(bootstrap, topic) as second:
            await second.subscribe([topic], listener=diary)
            await poll_until(lambda: shares(consumer, second) == [1, 2], consumer, second)
    assert [entry[0] for entry in seeker.entries] == ["assigned", "revoked", "assigned", "revoked"]
    assert seeker.entries[1] == ("revoked", tuple(keys(topic, 0, 1, 2)))
    assert [entry[0] for entry in diary.entries] == ["assigned", "revoked"]


async def test_a_rebalance_that_begins_in_on_assigned_has_its_partitions_revoked_behind_it(
    bootstrap: str, topic: str
) -> None:
    is_told, release = asyncio.Event(), asyncio.Event()

    class Slow(Diary):
        async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:  # type: ignore[override]
            is_told.set()
            await release.wait()
            super().on_assigned(partitions)

    diary = Slow()
    async with member(bootstrap, topic) as consumer:
        await consumer.subscribe([topic], listener=diary)
        await poll_until(is_told.is_set, consumer)
        consumer.enforce_rebalance()
        await consumer.poll(0.05)
        assert diary.entries == []
        release.set()
        await poll_until(lambda: diary.count("assigned") == 2, consumer)
        every = tuple(keys(topic, 0, 1, 2))
        assert diary.entries == [("assigned", every), ("revoked", every), ("assigned", every)]


async def test_coroutines_listen_too_and_what_a_listener_raises_is_raised_by_poll(bootstrap: str, topic: str) -> None:
    class Broken(RebalanceListener):
        async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            await asyncio.sleep(0)
            raise ZeroDivisionError("mine")

    async with member(bootstrap, topic) as consumer:
        await consumer.subscribe([topic], listener=Broken())
        with pytest.raises(ZeroDivisionError):
            await poll_until(lambda: False, consumer)
        assert len(consumer.assignment()) == 3
        assert await consumer.poll(0.1) == []


@pytest.mark.parametrize("closes_first", ["the listener", "another"])
async def test_a_listener_that_closes_the_consumer_and_the_end_do_not_wait_for_each_other(
    bootstrap: str, topic: str, closes_first: str
) -> None:
    is_told, goes_on, is_over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Closer(RebalanceListener):
        async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            is_told.set()
            if closes_first == "another":
                await goes_on.wait()
            await consumer.close(None)
            is_over.set()

    consumer = Consumer(bootstrap, group_id=topic)
    await consumer.subscribe([topic], listener=Closer())
    async with asyncio.timeout(20):
        polling = asyncio.ensure_future(consumer.poll(60))
        await is_told.wait()
        closing = asyncio.ensure_future(consumer.close(None))
        await asyncio.sleep(0)
        goes_on.set()
        await closing
        await asyncio.wait([polling])
    assert is_over.is_set()
    assert isinstance(polling.exception(), errors.ClientClosed)


async def test_what_a_listener_changes_is_changed_in_order_when_it_has_returned(bootstrap: str, topic: str) -> None:
    class Changer(Diary):
        async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:  # type: ignore[override]
            super().on_assigned(partitions)
            with pytest.raises(errors.IllegalState, match="listener"):
                await consumer.poll(20)
            if consumer.subscription() == {topic}:
                await asyncio.wait_for(consumer.unsubscribe(), 20)  # perhaps a task of its own
                await consumer.subscribe([f"{topic}-other"], listener=self)
                assert consumer.subscription() == {topic}, "not yet"

        async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:  # type: ignore[override]
            super().on_revoked(partitions)
            await consumer.commit({partitions[0]: 7})
            if consumer.subscription() != {topic}:
                await consumer.unsubscribe()  # as it does already

    async with Admin(bootstrap) as admin:
        await admin.create_topic(f"{topic}-other", 1)
    diary = Changer()
    async with member(bootstrap, topic) as consumer:
        await consumer.subscribe([topic], listener=diary)
        await poll_until(lambda: consumer.assignment() == keys(f"{topic}-other", 0), consumer)
        found = await consumer.committed(keys(topic, 0))
        assert [item and item.offset for item in found.values()] == [7]
        await consumer.unsubscribe()
        assert (consumer.subscription(), consumer.assignment()) == (set(), [])
    told = [(what, len(partitions)) for what, partitions in diary.entries]
    assert told == [("assigned", 3), ("revoked", 3), ("assigned", 1), ("revoked", 1)]


async def test_a_listener_that_hears_of_the_end_may_close(bootstrap: str, topic: str) -> None:
    class Closer(Diary):
        async def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:  # type: ignore[override]
            super().on_revoked(partitions)
            await consumer.close()
            await asyncio.sleep(0.01)

    diary = Closer()
    consumer = member(bootstrap, topic)
    await consumer.subscribe([topic], listener=diary)
    await poll_until(lambda: len(consumer.assignment()) == 3, consumer)
    async with asyncio.timeout(20):
        await consumer.unsubscribe()
        await consumer.close()
    assert diary.count("revoked") == 1
    with pytest.raises(errors.ClientClosed):
        await consumer.poll()


async def test_cooperative_members_keep_what_they_keep(bootstrap: str, topic: str) -> None:
    diary = Diary()
    async with member(bootstrap, topic, partition_assignment_strategy="cooperative-sticky") as first:
        await first.subscribe([topic], listener=diary)
        await poll_until(lambda: len(first.assignment()) == 3, first)
        async with member(bootstrap, topic, partition_assignment_strategy=["cooperative-sticky"]) as second:
            await second.subscribe([topic])
            await poll_until(lambda: shares(first, second) == [1, 2], first, second)
            await poll_until(lambda: diary.count("revoked") == 1, first, second)
            assert len(diary.entries[0][1]) == 3
            assert sum(len(parts) for what, parts in diary.entries if what == "revoked") == 1
            assert not any(parts for what, parts in diary.entries[1:] if what == "assigned")


@pytest.mark.slow
async def test_who_leaves_while_the_leader_shares_out_commits_behind_that(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"partition_assignment_strategy": "cooperative-sticky", "auto_commit_interval_ms": 600_000}
    async with member(bootstrap, topic, **settings) as leader:
        await leader.subscribe([topic])
        await poll_until(lambda: len(leader.assignment()) == 3, leader)
        other = member(bootstrap, topic, **settings)
        await other.subscribe([topic])
        await poll_until(lambda: shares(leader, other) == [1, 2], leader, other)
        await fill(bootstrap, topic, 30)
        await poll_until(lambda: set(other.positions.values()) == {10}, leader, other)
        mine = other.assignment()
        leading, following = leader._group, other._group
        assert leading is not None
        assert following is not None
        assert leading.driver is not None
        may_share, refused = asyncio.Event(), asyncio.Event()
        share_out, commit_refused = leading.driver._share_out, following._commits._refused

        async def share_out_later(order: ShareOut) -> None:
            await may_share.wait()
            await share_out(order)

        def note(code: ErrorCode, identity: Identity) -> None:
            commit_refused(code, identity)
            refused.set()

        monkeypatch.setattr(leading.driver, "_share_out", share_out_later)
        monkeypatch.setattr(following._commits, "_refused", note)
        leader.enforce_rebalance()
        await poll_until(lambda: following.statistics(0)["group_state"] == "syncing", leader, other)
        closing = asyncio.create_task(other.close())
        async with asyncio.timeout(30):
            await refused.wait()
            may_share.set()
            await closing
        found = await leader.committed(mine)
        assert [item and item.offset for item in found.values()] == [10] * len(mine)


async def test_a_rebalance_can_be_asked_for(bootstrap: str, topic: str) -> None:
    async with member(bootstrap, topic) as consumer:
        with pytest.raises(errors.IllegalState, match="subscribe first"):
            consumer.enforce_rebalance()
        await consumer.subscribe([topic])
        await poll_until(lambda: len(consumer.assignment()) == 3, consumer)
        generation = consumer.group_metadata().generation_id
        consumer.enforce_rebalance("the cache is full")
        await poll_until(lambda: consumer.group_metadata().generation_id > generation, consumer)
        await poll_until(lambda: len(consumer.assignment()) == 3, consumer)
        await consumer.commit({(topic, 0): 3}, timeout=20)
        assert await consumer.committed([(topic, 0)], timeout=20) == {TopicPartition(topic, 0): OffsetAndMetadata(3)}


@pytest.mark.slow
async def test_a_pattern_takes_in_topics_that_come_later(bootstrap: str, topic: str) -> None:
    async with member(bootstrap, topic, metadata_max_age_ms=200) as consumer, Admin(bootstrap) as admin:
        await consumer.subscribe(pattern=f"{topic}.*")
        await poll_until(lambda: len(consumer.assignment()) == 3, consumer)
        await admin.create_topic(f"{topic}-more", 2)
        await poll_until(lambda: len(consumer.assignment()) == 5, consumer)
        assert consumer.subscription() == {topic, f"{topic}-more"}
        await admin.delete_topic(f"{topic}-more")
        await poll_until(lambda: len(consumer.assignment()) == 3, consumer)


async def test_partitions_and_topics_that_come_later_are_read(bootstrap: str, topic: str) -> None:
    async with member(bootstrap, topic, metadata_max_age_ms=200) as consumer, Admin(bootstrap) as admin:
        await consumer.subscribe([topic, f"{topic}-later"])
        await poll_until(lambda: len(consumer.assignment()) == 3, consumer)
        await admin.create_partitions({topic: 4})
        await poll_until(lambda: len(consumer.assignment()) == 4, consumer)
        await admin.create_topic(f"{topic}-later", 1)
        await poll_until(lambda: len(consumer.assignment()) == 5, consumer)


@pytest.mark.slow
async def test_a_topic_that_is_not_known_any_more_is_looked_for_soon(broker: BrokerProcess, topic_name: str) -> None:
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic(topic_name, 3, 1)
    async with Consumer(broker.bootstrap, group_id=topic_name, group_protocol="consumer") as consumer:
        await consumer.subscribe([topic_name])
        await asyncio.sleep(0.05)  # by now it is known when to look at the metadata next: in five minutes
        consumer.cluster.metadata.forget([topic_name])
        async with asyncio.timeout(20):
            while not consumer.cluster.metadata.topics:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_nothing_of_a_topic_that_is_gone_is_committed_unasked(bootstrap: str, topic: str) -> None:
    async with member(bootstrap, topic) as consumer:
        await consumer.subscribe([topic])
        await poll_until(lambda: sorted(consumer.positions.values()) == [0, 0, 0], consumer)
        await consumer.commit({(topic, 0): 7})
        consumer.cluster.metadata.forget([topic])
        assert consumer._group is not None
        await consumer._group._commit_quietly()
        assert await consumer.committed() == {
            TopicPartition(topic, 0): OffsetAndMetadata(7),
            **dict.fromkeys(keys(topic, 1, 2)),
        }


@pytest.mark.slow
async def test_who_stays_away_from_poll_loses_its_partitions_and_comes_back(bootstrap: str, topic: str) -> None:
    diary = Diary()
    async with member(bootstrap, topic, max_poll_interval_ms=1000) as first, member(bootstrap, topic) as second:
        await first.subscribe([topic], listener=diary)
        await poll_until(lambda: len(first.assignment()) == 3, first)
        await second.subscribe([topic])
        await poll_until(lambda: len(second.assignment()) == 3, second)
        assert first.group_metadata().generation_id == -1
        with pytest.raises(errors.UnknownMemberIdError, match="max_poll_interval_ms=1000: its partitions go to others"):
            await first.commit({(topic, 0): 1})
        await poll_until(lambda: shares(first, second) == [1, 2], first, second)
        assert [entry[0] for entry in diary.entries][:3] == ["assigned", "lost", "assigned"]
        (of_second, *_) = second.assignment()
        await second.commit({of_second: 7})
        with pytest.raises(errors.IllegalGenerationError, match="given this partition to another"):
            await first.commit({of_second: 1})
        (found,) = (await second.committed([of_second])).values()
        assert found == OffsetAndMetadata(7), "what the new owner committed stays"


async def read_some_and_fail(bootstrap: str, topic: str, reads: str) -> None:
    """Records 0 to 2 are done when the others are read; in the middle of those it ends."""
    async with member(bootstrap, topic) as consumer:
        await consumer.subscribe([topic])
        assert [record.offset for record in await consumer.poll(20, 3)] == [0, 1, 2]
        if reads == "poll":
            assert [record.offset for record in await consumer.poll(20, 4)] == [3, 4, 5, 6]
        elif reads == "records":
            async for record in consumer:
                assert record.offset != 3, "fails"
        elif reads == "batches":
            async for batch in consumer.batches(max_rows=5):
                assert batch["offset"][0].as_py() != 3, "fails"
        else:
            await consumer.commit({(topic, 0): 2})
        raise AssertionError("fails")


@pytest.mark.parametrize(("reads", "committed"), [("poll", 3), ("records", 3), ("batches", 3), ("nothing more", 2)])
async def test_what_was_not_done_when_an_exception_leads_out_is_read_again(
    bootstrap: str, topic: str, reads: str, committed: int
) -> None:
    await fill(bootstrap, topic, 20, partitions=1)
    with pytest.raises(AssertionError, match="fails"):
        await read_some_and_fail(bootstrap, topic, reads)
    async with member(bootstrap, topic) as consumer:
        found = (await consumer.committed(keys(topic, 0)))[TopicPartition(topic, 0)]
        assert found is not None
        assert found.offset == committed


async def test_a_static_member_comes_back_without_a_rebalance(bootstrap: str, topic: str) -> None:
    diary = Diary()
    async with member(bootstrap, topic, group_instance_id="one") as first:
        await first.subscribe([topic], listener=diary)
        await poll_until(lambda: len(first.assignment()) == 3, first)
        async with member(bootstrap, topic, group_instance_id="two") as second:
            await second.subscribe([topic])
            await poll_until(lambda: shares(first, second) == [1, 2], first, second)
            before = second.assignment()
        heard = len(diary.entries)
        async with member(bootstrap, topic, group_instance_id="two") as second:
            await second.subscribe([topic])
            await poll_until(lambda: second.assignment() == before, first, second)
            assert len(diary.entries) == heard
            async with member(bootstrap, topic, group_instance_id="two") as third:
                await third.subscribe([topic])
                with pytest.raises(errors.FencedInstanceIdError):
                    await poll_until(lambda: False, first, second, third)


async def test_subscriptions_change_and_end(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(f"{topic}-other", 1)
    async with member(bootstrap, topic) as consumer:
        await consumer.subscribe([topic])
        await poll_until(lambda: len(consumer.assignment()) == 3, consumer)
        with pytest.raises(RuntimeError, match="unsubscribe"):
            await consumer.assign(keys(topic, 0))
        await consumer.subscribe([f"{topic}-other"])
        await poll_until(lambda: consumer.assignment() == keys(f"{topic}-other", 0), consumer)
        await consumer.unsubscribe()
        assert consumer.assignment() == []
        await consumer.assign(keys(topic, 0))
        with pytest.raises(RuntimeError, match="unsubscribe"):
            await consumer.subscribe([topic])


@pytest.mark.slow
async def test_a_topic_that_is_subscribed_to_later_may_come_later_still(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin, member(bootstrap, topic) as consumer:
        await consumer.subscribe([topic])
        await poll_until(lambda: len(consumer.assignment()) == 3, consumer)
        generation = consumer.group_metadata().generation_id
        await consumer.subscribe([topic, f"{topic}-later"])
        await poll_until(lambda: consumer.group_metadata().generation_id > generation, consumer)
        await poll_until(lambda: len(consumer.assignment()) == 3, consumer)
        await admin.create_topic(f"{topic}-later", 1)
        async with asyncio.timeout(20):
            await poll_until(lambda: len(consumer.assignment()) == 4, consumer)


@pytest.mark.parametrize("by_pattern", [False, True])
async def test_who_subscribes_before_a_broker_answers_reads_when_one_does(
    bootstrap: str, topic: str, by_pattern: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*arguments: Any, **options: Any) -> Any:
        raise errors.NotConnected("away")

    async with member(bootstrap, topic) as consumer:
        with monkeypatch.context() as patch:
            patch.setattr(consumer.cluster, "any_connection", away)
            await (consumer.subscribe(pattern=topic) if by_pattern else consumer.subscribe([topic]))
            assert await consumer.poll(0.01) == []
        await poll_until(lambda: consumer.assignment() == keys(topic, 0, 1, 2), consumer)


@pytest.mark.parametrize("state", ["new", "subscribed", "joining", "joined", "assigned", "unsubscribed"])
async def test_closing_in_every_state_leaves_no_task(bootstrap: str, topic: str, state: str) -> None:
    before = asyncio.all_tasks()
    consumer = member(bootstrap, topic)
    if state == "assigned":
        await consumer.assign(keys(topic, 0))
    elif state != "new":
        await consumer.subscribe([topic])
    if state in ("joining", "joined", "unsubscribed"):
        await consumer.poll(0.01)
    if state in ("joined", "unsubscribed"):
        await poll_until(lambda: len(consumer.assignment()) == 3, consumer)
    if state == "unsubscribed":
        await consumer.unsubscribe()
    async with asyncio.timeout(20):
        await consumer.close()
        await consumer.close()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    with pytest.raises(errors.ClientClosed):
        await consumer.poll()


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8])
async def test_closing_again_where_it_was_cancelled_leaves_no_task(bootstrap: str, topic: str, turns: int) -> None:
    before = asyncio.all_tasks()
    consumer = member(bootstrap, topic)
    await consumer.subscribe([topic])
    await consumer.poll(0.01)
    closing = asyncio.ensure_future(consumer.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    await consumer.close()
    assert asyncio.all_tasks() == before
    assert not consumer.cluster.connection_count


async def test_closing_without_a_broker_does_not_take_long(topic_name: str) -> None:
    consumer = Consumer("127.0.0.1:1", group_id=topic_name)
    await consumer.subscribe([topic_name])
    async with asyncio.timeout(20):
        await consumer.close(0.2)


async def test_wrong_arguments_are_told_at_the_call(bootstrap: str, topic: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="is none of range"):
        member(bootstrap, topic, partition_assignment_strategy="rnage")
    with pytest.raises(errors.ConfigurationError, match="must be below"):
        member(bootstrap, topic, heartbeat_interval_ms=30_000)
    async with member(bootstrap, topic) as consumer:
        with pytest.raises(ValueError, match="either topics or a pattern"):
            await consumer.subscribe()
        with pytest.raises(TypeError, match="from 0 on"):
            await consumer.commit({(topic, 0): -1})
    async with Consumer(bootstrap) as alone:
        with pytest.raises(errors.ConfigurationError, match="group_id"):
            await alone.commit()
        with pytest.raises(errors.ConfigurationError, match="group_id"):
            await alone.subscribe([topic], listener=Diary())
