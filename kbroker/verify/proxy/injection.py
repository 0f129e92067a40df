"""Faults for people's tests: what happens to the clients that go through a proxy of the test's own.

    with Faults("127.0.0.1:9092") as faults:
        producer = Producer(faults.bootstrap)
        with faults.slow(broker=1, delay_ms=200):
            ...
        lost = faults.lose_answer("Produce")
        ...
        lost.wait()                       # until it has happened
        faults.heal()                     # whatever still holds

Each method returns what it injected: a context manager that heals at its end, and counts what happened. The proxy
starts when something is first asked of it.
"""

from __future__ import annotations

from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.errors import ErrorCode
from kbroker.verify.proxy.exchange import PRODUCE
from kbroker.verify.proxy.faults import (
    AnswerError,
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

_KEY_BY_NAME = {api.name.lower(): key for key, api in API_BY_KEY.items()}


class Injected:
    """A fault that holds until it is healed, or has happened as often as it should."""

    def __init__(self, proxy: Proxy, fault: LinkFault) -> None:
        self._proxy = proxy
        self._fault = fault

    @property
    def happened(self) -> int:
        """How often it has had an effect."""
        return self._fault.happened

    def wait(self, timeout: float = 30.0) -> None:
        """Wait until it has had an effect; raises TimeoutError."""
        if not self._fault.has_happened.wait(timeout):
            raise TimeoutError(f"nothing that was asked within {timeout:g} s met the fault")

    def heal(self) -> None:
        """End it; what it held back has arrived when this returns."""
        self._proxy.heal(self._fault)

    def __enter__(self) -> Injected:
        return self

    def __exit__(self, *exception: object) -> None:
        self.heal()


class Faults:
    """Everything that can happen between the clients that use `bootstrap` and the cluster.

    Who is concerned: `client_id` (exactly, or a pattern: `orders-*`), `broker` (its id), both, or neither for all.
    `direction`: "to-broker", "to-client" or "both". APIs by Kafka's names: "Produce", "OffsetCommit".
    """

    def __init__(self, upstream: str) -> None:
        """Faults of the clients of the cluster at `upstream`, `host:port,…`; nothing runs yet."""
        self._upstream = upstream
        self._proxy: Proxy | None = None

    @property
    def proxy(self) -> Proxy:
        """What all goes through; started by the first who asks."""
        if self._proxy is None:
            self._proxy = Proxy(self._upstream).start()
        return self._proxy

    @property
    def bootstrap(self) -> str:
        """`host:port,…` for the clients that are to suffer; all others use the cluster's own."""
        return self.proxy.bootstrap

    def cut(self, *, client_id: str | None = None, broker: int | None = None, direction: str = "both") -> Injected:
        """Let nothing through, and tell nobody; what is sent arrives after the healing, late."""
        return self._inject(Cut(where=Where(client_id, broker), direction=Direction(direction)))

    def refuse(self, *, client_id: str | None = None, broker: int | None = None) -> Injected:
        """Reset the connections, and each new one."""
        return self._inject(Refuse(where=Where(client_id, broker)))

    def slow(
        self,
        *,
        delay_ms: float,
        client_id: str | None = None,
        broker: int | None = None,
        direction: str = "to-broker",
    ) -> Injected:
        """Delay each request (or with another direction each answer), one behind the other, as a slow broker does."""
        where = Where(client_id, broker)
        return self._inject(Delay(where=where, direction=Direction(direction), seconds=delay_ms / 1000))

    def throttle(
        self,
        *,
        bytes_per_second: float,
        client_id: str | None = None,
        broker: int | None = None,
        direction: str = "both",
    ) -> Injected:
        """Let at most so many bytes a second through each connection."""
        if bytes_per_second <= 0:
            raise ValueError("bytes_per_second must be above 0; `cut` lets nothing through")
        where = Where(client_id, broker)
        return self._inject(Throttle(where=where, direction=Direction(direction), bytes_per_second=bytes_per_second))

    def reset_after(
        self,
        *,
        bytes: int,
        client_id: str | None = None,
        broker: int | None = None,
        direction: str = "both",
    ) -> Injected:
        """Reset the connection that is in use when so many bytes have gone by; once."""
        if bytes <= 0:
            raise ValueError("bytes must be above 0; `refuse` resets at once")
        where = Where(client_id, broker)
        return self._inject(ResetAfter(where=where, direction=Direction(direction), bytes_left=bytes))

    def lose_answer(
        self,
        api: str,
        *,
        times: int = 1,
        client_id: str | None = None,
        broker: int | None = None,
        silently: bool = False,
    ) -> Injected:
        """Let the broker do what it is asked, and lose its answer: the connection is reset, or `silently` goes on."""
        where = Where(client_id, broker)
        return self._inject(LoseAnswer(where=where, api_key=_key_of(api), times=times, silently=silently))

    def hold_produce(self, *, times: int = 1, client_id: str | None = None, broker: int | None = None) -> Injected:
        """Hold a Produce back and reset the connection: it arrives after the client's next Produce was answered.

        It is the same as a packet that takes another way. Healing lets it arrive, too, and so does a minute.
        """
        return self._inject(HoldRequest(where=Where(client_id, broker), api_key=PRODUCE, times=times))

    def next_produce(
        self,
        *,
        error: ErrorCode | str,
        stored: bool = False,
        times: int = 1,
        client_id: str | None = None,
        broker: int | None = None,
    ) -> Injected:
        """Answer the next Produce with an error; with `stored` the broker takes the records all the same."""
        where = Where(client_id, broker)
        code = _code_of(error)
        return self._inject(AnswerError(where=where, api_key=PRODUCE, times=times, error=code, carried_out=stored))

    def next_answer(
        self,
        api: str,
        *,
        error: ErrorCode | str,
        times: int = 1,
        client_id: str | None = None,
        broker: int | None = None,
    ) -> Injected:
        """Let the broker do what it is asked, and its answer say that it failed."""
        where = Where(client_id, broker)
        return self._inject(AnswerError(where=where, api_key=_key_of(api), times=times, error=_code_of(error)))

    def heal(self) -> None:
        """End everything that was injected; what was held back has arrived when this returns."""
        if self._proxy is not None:
            self._proxy.heal()

    def stop(self) -> None:
        """End the proxy, if it was started, and all connections through it."""
        proxy, self._proxy = self._proxy, None
        if proxy is not None:
            proxy.stop()

    def __enter__(self) -> Faults:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _inject(self, fault: LinkFault) -> Injected:
        return Injected(self.proxy, self.proxy.inject(fault))


def _key_of(api: str) -> int:
    try:
        return _KEY_BY_NAME[api.lower()]
    except KeyError:
        raise ValueError(
            f"{api!r} is no API of Kafka's; {', '.join(api.name for api in API_BY_KEY.values())}"
        ) from None


def _code_of(error: ErrorCode | str) -> ErrorCode:
    try:
        return error if isinstance(error, ErrorCode) else ErrorCode[error]
    except KeyError:
        raise ValueError(f"{error!r} is no error of Kafka's; for example NOT_LEADER_OR_FOLLOWER") from None
