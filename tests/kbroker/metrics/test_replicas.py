"""The numbers of a broker's replicas, and of each of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

from kbroker.handlers.produce import produce
from kbroker.metrics import replicas
from kbroker.protocol.errors import ErrorCode
from kbroker.replica.replication import Replication
from kbroker.segment.cleaner import LogCleaner
from tests.fixtures.copies import Copies, until
from tests.fixtures.data_path import TOPIC, Played, one_batch
from tests.kbroker.handlers.test_fetch import ask, fetch_request
from tests.kbroker.handlers.test_produce import request_for
from tests.kbroker.metrics.scraping import collected, sources_of
from tests.segment.batches import NOW, batch
from tests.segment.test_cleaner import managed

MANAGER = "kafka_server_replicamanager_"
PURGATORY = "kafka_server_delayedoperationpurgatory_"


async def test_partitions_that_lack_replicas_are_counted_by_how_bad_it_is(tmp_path: Path) -> None:
    played = Played(tmp_path, min_insync_replicas=2)
    for number, isr in enumerate([(1, 2, 3), (1, 2), (1,)]):
        await played.lead([number], topic=f"t{number}", topic_id=bytes([number]) * 16, replicas=(1, 2, 3), isr=isr)
    found = collected(replicas.collect, sources_of(played))
    names = (
        "partitioncount",
        "leadercount",
        "underreplicatedpartitions",
        "atminisrpartitioncount",
        "underminisrpartitioncount",
    )
    assert [found.value(MANAGER + name) for name in names] == [3, 3, 2, 1, 1]
    assert [found.value("kafka_cluster_partition_underminisr", topic=f"t{each}") for each in range(3)] == [0, 0, 1]
    assert [found.value("kafka_cluster_partition_atminisr", topic=f"t{each}") for each in range(3)] == [0, 1, 0]
    assert [found.value("kafka_cluster_partition_insyncreplicascount", topic=f"t{each}") for each in range(3)] == [
        3,
        2,
        1,
    ]
    await played.close()


async def test_followers_say_nothing_of_the_isr(played: Played) -> None:
    await played.lead(leader=2, replicas=(1, 2), isr=(2,))
    found = collected(replicas.collect, sources_of(played))
    assert found.value(MANAGER + "leadercount") == 0
    for name in ("underreplicated", "underminisr", "atminisr", "replicascount"):
        assert found.value(f"kafka_cluster_partition_{name}", topic=TOPIC, partition="0") == 0


async def test_offsets_sizes_and_disks_are_told(played: Played) -> None:
    await played.lead()
    batch = one_batch(b"a", b"b")
    size = len(batch)
    produce(played.services, played.ctx(9), request_for((0, batch)))
    found = collected(replicas.collect, sources_of(played))
    of_log = [
        found.value(f"kafka_log_log_{name}", topic=TOPIC, partition="0")
        for name in ("logendoffset", "size", "numlogsegments")
    ]
    assert of_log == [2, size, 1]
    directory = played.logs.directories[0]
    assert (
        0
        < found.value("kbroker_log_dir_free_bytes", directory=directory)
        <= found.value("kbroker_log_dir_size_bytes", directory=directory)
    )
    assert found.value("kafka_log_logmanager_offlinelogdirectorycount") == 0


async def test_flushes_are_timed(played: Played) -> None:
    await played.lead()
    flushes = "kafka_log_logflushstats_logflushrateandtimems"
    assert collected(replicas.collect, sources_of(played)).value(f"{flushes}_count") == 0
    produce(played.services, played.ctx(9), request_for((0, one_batch())))
    played.logs.logs[TOPIC, 0].flush()
    found = collected(replicas.collect, sources_of(played))
    assert found.value(f"{flushes}_count") == 1
    assert found.value(f"{flushes}_sum") > 0


async def test_a_failed_directory_is_told_with_the_replicas_it_held(tmp_path: Path) -> None:
    played = Played(tmp_path, more_dirs=["second"])
    await played.lead([0, 1])
    lost = played.logs.get(TOPIC, 0).log_dir  # type: ignore[union-attr]
    played.logs.mark_offline(lost, OSError(5, "it is gone"))
    found = collected(replicas.collect, sources_of(played))
    assert found.value("kafka_log_logmanager_offlinelogdirectorycount") == 1
    assert found.value("kafka_log_logmanager_logdirectoryoffline", logDirectory=lost) == 1
    assert found.value(MANAGER + "offlinereplicacount") == 1
    await played.close()


async def test_partition_by_partition_can_be_switched_off(played: Played) -> None:
    await played.lead()
    played.config.metrics_partitions_enable = False
    found = collected(replicas.collect, sources_of(played))
    assert found.find("kafka_log_log_size") == []
    assert found.value(MANAGER + "partitioncount") == 1


async def test_the_lag_of_followers_and_what_is_replicated_are_told(copies: Copies) -> None:
    await copies.elect(1, is_new=True)
    await copies.produce(b"a", b"b")
    await copies.until_equal()
    leader, follower = copies.brokers[1], copies.brokers[2]
    sent, received = leader.replicas.totals.replicated_out, follower.replicas.totals.replicated_in
    assert received == len(copies.content(1))
    assert sent >= 2 * received, "both followers have it"
    found = collected(replicas.collect, sources_of(follower))
    assert found.value("kafka_server_replicafetchermanager_maxlag", clientId="Replica") == 0
    assert found.value("kafka_server_replicafetchermanager_failedpartitionscount", clientId="Replica") == 0
    labels = {"clientId": "ReplicaFetcherThread-0-1", "topic": TOPIC, "partition": "0"}
    assert found.value("kafka_server_fetcherlagmetrics_consumerlag", **labels) == 0
    replication = follower.replicas.replication
    assert isinstance(replication, Replication)
    ((_, fetched),) = replication._fetched.values()
    fetched.leader_high_watermark = 5
    found = collected(replicas.collect, sources_of(follower))
    assert found.value("kafka_server_fetcherlagmetrics_consumerlag", **labels) == 3
    assert found.value("kafka_server_replicafetchermanager_maxlag", clientId="Replica") == 3
    fetched.leader_high_watermark = -1
    found = collected(replicas.collect, sources_of(follower))
    assert found.find("kafka_server_fetcherlagmetrics_consumerlag") == [], "unknown is not 0"


async def test_what_waits_is_counted_as_requests_and_as_places(played: Played) -> None:
    await played.lead([0, 1], replicas=(1, 2))
    waiting = produce(played.services, played.ctx(9), request_for((0, one_batch()), (1, one_batch()), acks=-1))
    fetching = ask(played, fetch_request((0, 0), (1, 0), max_wait_ms=60_000))
    found = collected(replicas.collect, sources_of(played))
    for operation in ("Produce", "Fetch"):
        counts = [
            found.value(f"{PURGATORY}{name}", delayedOperation=operation)
            for name in ("purgatorysize", "numdelayedoperations")
        ]
        assert counts == [2, 1]
    for each in (waiting, fetching):
        each.cancel()  # type: ignore[union-attr]


async def test_fetches_that_found_too_little_are_counted_by_who_asked(played: Played) -> None:
    await played.lead(replicas=(1, 2))
    for _ in range(2):
        await asyncio.wait_for(ask(played, fetch_request((0, 0), max_wait_ms=1)), 20)
    await asyncio.wait_for(ask(played, fetch_request((0, 0), max_wait_ms=1, replica_id=2, current_leader_epoch=0)), 20)
    found = collected(replicas.collect, sources_of(played))
    expired = "kafka_server_delayedfetchmetrics_expires_total"
    assert [found.value(expired, fetcherType=each) for each in ("consumer", "follower")] == [2, 1]


async def test_a_partition_with_a_transaction_that_nobody_ends_is_counted(played: Played) -> None:
    await played.lead()
    hosted = played.replicas.replica(TOPIC, 0)
    assert hosted is not None
    written = batch(timestamp=1_000, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    hosted.log.append_as_leader(written, 0, played.now)

    def late() -> float:
        found = collected(replicas.collect, sources_of(played))
        return found.value(MANAGER + "partitionswithlatetransactionscount")

    longest = played.config.transaction_max_timeout_ms + replicas.LATE_MS
    played.now = 1_000 + longest
    assert late() == 0
    played.now += 1
    assert late() == 1
    await played.lead(leader=2, leader_epoch=1, partition_epoch=1, replicas=(1, 2), is_new=False)
    assert late() == 0, "its leader says so"


async def test_fetch_sessions_are_counted_with_their_partitions(played: Played) -> None:
    await played.lead([0, 1])
    ask(played, fetch_request((0, 0), (1, 0), session=(0, 0)))
    found = collected(replicas.collect, sources_of(played))
    names = (
        "numincrementalfetchsessions",
        "numincrementalfetchpartitionscached",
        "incrementalfetchsessionevictions_total",
    )
    assert [found.value(f"kafka_server_fetchsessioncache_{name}") for name in names] == [1, 2, 0]


async def test_changes_of_isrs_are_counted_by_their_direction(copies: Copies) -> None:
    await copies.elect(1, isr=(1, 2), is_new=True)
    totals = copies.brokers[1].replicas.totals
    await until(lambda: totals.isr_expands == 1)
    await copies.stop(3)
    assert await copies.produce(b"a", acks=1) is ErrorCode.NONE
    copies.hosted(1).state.max_lag_ms = -1
    copies.brokers[1].replicas._check_isr(asyncio.get_running_loop().time())
    await until(lambda: totals.isr_shrinks >= 1)
    found = collected(replicas.collect, sources_of(copies.brokers[1]))
    assert found.value(MANAGER + "isrshrinks_total") == totals.isr_shrinks


async def test_how_far_compaction_has_come_is_told(played: Played, tmp_path: Path) -> None:
    logs = managed(tmp_path, "bad", "good")
    bad = logs.logs["bad", 0]
    path = bad.directory / f"{0:020d}.log"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    now = NOW
    cleaner = LogCleaner(logs, clock=lambda: now)
    played.replicas.care = SimpleNamespace(cleaner=cleaner)  # type: ignore[assignment]
    prefix = "kafka_log_logcleanermanager_"

    def told() -> list[float]:
        found = collected(replicas.collect, sources_of(played, logs=logs))
        uncleanable = found.value(f"{prefix}uncleanable_partitions_count", logDirectory=bad.log_dir)
        return [uncleanable, *(found.value(prefix + name) for name in ("max_dirty_percent", "time_since_last_run_ms"))]

    now += 700
    assert told() == [0, 0, 700]
    assert cleaner.clean_dirtiest()
    assert cleaner.clean_dirtiest()
    now += 30
    assert told() == [1, 100, 30]
    assert not cleaner.clean_dirtiest()
    assert told() == [1, 0, 0]
    logs.shutdown()
