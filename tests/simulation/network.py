"""The network: connections in memory, whose bytes arrive in order, late, in pieces, or never.

A connection has two streams, one per direction. A cut between two hosts holds back what is sent in that direction until
it is mended, as TCP does; a reset loses what is on its way, and both ends hear of it. To servers a connection is a
non-blocking socket, to clients a transport of asyncio.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import Any

from tests.simulation.loop import Machine, Simulation

QUICK, SLOW = 0.97, 0.995
QUICK_S, SLOW_S, SLOWEST_S = 0.0004, 0.02, 0.25
"""The longest: most portions are quick, some slow, the rest slower still."""
WINDOW = 256 * 1024
"""What a socket takes before its peer has got it."""
FIRST_PORT = 9092
LEAST_NUMBER = 1000
LATE_S = 0.5
"""So much later, at most, comes what a cut has held back of a connection that its sender has given up."""
LOST = 0.1
"""How often an answer is lost of a host that loses some."""
PIECES = 0.02
"""How often a read or a write takes less than it could."""


class Network:
    """All listeners, connections and cuts."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.listeners: dict[tuple[str, int], Listening] = {}
        self.connections: dict[int, Wire] = {}
        self.sockets: dict[int, Socket] = {}
        """By number: what a sendfile is written to."""
        self._cuts: dict[tuple[str, str], None] = {}
        self.loses: dict[str, None] = {}
        """Hosts whose answers are lost now and then, with their connection."""
        self._numbers = 0
        simulation.connect = self.connect

    def next_number(self) -> int:
        """Return a descriptor's number; below zero, where no file of the real system is."""
        self._numbers -= 1
        return self._numbers - LEAST_NUMBER

    def latency(self) -> float:
        """Draw how long a portion is on its way."""
        draw = self.simulation.rng.random
        kind = draw()
        longest = QUICK_S if kind < QUICK else SLOW_S if kind < SLOW else SLOWEST_S
        return 0.00005 + draw() * longest

    # --- listening and connecting ---

    def listen(self, machine: Machine, host: str, port: int) -> Listening:
        """Listen on an address. Raises OSError when it is taken."""
        return Listening(self, machine, (host, port or FIRST_PORT))

    async def connect(self, machine: Machine, make: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]:
        """Open a connection, as asyncio's create_connection does. A cut lets the caller wait."""
        while self.is_cut(machine.host, host) or self.is_cut(host, machine.host):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await asyncio.sleep(2 * self.latency())
        listening = self.listeners.get((host, port))
        if listening is None:
            raise ConnectionRefusedError(111, "Connection refused")
        wire = Wire(self, machine, listening)
        protocol = make()
        transport = Transport(wire, machine, protocol)
        wire.client = transport
        protocol.connection_made(transport)
        return transport, protocol

    # --- faults ---

    def is_cut(self, source: str, target: str) -> bool:
        """Whether what one host sends does not reach the other."""
        return (source, target) in self._cuts

    def cut(self, source: str, target: str) -> None:
        """Let nothing through in this direction."""
        self._cuts[source, target] = None

    def mend(self) -> None:
        """Undo all cuts; what was held back goes on its way."""
        self._cuts.clear()
        self.loses.clear()
        for wire in list(self.connections.values()):
            for stream in (wire.up, wire.down):
                stream.release()

    def died(self, machine: Machine) -> None:
        """The operating system closes what a killed process had open."""
        for address, listening in list(self.listeners.items()):
            if listening.machine is machine:
                del self.listeners[address]
        for wire in list(self.connections.values()):
            if wire.up.source is machine and wire.client is not None:
                wire.client.died()
            elif wire.up.target is machine:
                wire.server.close()


class Wire:
    """One connection: a client's transport, a server's socket, and a stream each way."""

    def __init__(self, network: Network, client_machine: Machine, listening: Listening) -> None:
        self.network = network
        self.number = network.next_number()
        server_machine = listening.machine
        self.up = Stream(network, client_machine, server_machine)
        self.down = Stream(network, server_machine, client_machine)
        self.client: Transport | None = None
        self.server = Socket(self, listening)
        self.up.deliver = self.server.arrive
        self.down.deliver = self._to_client
        self.down.on_loss = self.reset
        network.connections[self.number] = self
        listening.came(self.server)

    def _to_client(self, data: bytes | None) -> None:
        assert self.client is not None
        self.client.arrive(data)

    def reset(self) -> None:
        """Lose what is on its way and tell both ends."""
        for stream in (self.up, self.down):
            stream.lose()
        self.server.fail()
        if self.client is not None:
            self.down.target.call_soon(self.client.fail)
        self.network.connections.pop(self.number, None)

    def forget_if_over(self) -> None:
        """Both ends are closed."""
        if self.server.is_closed and (self.client is None or self.client.is_closing()):
            self.network.connections.pop(self.number, None)


class Stream:
    """One direction: portions in order, each after a delay. None is the end."""

    def __init__(self, network: Network, source: Machine, target: Machine) -> None:
        self._network = network
        self.source = source
        self.target = target
        self.deliver: Callable[[bytes | None], None] = lambda data: None
        self.on_its_way = 0
        """Bytes."""
        self.on_loss: Callable[[], None] | None = None
        """Ends the connection."""
        self._held: list[bytes | None] = []
        self._last_arrival = 0.0
        self._life = 0
        """Grows when what is on its way is lost."""

    def send(self, data: bytes | None) -> None:
        """Put a portion on its way."""
        self.on_its_way += len(data or b"")
        if self._network.is_cut(self.source.host, self.target.host):
            self._held.append(data)
        else:
            self._go(data)

    def _go(self, data: bytes | None, late_s: float = 0.0) -> None:
        network = self._network
        loses = bool(network.loses) and self.source.host in network.loses
        if loses and self.on_loss is not None and network.simulation.rng.random() < LOST:
            self.source.call_soon(self.on_loss)
            return
        when = self._network.simulation.now + self._network.latency() + late_s
        self._last_arrival = max(when, self._last_arrival + 0.000001)
        if not self.target.is_dead:
            self.target.call_at(self._last_arrival, self._arrive, data, self._life)

    def _arrive(self, data: bytes | None, life: int) -> None:
        if life == self._life:
            self.on_its_way -= len(data or b"")
            self.source.now_writable()
            self.deliver(data)

    def release(self) -> None:
        """Send on what a cut held back; what nobody waits for any more may come behind what was sent since."""
        held, self._held = self._held, []
        late_s = self._network.simulation.rng.random() * LATE_S if held and held[-1] is None else 0.0
        for data in held:
            self._go(data, late_s)

    def lose(self) -> None:
        """Lose what is on its way."""
        self._life += 1
        self.on_its_way = 0
        self._held.clear()


class Listening:
    """A listening socket."""

    is_writable = False

    def __init__(self, network: Network, machine: Machine, address: tuple[str, int]) -> None:
        if address in network.listeners:
            raise OSError(98, "Address already in use")
        self.network = network
        self.machine = machine
        self._address = address
        self._waiting: list[Socket] = []
        self._number = network.next_number()
        machine.descriptors[self._number] = self
        network.listeners[address] = self

    def came(self, sock: Socket) -> None:
        """Somebody connects."""
        self._waiting.append(sock)
        self.machine.now_readable(self._number)

    def accept(self) -> tuple[Socket, tuple[str, int]]:
        """Take a connection."""
        if not self._waiting:
            self.machine.readable.pop(self._number, None)
            raise BlockingIOError
        sock = self._waiting.pop(0)
        return sock, (sock.peer, 40_000 - sock.fileno())

    def fileno(self) -> int:
        """Its number."""
        return self._number

    def getsockname(self) -> tuple[str, int]:
        """Its address."""
        return self._address

    def close(self) -> None:
        """Listen no more."""
        self.network.listeners.pop(self._address, None)
        self.machine.descriptors.pop(self._number, None)
        self.machine.readable.pop(self._number, None)
        for sock in self._waiting:
            sock.close()
        self._waiting.clear()


class Socket:
    """A server's end of a connection, with the methods of a non-blocking socket."""

    def __init__(self, wire: Wire, listening: Listening) -> None:
        self._wire = wire
        self._network = wire.network
        self._number = wire.number
        self._inbox = bytearray()
        self._is_at_end = False
        self._has_failed = False
        self.is_closed = False
        self._machine = listening.machine
        self.peer = wire.up.source.host
        self._machine.descriptors[self._number] = self
        self._network.sockets[self._number] = self

    @property
    def is_writable(self) -> bool:
        """Whether there is room."""
        return self._has_failed or self._wire.down.on_its_way < WINDOW

    def arrive(self, data: bytes | None) -> None:
        """Bytes come out of the network, or the end."""
        if self.is_closed:
            return
        if data is None:
            self._is_at_end = True
        else:
            self._inbox += data
        self._machine.now_readable(self._number)

    def fail(self) -> None:
        """The connection was reset."""
        if not self.is_closed:
            self._has_failed = True
            self._machine.now_readable(self._number)

    def recv_into(self, buffer: Any) -> int:
        """Read what there is."""
        target = memoryview(buffer)
        data = self._inbox[: self._some(min(len(target), len(self._inbox)))]
        if not data:
            return self._end()
        target[: len(data)] = data
        self._taken(len(data))
        return len(data)

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Read what there is; with any flag, look at it."""
        data = bytes(self._inbox[:size])
        if not data:
            self._end()
        elif not flags:
            self._taken(len(data))
        return data

    def _taken(self, size: int) -> None:
        del self._inbox[:size]
        if not (self._inbox or self._is_at_end or self._has_failed):
            self._machine.readable.pop(self._number, None)

    def _end(self) -> int:
        if self._has_failed:
            raise ConnectionResetError(104, "Connection reset by peer")
        if self._is_at_end:
            return 0
        raise BlockingIOError

    def sendmsg(self, buffers: Iterable[Any], ancillary: Any = (), flags: int = 0) -> int:
        """Write as much as there is room for."""
        if self._has_failed:
            raise BrokenPipeError(32, "Broken pipe")
        room = WINDOW - self._wire.down.on_its_way
        if room <= 0:
            raise BlockingIOError
        data = b"".join(buffers)[:room]
        data = data[: self._some(len(data))]
        if data:
            self._wire.down.send(data)
        return len(data)

    def send_file(self, file: int, position: int, size: int) -> int:
        """Write a slice of a real file."""
        return self.sendmsg([os.pread(file, min(size, WINDOW), position)])

    def _some(self, size: int) -> int:
        """All of it, but for now and then."""
        rng = self._network.simulation.rng
        return rng.randint(1, size) if size > 1 and rng.random() < PIECES else size

    def fileno(self) -> int:
        """Its number."""
        return self._number

    def setblocking(self, is_blocking: bool) -> None:
        """It never blocks."""

    def setsockopt(self, *option: object) -> None:
        """There is nothing to be set."""

    def close(self) -> None:
        """Close it; what was written goes out first."""
        if not self.is_closed:
            self.is_closed = True
            self._network.sockets.pop(self._number, None)
            self._machine.descriptors.pop(self._number, None)
            self._machine.readable.pop(self._number, None)
            self._wire.down.send(None)
            self._wire.forget_if_over()


class Transport(asyncio.Transport):
    """A client's end of a connection."""

    def __init__(self, wire: Wire, machine: Machine, protocol: Any) -> None:
        super().__init__()
        self._wire = wire
        self._machine = machine
        self._protocol = protocol
        self._is_closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """There is no socket to be had."""
        return default

    def is_closing(self) -> bool:
        """Whether nothing more is sent or heard."""
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        """All is on its way at once."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def write(self, data: Any) -> None:
        """Send."""
        if not self._is_closing and data:
            self._wire.up.send(bytes(data))

    def close(self) -> None:
        """Send the end after all that was written."""
        self._finish(None)

    def abort(self) -> None:
        """Hear nothing more; here nothing that was written is lost by that alone."""
        self._finish(None)

    def fail(self) -> None:
        """The connection was reset."""
        self._finish(ConnectionResetError(104, "Connection reset by peer"))

    def died(self) -> None:
        """Its machine is no more; the operating system sends the end."""
        self._is_closing = True
        self._wire.up.send(None)

    def arrive(self, data: bytes | None) -> None:
        """Bytes come out of the network, or the end."""
        if self._is_closing:
            return
        if data is None:
            self._finish(None)
        elif isinstance(self._protocol, asyncio.BufferedProtocol):
            self._fill(memoryview(data))
        else:
            self._protocol.data_received(data)

    def _fill(self, data: memoryview) -> None:
        while data and not self._is_closing:
            buffer = memoryview(self._protocol.get_buffer(-1))
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self._protocol.buffer_updated(count)
            data = data[count:]

    def _finish(self, error: Exception | None) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._wire.up.send(None)
        self._wire.forget_if_over()
        self._machine.call_soon(self._protocol.connection_lost, error)
