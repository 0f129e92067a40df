"""Connections, the event loop, the threads beside it, buffers, flushes, ZooKeeper: what this broker is busy with."""

from __future__ import annotations

from collections import Counter

from kbroker.metrics.exposition import Exposition
from kbroker.metrics.families import Family, Section, number
from kbroker.metrics.sources import Sources
from kbroker.network.authentication import LoginCounts
from kbroker.network.watchdog import NOTED_S, WatchedSelector

MOST_SOFTWARE, OTHERS = 100, "(others)"
"""Clients choose what they say they are: so many kinds are told apart."""

_sockets = Section("Connections")
_socket = "kafka_server_socket_server_metrics_"
CONNECTIONS = _sockets.gauge(f"{_socket}connection_count", "Open connections.", "listener", "networkProcessor")
CREATED = _sockets.counter(
    f"{_socket}connection_creation_total", "Connections that were accepted.", "listener", "networkProcessor"
)
CLOSED = _sockets.counter(
    f"{_socket}connection_close_total", "Those of them that have gone.", "listener", "networkProcessor"
)


def _logins(name: str, help: str) -> Family:
    return _sockets.counter(f"{_socket}{name}_total", help, "listener", "networkProcessor")


LOGINS = _logins("successful_authentication", "Logins; where there are none, TLS handshakes.")
FAILED_LOGINS = _logins("failed_authentication", "Logins, and TLS handshakes, that were refused.")
RENEWED_LOGINS = _logins("successful_reauthentication", "Logins made anew before they ended.")
NOT_RENEWED_LOGINS = _logins("failed_reauthentication", "Those that were refused.")
SOFTWARE = _sockets.gauge(
    "kafka_server_socket_server_metrics_connections_software",
    "Open connections by what the clients say they are.",
    "clientSoftwareName",
    "clientSoftwareVersion",
    "listener",
)
IN_FLIGHT = _sockets.gauge(
    "kbroker_request_bytes_in_flight", "Bytes of requests in work; counted where queued.max.request.bytes is set."
)
_channel = "kafka_network_requestchannel_"
REQUEST_QUEUE = _sockets.gauge(
    f"{_channel}requestqueuesize",
    "Requests that wait to be worked on: large ones in line, those of which others have the memory, logins.",
)
ANSWER_QUEUE = _sockets.gauge(f"{_channel}responsequeuesize", "Answers that wait for clients who do not read them.")
UNREAD = _sockets.gauge("kbroker_unread_answer_bytes", "Bytes of these answers in memory.")
POOLED = _sockets.gauge(
    "kbroker_buffer_pool_bytes", "Bytes of buffers for large requests that are kept for the next ones."
)

_loop = Section("Event loop and threads")
NETWORK_IDLE = _loop.gauge(
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "Share of the last minute in which the event loop had nothing to do, 0 to 1.",
    also="kafka_network_socketserver_networkprocessoravgidlepercent",
)
HANDLER_IDLE = _loop.gauge(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", "The same: one loop does both."
)
HANDLER_IDLE_NS = _loop.counter(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total",
    "Nanoseconds in which it had nothing to do, since the first question.",
)
BUSY = _loop.counter("kbroker_loop_busy_seconds_total", "Seconds in which the event loop was at work.")
TURNS = _loop.histogram(
    "kbroker_loop_turn_seconds", "Turns of the event loop: whoever wants something waits for the end of one."
)
STALLS = _loop.counter(
    "kbroker_loop_stalls_total",
    "Turns of more than 100 ms: everybody waited meanwhile. By the API or chore that was seen at work.",
    "by",
)
STALLED = _loop.counter("kbroker_loop_stalled_seconds_total", "Seconds that those took.")
POOL_QUEUE = _loop.gauge("kbroker_executor_queue", "Jobs that wait for a thread of the pool.", "pool", "directory")
POOL_THREADS = _loop.gauge("kbroker_executor_threads", "Threads that the pool has started.", "pool", "directory")
FLUSH_ROUNDS = _loop.counter("kbroker_flush_rounds_total", "Grouped flushes for acknowledgements.")

_zookeeper = Section("ZooKeeper")
_events = "kafka_server_sessionexpirelistener_zookeeper"
LATENCY = _zookeeper.summary(
    "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
    "Milliseconds until ZooKeeper has answered a request.",
)
DISCONNECTS = _zookeeper.counter(f"{_events}disconnects_total", "Connections to ZooKeeper that were lost.")
CONNECTS = _zookeeper.counter(f"{_events}syncconnects_total", "Connections to ZooKeeper that were made.")
EXPIRES = _zookeeper.counter(
    f"{_events}expires_total", "Sessions that ended without our wish: this broker counted as dead."
)
REFUSALS = _zookeeper.counter(f"{_events}authfailures_total", "Log-ins that ZooKeeper refused.")
SESSION = _zookeeper.gauge("kbroker_zookeeper_session_state", "1 for the state that the session is in.", "state")

PROCESSOR = "0"


def collect(sources: Sources, out: Exposition) -> None:
    """Add what the server, the loop's watchdog, the pools and the ZooKeeper session say of themselves."""
    _connections(sources, out)
    _event_loop(sources, out)
    for kind, directory, waiting, threads in sources.services.workers.depths():
        out.add(POOL_QUEUE, waiting, kind, directory)
        out.add(POOL_THREADS, threads, kind, directory)
    out.add(FLUSH_ROUNDS, sources.services.replicas.flusher.rounds)
    zookeeper = sources.services.zookeeper
    out.add_summary(LATENCY, zookeeper.latency)
    for family, event in ((DISCONNECTS, "Disconnected"), (CONNECTS, "SyncConnected"), (EXPIRES, "Expired")):
        out.add(family, zookeeper.events[event])
    out.add(REFUSALS, zookeeper.refused_logins)
    out.add(SESSION, zookeeper.is_connected, "CONNECTED")
    out.add(SESSION, not zookeeper.is_connected, "CONNECTING")


def _connections(sources: Sources, out: Exposition) -> None:
    server = sources.server
    open_now = list(server.connections)
    listeners = Counter(each.listener for each in open_now)
    for name in list(server.ports):
        out.add(CONNECTIONS, listeners[name], name, PROCESSOR)
        out.add(CREATED, server.accepted[name], name, PROCESSOR)
        out.add(CLOSED, server.closed[name], name, PROCESSOR)
        logins = server.logins.get(name) or LoginCounts()
        for family, count in (
            (LOGINS, logins.succeeded),
            (FAILED_LOGINS, logins.failed),
            (RENEWED_LOGINS, logins.renewed),
            (NOT_RENEWED_LOGINS, logins.not_renewed),
        ):
            out.add(family, count, name, PROCESSOR)
    software = Counter((each.client_software_name, each.client_software_version, each.listener) for each in open_now)
    for labels, count in software.most_common(MOST_SOFTWARE):
        out.add(SOFTWARE, count, *labels)
    if len(software) > MOST_SOFTWARE:
        rest = Counter[str]()
        for (_, _, listener), count in software.most_common()[MOST_SOFTWARE:]:
            rest[listener] += count
        for listener, count in rest.items():
            out.add(SOFTWARE, count, OTHERS, OTHERS, listener)
    out.add(IN_FLIGHT, server.bytes_in_flight)
    out.add(REQUEST_QUEUE, server.waiting + sources.dispatcher.waiting)
    out.add(ANSWER_QUEUE, server.unread.count)
    out.add(UNREAD, server.unread.bytes)
    out.add(POOLED, server.buffers.kept_bytes)


def _event_loop(sources: Sources, out: Exposition) -> None:
    watchdog = sources.watchdog
    if watchdog is None:
        return
    selector = watchdog.selector
    since = selector.busy_since
    busy_s = selector.busy_s + (max(out.now - since, 0.0) if since else 0.0)
    idle = round(sources.loop_idle.share(out.now, busy_s), 4)
    out.add(NETWORK_IDLE, idle)
    out.add(HANDLER_IDLE, idle)
    out.add(HANDLER_IDLE_NS, int(sources.loop_idle.idle_s(out.now, busy_s) * 1e9))
    out.add(BUSY, busy_s)
    _turns(selector, busy_s, out)
    for name, count in list(watchdog.by_name.items()):
        out.add(STALLS, count, name)
    out.add(STALLED, watchdog.stalled_s)


def _turns(selector: WatchedSelector, busy_s: float, out: Exposition) -> None:
    """Only turns of more than NOTED_S are told apart: the others fall into the first bucket."""
    long_turns = list(selector.long_turns.counts)
    turns = max(selector.turns, sum(long_turns))
    reached = turns - sum(long_turns)
    lines = out.lines(TURNS)
    for bound, more in zip((NOTED_S, *selector.long_turns.bounds), (0, *long_turns), strict=False):
        reached += more
        lines.append(f'{TURNS.name}_bucket{{le="{bound}"}} {reached}')
    lines.append(f'{TURNS.name}_bucket{{le="+Inf"}} {turns}')
    lines.append(f"{TURNS.name}_sum {number(busy_s)}")
    lines.append(f"{TURNS.name}_count {turns}")
