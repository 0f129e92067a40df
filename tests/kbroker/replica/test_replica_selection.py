"""The nearest replica for a consumer."""

from __future__ import annotations

import pytest

from kbroker.config.checks import RACK_AWARE_SELECTOR, REPLICA_SELECTORS
from kbroker.replica.replica_selection import RackAwareSelector, replica_selector
from tests.fixtures.data_path import Played
from tests.kbroker.handlers.test_fetch import append, ask, fetch_request, partitions_of


class Choice:
    """Broker 1 leads three records; 2 and 3 follow. Broker n stands in `rack-n`."""

    def __init__(self, played: Played) -> None:
        self.played = played
        self.selector = RackAwareSelector(played.metadata)

    @classmethod
    async def begin(cls, played: Played, isr: tuple[int, ...] = (1, 2)) -> Choice:
        await played.lead(replicas=(1, 2, 3), isr=isr)
        append(played, 0, b"a", b"b", b"c")
        return cls(played)

    def follow(self, broker_id: int, offset: int, log_start_offset: int = 0) -> None:
        ask(self.played, fetch_request((0, offset), replica_id=broker_id, log_start_offset=log_start_offset))

    def choose(self, rack: str, offset: int = 0, listener: str = "PLAINTEXT") -> int | None:
        hosted = self.played.replicas.replica("orders", 0)
        assert hosted is not None
        return self.selector(hosted, rack, listener, offset)


async def test_the_follower_of_the_consumers_rack_is_chosen(played: Played) -> None:
    choice = await Choice.begin(played, isr=(1, 2, 3))
    choice.follow(2, 3)
    choice.follow(3, 3)
    assert [choice.choose(rack) for rack in ("rack-1", "rack-2", "rack-3", "rack-4", "")] == [None, 2, 3, None, None]


async def test_a_follower_out_of_sync_is_not_chosen(played: Played) -> None:
    choice = await Choice.begin(played, isr=(1, 2))
    choice.follow(3, 1)
    assert choice.choose("rack-3") is None


async def test_a_follower_that_does_not_have_the_offset_is_not_chosen(played: Played) -> None:
    choice = await Choice.begin(played)
    assert choice.choose("rack-2") is None, "nothing is known of it yet"
    choice.follow(2, 2, log_start_offset=1)
    assert [choice.choose("rack-2", offset) for offset in (0, 1, 2, 3)] == [None, 2, 2, None]


async def test_a_follower_without_the_consumers_listener_is_not_chosen(played: Played) -> None:
    choice = await Choice.begin(played)
    choice.follow(2, 3)
    assert choice.choose("rack-2", listener="OUTSIDE") is None


async def test_of_several_in_the_rack_the_one_with_most_is_chosen(played: Played) -> None:
    choice = await Choice.begin(played, isr=(1, 2, 3))
    for broker_id, broker in played.metadata.brokers.items():
        played.metadata.brokers[broker_id] = type(broker)(
            broker.id, "near" if broker_id > 1 else "far", broker.endpoints
        )
    choice.follow(2, 3)
    choice.follow(3, 2)
    assert choice.choose("near") == 2
    choice.follow(3, 3)
    assert choice.choose("near") == 3


async def test_the_leader_names_the_replica_at_once(played: Played) -> None:
    choice = await Choice.begin(played)
    choice.follow(2, 3)
    played.replicas.replica_selector = choice.selector
    request = fetch_request((0, 1), max_wait_ms=60_000)
    request.rack_id = "rack-2"
    (found,) = partitions_of(ask(played, request))
    assert (found.preferred_read_replica, len(found.records)) == (2, 0)
    assert (found.high_watermark, found.log_start_offset) == (3, 0)
    request.rack_id = "rack-1"
    (found,) = partitions_of(ask(played, request))
    assert found.preferred_read_replica == -1
    assert len(found.records) > 0


@pytest.mark.parametrize("name", [None, "", *REPLICA_SELECTORS])
async def test_only_the_rack_aware_selector_sends_consumers_away(played: Played, name: str | None) -> None:
    chosen = replica_selector(name, played.metadata)
    assert isinstance(chosen, RackAwareSelector) == (name == RACK_AWARE_SELECTOR)
