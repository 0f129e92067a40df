"""What can be done to a link, as values, and which of it holds now. No input or output.

A link is one connection of a client to one broker, through the proxy. A fault names the links it concerns by the
client's id and the broker's, and a direction; what names nothing concerns all.
"""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeVar

from kbroker.protocol.errors import ErrorCode


class Direction(enum.Enum):
    """Which way bytes go."""

    TO_BROKER = "to-broker"
    TO_CLIENT = "to-client"
    BOTH = "both"

    def covers(self, direction: Direction) -> bool:
        """Whether what holds for this one holds for that one."""
        return self is Direction.BOTH or self is direction


@dataclass(slots=True)
class LinkName:
    """Whose link it is."""

    number: int
    """Of the proxy's links, in the order in which they came."""
    client_id: str | None = None
    """As its first request told; None before that, and for a client without one."""
    broker: int | None = None
    """The broker's id; None for an address of the bootstrap list before any Metadata told whose it is."""


@dataclass(frozen=True, slots=True)
class Where:
    """Which links: those that fulfil all that is given."""

    client_id: str | None = None
    """The client's id, or a pattern as of file names: `orders-*`."""
    broker: int | None = None
    link: int | None = None
    """One connection, by its number."""

    def concerns(self, link: LinkName) -> bool:
        """Whether a link is one of them."""
        if self.broker is not None and self.broker != link.broker:
            return False
        if self.link is not None and self.link != link.number:
            return False
        return self.client_id is None or (link.client_id is not None and fnmatchcase(link.client_id, self.client_id))

    def __str__(self) -> str:
        parts = []
        if self.client_id is not None:
            parts.append(f"client {self.client_id}")
        if self.broker is not None:
            parts.append(f"broker {self.broker}")
        if self.link is not None:
            parts.append(f"link {self.link}")
        return ", ".join(parts) or "all links"


@dataclass(eq=False, slots=True, kw_only=True)
class LinkFault:
    """What all faults have."""

    where: Where = field(default_factory=Where)
    direction: Direction = Direction.BOTH
    happened: int = 0
    """How often it has had an effect."""
    has_happened: threading.Event = field(default_factory=threading.Event)

    def note(self) -> None:
        """It had an effect."""
        self.happened += 1
        self.has_happened.set()


@dataclass(eq=False, slots=True, kw_only=True)
class Cut(LinkFault):
    """Nothing gets through, and nobody is told: what is sent arrives late, after the healing."""


@dataclass(eq=False, slots=True, kw_only=True)
class Refuse(LinkFault):
    """Links are reset, new ones too, as soon as the client has said who it is."""


@dataclass(eq=False, slots=True, kw_only=True)
class Delay(LinkFault):
    """Each frame waits so long, one behind the other, as at a broker that is slow."""

    seconds: float


@dataclass(eq=False, slots=True, kw_only=True)
class Throttle(LinkFault):
    """Each link gets at most so many bytes a second through."""

    bytes_per_second: float


@dataclass(eq=False, slots=True, kw_only=True)
class ResetAfter(LinkFault):
    """After so many bytes, of all its links together, the link that is just in use is reset; then it is over."""

    bytes_left: int


@dataclass(eq=False, slots=True, kw_only=True)
class RequestFault(LinkFault):
    """Something that happens to requests of one API, so many times."""

    api_key: int
    times: int = 1


@dataclass(eq=False, slots=True, kw_only=True)
class LoseAnswer(RequestFault):
    """The broker does what it is asked, and its answer never arrives: the link is reset, or (`silently`) goes on."""

    silently: bool = False


@dataclass(eq=False, slots=True, kw_only=True)
class HoldRequest(RequestFault):
    """The request is held back and the link reset; it arrives after the client's next one of this kind was answered."""


@dataclass(eq=False, slots=True, kw_only=True)
class AnswerError(RequestFault):
    """The answer says this error, for everything that was asked.

    `carried_out`: the broker gets the request all the same. For Produce it may not: then nothing is stored.
    """

    error: ErrorCode
    carried_out: bool = True


L = TypeVar("L", bound=LinkFault)
R = TypeVar("R", bound=RequestFault)


class ActiveFaults:
    """What holds now. For the proxy's event loop alone."""

    def __init__(self) -> None:
        self._faults: list[LinkFault] = []
        self._changed = asyncio.Event()
        """Replaced at each change."""

    def __bool__(self) -> bool:
        return bool(self._faults)

    def __iter__(self) -> Iterator[LinkFault]:
        return iter(tuple(self._faults))

    def add(self, fault: LinkFault) -> None:
        """From now on it holds."""
        self._faults.append(fault)
        self._tell()

    def remove(self, fault: LinkFault) -> None:
        """It holds no longer, if it does."""
        if fault in self._faults:
            self._faults.remove(fault)
            self._tell()

    def clear(self) -> None:
        """Nothing holds any more."""
        self._faults.clear()
        self._tell()

    def holds(self, fault: LinkFault) -> bool:
        """Whether it was not healed yet."""
        return fault in self._faults

    async def change(self, seconds: float | None = None) -> None:
        """Wait for the next change of what holds, at most so long."""
        changed = self._changed
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            pass

    async def until_open(self, link: LinkName, direction: Direction) -> None:
        """Wait as long as a cut concerns the link."""
        while (fault := self._first(Cut, link, direction)) is not None:
            fault.note()
            await self.change()

    async def delay(self, link: LinkName, direction: Direction) -> None:
        """Wait as a frame has to; whoever heals ends it."""
        fault = self._first(Delay, link, direction)
        if fault is None:
            return
        fault.note()
        await self.hold_for(fault, fault.seconds)

    async def hold_for(self, fault: LinkFault, seconds: float) -> None:
        """Wait so long, or until the fault is healed."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self.holds(fault) and (left := until - loop.time()) > 0:
            await self.change(left)

    def throttle(self, link: LinkName, direction: Direction) -> Throttle | None:
        """How slow the link is, if it is."""
        slow = list(self._of(Throttle, link, direction))
        return min(slow, key=lambda fault: fault.bytes_per_second) if slow else None

    def reset_after(self, link: LinkName, direction: Direction) -> ResetAfter | None:
        """The fault that counts the link's bytes, if there is one."""
        return self._first(ResetAfter, link, direction)

    def refuses(self, link: LinkName) -> bool:
        """Whether the link may not be."""
        fault = self._first(Refuse, link, Direction.BOTH)
        if fault is not None:
            fault.note()
        return fault is not None

    def take(self, kind: type[R], link: LinkName, api_key: int) -> R | None:
        """What happens to this request, if anything; it is counted, and the last time the fault is over."""
        for fault in self._of(kind, link, Direction.BOTH):
            if fault.api_key == api_key:
                fault.times -= 1
                if fault.times <= 0:
                    self._faults.remove(fault)
                return fault
        return None

    def _of(self, kind: type[L], link: LinkName, direction: Direction) -> Iterator[L]:
        for fault in self._faults:
            if isinstance(fault, kind) and fault.direction.covers(direction) and fault.where.concerns(link):
                yield fault

    def _first(self, kind: type[L], link: LinkName, direction: Direction) -> L | None:
        return next(self._of(kind, link, direction), None)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
