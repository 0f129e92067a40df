"""A conversation with one broker, written down so that it can be compared with the same one held with another.

What no two clusters share (ids, ports, clocks, free bytes of a disk) is masked; so are the texts of errors, except in
APIs whose tools show them and where ours are Kafka's word for word.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import Any

from kbroker.protocol.apis import api_of
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.headers import decode_response, encode_request
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.transactions import EndTxnRequest, TxnOffsetCommitRequest
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.protocol.records.batch import split_batches
from kbroker.protocol.schema import Message, Struct, schema_of

TIMEOUT_S = 60.0
OWN = frozenset(
    (
        *("topic_id", "host", "port", "cluster_id", "log_append_time_ms", "producer_id", "total_bytes", "usable_bytes"),
        *("log_dir", "session_id", "documentation", "transaction_start_time_ms", "last_timestamp"),
        *("token_id", "hmac", "issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"),
        *("issue_timestamp", "expiry_timestamp", "max_timestamp"),
    )
)
"""Fields that differ from cluster to cluster; that they are there at all is compared."""
UNORDERED = frozenset(
    ("results_by_topic_v3_and_below", "results_by_partition", "topic_results", "responses", "partition_responses")
)
"""Arrays in which Kafka's results come as its maps yield them."""
ABSENT = (None, "", -1, 0, ZERO_UUID)
WITH_TEXTS = frozenset({"CreateTopics", "ElectLeaders", "DescribeCluster"})
CLOSED = "closed the connection"
MISSING = "nothing"


class Talk:
    """One connection (made anew when the broker closes it) and what was said on it."""

    def __init__(
        self, port: int, prefix: str, source: str = "127.0.0.1", log_in: Callable[[Talk], None] | None = None
    ) -> None:
        """`log_in` is called with each new connection."""
        self.port = port
        self._log_in = log_in
        self.source = source
        """The address it comes from."""
        self.prefix = prefix
        """Of the names of this conversation's topics."""
        self.lines: list[tuple[str, Any]] = []
        self._socket: socket.socket | None = None
        self._count = 0

    def topic(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def ask(self, label: str, request: Any, version: int) -> Any:
        """Send a request and note its answer; None when the broker closes the connection instead."""
        api = api_of(type(request))
        try:
            answer = self._exchange(request, version)
        except ConnectionError:
            self.close()
            self.lines.append((f"{label} {api.name} v{version}", CLOSED))
            return None
        self.lines.append((f"{label} {api.name} v{version}", plain(answer, api.name in WITH_TEXTS)))
        return answer

    def every(self, label: str, make: Callable[[int], Any], versions: Iterable[int]) -> Any:
        """Ask in each version; return the last answer."""
        answer = None
        for version in versions:
            answer = self.ask(label, make(version), version)
        return answer

    def _exchange(self, request: Any, version: int) -> Any:
        if self._socket is None:
            self._socket = socket.create_connection(
                ("127.0.0.1", self.port), timeout=TIMEOUT_S, source_address=(self.source, 0)
            )
            if self._log_in is not None:
                self._log_in(self)
        return self.exchange(request, version)

    def exchange(self, request: Any, version: int) -> Any:
        """Send a request on the connection that is there, and return its answer; nothing is noted."""
        assert self._socket is not None
        self._count += 1
        parts: list[Any] = encode_request(request, version, self._count, "parity")
        self._socket.sendall(b"".join(bytes(part) for part in parts))
        size = int.from_bytes(self._read(4), "big")
        correlation_id, answer = decode_response(self._read(size), api_of(type(request)).response, version)
        assert correlation_id == self._count
        return answer

    def _read(self, size: int) -> bytearray:
        assert self._socket is not None
        found = bytearray()
        while len(found) < size:
            part = self._socket.recv(size - len(found))
            if not part:
                raise ConnectionError("end of the connection")
            found += part
        return found

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


NEWEST_IN_KAFKA: dict[type[Message], int] = {ProduceRequest: 11, EndTxnRequest: 4, TxnOffsetCommitRequest: 4}
"""Of requests that Kafka 4 has in newer versions, and we have, too: what Kafka 3.9 knows."""


def versions_of(request_type: type[Message], first: int = 0) -> range:
    """All versions of a request (from `first` on) that Kafka 3.9 knows, too."""
    api = api_of(request_type)
    return range(max(first, api.min_version), min(api.max_version, NEWEST_IN_KAFKA.get(request_type, 99)) + 1)


def unlike(mine: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where two plain values differ."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for key in mine.keys() | theirs.keys():
            yield from unlike(mine.get(key, MISSING), theirs.get(key, MISSING), f"{path}.{key}")
    elif isinstance(mine, list) and isinstance(theirs, list):
        for index, (left, right) in enumerate(zip_longest(mine, theirs, fillvalue=MISSING)):
            yield from unlike(left, right, f"{path}[{index}]")
    elif mine != theirs:
        yield f"{path} is {mine!r}, Kafka says {theirs!r}"


def plain(value: Any, texts: bool) -> Any:
    """The value as nested dictionaries and lists, masked."""
    if isinstance(value, ErrorCode):
        return value.name
    if isinstance(value, Struct):
        # Kafka tells with some errors, too, where the log begins.
        is_error = getattr(value, "error_code", ErrorCode.NONE) is not ErrorCode.NONE
        return {
            field.name: _field(field.name, getattr(value, field.name), texts)
            for field in schema_of(type(value)).fields
            if not (is_error and field.name == "log_start_offset")
        }
    if isinstance(value, list):
        return [plain(each, texts) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return value


def _field(name: str, value: Any, texts: bool) -> Any:
    if name == "records":
        return _batches(value)
    if name in OWN:
        return value if value in ABSENT and not (name == "producer_id" and value == 0) else "*"
    if name.endswith("error_message") and not texts:
        return "*"
    if name == "configs" and value:
        value = sorted(value, key=lambda entry: entry.name)  # Kafka's are in no order
    shown = plain(value, texts)
    return sorted(shown, key=str) if name in UNORDERED else shown


def _batches(records: Any) -> Any:
    """Where each batch lies, and a digest of what clients see of it (all but the leader epoch and the CRC's place).

    Of a producer's batch its id is left out, and of a marker when it was written.
    """
    if records is None:
        return None
    data = bytearray(records)
    found = []
    for position, size in split_batches(data):
        base_offset = int.from_bytes(data[position : position + 8], "big")
        if data[position + 43] < 0x80:  # not -1, which says that there is no producer
            data[position + 17 : position + 21] = bytes(4)  # the checksum is of its id, too
            data[position + 43 : position + 51] = bytes(8)
            if data[position + 22] & 0x20:
                data[position + 27 : position + 43] = bytes(16)
        found.append((base_offset, size, hashlib.md5(data[position + 16 : position + size]).hexdigest()))
    return found
