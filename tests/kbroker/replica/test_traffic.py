"""What is counted of appends and fetches, across elections and deletions."""

from pathlib import Path

from kbroker.handlers.produce import produce
from kbroker.protocol.errors import ErrorCode
from kbroker.replica.traffic import Traffic
from tests.fixtures.data_path import TOPIC, Played, one_batch
from tests.kbroker.handlers.test_produce import request_for


def appended(played: Played) -> tuple[int, int]:
    traffic = played.replicas.traffic[TOPIC]
    parts = [hosted.appended_as_leader() for hosted in played.replicas.hosted.values()]
    return traffic.messages_in + sum(part[0] for part in parts), traffic.bytes_in + sum(part[1] for part in parts)


async def test_what_a_leader_appends_is_counted_without_counting_each_batch(played: Played) -> None:
    await played.lead()
    batch = one_batch(b"a", b"b", b"c")
    size = len(batch)
    produce(played.services, played.ctx(9), request_for((0, batch)))
    assert appended(played) == (3, size)
    assert played.replicas.traffic[TOPIC].produces == 1


async def test_the_count_goes_on_over_rolled_segments(tmp_path: Path) -> None:
    played = Played(tmp_path, segment_bytes=200)
    await played.lead()
    total = 0
    for _ in range(5):
        batch = one_batch(b"x" * 100)
        total += len(batch)
        produce(played.services, played.ctx(9), request_for((0, batch)))
    assert len(played.replicas.hosted[TOPIC, 0].log.segments) == 5
    assert appended(played) == (5, total)
    await played.close()


async def test_what_was_appended_stays_counted_when_another_leads(played: Played) -> None:
    await played.lead(replicas=(1, 2), isr=(1,))
    produce(played.services, played.ctx(9), request_for((0, one_batch(b"a", b"b")), acks=1))
    before = appended(played)
    await played.lead(leader=2, leader_epoch=1, replicas=(1, 2), partition_epoch=1, is_new=False)
    assert played.replicas.hosted[TOPIC, 0].counted_from is None
    assert appended(played) == before
    await played.lead(leader_epoch=2, replicas=(1, 2), isr=(1,), partition_epoch=2, is_new=False)
    produce(played.services, played.ctx(9), request_for((0, one_batch(b"c")), acks=1))
    assert appended(played)[0] == 3


async def test_refusals_are_counted_unless_the_client_s_view_was_old(tmp_path: Path) -> None:
    played = Played(tmp_path, max_message_bytes=200)
    await played.lead()
    too_large = one_batch(b"x" * 500)
    answer = produce(played.services, played.ctx(9), request_for((0, too_large), (7, one_batch()), (0, b"")))
    codes = [each.error_code for each in answer.responses[0].partition_responses]  # type: ignore[union-attr]
    assert codes == [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_RECORD]
    traffic = played.replicas.traffic[TOPIC]
    assert (traffic.produces, traffic.failed_produces, traffic.bytes_rejected) == (3, 1, len(too_large))
    await played.close()


async def test_topics_that_are_gone_leave_their_counts_in_the_sum(played: Played) -> None:
    await played.lead()
    produce(played.services, played.ctx(9), request_for((0, one_batch(b"a"))))
    played.replicas.forget_traffic([TOPIC])
    assert TOPIC in played.replicas.traffic, "it is still hosted"
    played.replicas.drop((TOPIC, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    played.replicas.forget_traffic([TOPIC, "never-there"])
    assert TOPIC not in played.replicas.traffic
    assert played.replicas.totals.gone.messages_in == 1
    assert played.replicas.totals.gone.produces == 1


def test_counters_can_be_added_up() -> None:
    one, other = Traffic(), Traffic()
    one.fetches, other.fetches, other.bytes_out = 2, 3, 5
    one.add(other)
    assert (one.fetches, one.bytes_out, one.settled) == (5, 5, 0)
