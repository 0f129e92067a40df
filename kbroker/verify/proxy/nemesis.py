"""The nemesis between clients and brokers, which breaks their links: for any Kafka cluster, with nothing to set up.

    name          what it does to the links drawn: those of one client or of all, to one broker or to all
    cut           nothing gets through, in one direction or in both; what is sent arrives after the healing
    refuse        links are reset, new ones too
    delay         each frame waits
    throttle      so many bytes a second get through
    reset-after   links are reset within a frame, time and again
    hold-produce  a Produce is held back, and arrives after the client has come back and sent it again
    lose-answer   answers of one API are lost: the link is reset, or goes on as if nothing had been said

Everything is drawn from the generator that `inject` is given; whose links there are is asked of the proxy.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from kbroker.protocol.apis import API_BY_KEY, api_of
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from kbroker.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from kbroker.verify.nemesis import Fault
from kbroker.verify.proxy.exchange import PRODUCE
from kbroker.verify.proxy.faults import (
    Cut,
    Delay,
    Direction,
    HoldRequest,
    LinkFault,
    LoseAnswer,
    Refuse,
    ResetAfter,
    Throttle,
    Where,
)
from kbroker.verify.proxy.proxy import Proxy

ANSWERS_TO_LOSE = tuple(
    api_of(request).key
    for request in (
        *(ProduceRequest,) * 4,
        *(EndTxnRequest,) * 2,
        *(OffsetCommitRequest,) * 2,
        FetchRequest,
        MetadataRequest,
        FindCoordinatorRequest,
        JoinGroupRequest,
        SyncGroupRequest,
        HeartbeatRequest,
        InitProducerIdRequest,
        AddPartitionsToTxnRequest,
        AddOffsetsToTxnRequest,
        TxnOffsetCommitRequest,
        CreateTopicsRequest,
        DeleteTopicsRequest,
    )
)
"""What is named several times is drawn more often."""
Details = dict[str, str | int | float]
Draw = Callable[[random.Random, Where], tuple[list[LinkFault], Details]]


class ProxyNemesis:
    """Draws faults of the links through a proxy of its own."""

    def __init__(self, seed: int = 0) -> None:
        """`seed` is what the whole test was begun with; faults are drawn from what `inject` is given."""
        self.seed = seed
        self._proxy: Proxy | None = None

    @property
    def proxy(self) -> Proxy:
        """What all clients go through."""
        assert self._proxy is not None, "the nemesis is not started"
        return self._proxy

    def start(self, bootstrap: str) -> str:
        """Stand before the cluster; returns the address that clients are to use."""
        self._proxy = Proxy(bootstrap).start()
        return self._proxy.bootstrap

    def inject(self, rng: random.Random) -> Fault | None:
        """Begin one fault."""
        name = rng.choice(sorted(DRAWN))
        where = self._draw_where(rng)
        faults, details = DRAWN[name](rng, where)
        for fault in faults:
            self.proxy.inject(fault)
        about: Details = {}
        if where.client_id is not None:
            about["client"] = where.client_id
        if where.broker is not None:
            about["broker"] = where.broker
        return Fault(name, {**about, **details})

    def heal(self) -> None:
        """Undo all; what was held back has arrived."""
        self.proxy.heal()

    def stop(self) -> None:
        """End all links."""
        proxy, self._proxy = self._proxy, None
        if proxy is not None:
            proxy.stop()

    def _draw_where(self, rng: random.Random) -> Where:
        """Draw whose links; always as often from the generator, whoever is there."""
        of_client, of_broker, client, broker = (rng.random() for _ in range(4))
        clients = sorted({link.client_id for link in self.proxy.links() if link.client_id is not None})
        brokers = sorted(self.proxy.brokers())
        return Where(
            client_id=clients[int(client * len(clients))] if clients and of_client < 0.5 else None,
            broker=brokers[int(broker * len(brokers))] if brokers and of_broker < 0.6 else None,
        )


def _cut(rng: random.Random, where: Where) -> tuple[list[LinkFault], Details]:
    direction = rng.choice(list(Direction))
    return [Cut(where=where, direction=direction)], {"direction": direction.value}


def _refuse(rng: random.Random, where: Where) -> tuple[list[LinkFault], Details]:
    return [Refuse(where=where)], {}


def _delay(rng: random.Random, where: Where) -> tuple[list[LinkFault], Details]:
    direction, seconds = rng.choice(list(Direction)), round(rng.uniform(0.02, 1.0), 3)
    return [Delay(where=where, direction=direction, seconds=seconds)], {
        "direction": direction.value,
        "seconds": seconds,
    }


def _throttle(rng: random.Random, where: Where) -> tuple[list[LinkFault], Details]:
    direction, rate = rng.choice(list(Direction)), rng.randrange(2_000, 200_000)
    return [Throttle(where=where, direction=direction, bytes_per_second=rate)], {
        "direction": direction.value,
        "bytes-per-second": rate,
    }


def _reset_after(rng: random.Random, where: Where) -> tuple[list[LinkFault], Details]:
    direction = rng.choice(list(Direction))
    faults: list[LinkFault] = []
    for _ in range(rng.randrange(1, 10)):
        faults.append(ResetAfter(where=where, direction=direction, bytes_left=rng.randrange(1, 50_000)))
    return faults, {"direction": direction.value, "times": len(faults)}


def _hold_produce(rng: random.Random, where: Where) -> tuple[list[LinkFault], Details]:
    times = rng.randrange(1, 4)
    return [HoldRequest(where=where, api_key=PRODUCE, times=times)], {"times": times}


def _lose_answer(rng: random.Random, where: Where) -> tuple[list[LinkFault], Details]:
    key, times, silently = rng.choice(ANSWERS_TO_LOSE), rng.randrange(1, 6), rng.random() < 0.2
    fault = LoseAnswer(where=where, api_key=key, times=times, silently=silently)
    return [fault], {"api": API_BY_KEY[key].name, "times": times, "link": "goes on" if silently else "is reset"}


DRAWN: dict[str, Draw] = {
    "cut": _cut,
    "refuse": _refuse,
    "delay": _delay,
    "throttle": _throttle,
    "reset-after": _reset_after,
    "hold-produce": _hold_produce,
    "lose-answer": _lose_answer,
}
