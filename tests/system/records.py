"""Records that a broker must hand back as they were given, whoever writes and whoever reads them."""

from dataclasses import dataclass

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FLIGHT_TIME_MS = 1_357_034_400_000
"""The first departure of 2013."""

BIG_SIZE = 900_000


@dataclass(frozen=True, slots=True)
class SystemRecord:
    """One record, as every client can tell it."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


def all_sorts_of_records() -> list[SystemRecord]:
    """Keys, nulls, empty ones, headers, timestamps out of order, a big one, and a few hundred plain ones."""
    special = [
        SystemRecord(b"key", b"value", FLIGHT_TIME_MS),
        SystemRecord(None, b"no key", FLIGHT_TIME_MS + 1),
        SystemRecord(b"tombstone", None, FLIGHT_TIME_MS + 2),
        SystemRecord(b"", b"", FLIGHT_TIME_MS + 3),
        SystemRecord(
            b"headers", b"v", FLIGHT_TIME_MS + 4, (("a", b"1"), ("a", b"again"), ("empty", b""), ("ü", b"\xff"))
        ),
        SystemRecord(b"null header", b"v", FLIGHT_TIME_MS + 5, (("null", None),)),
        SystemRecord(b"earlier", b"v", FLIGHT_TIME_MS - 86_400_000),
        SystemRecord(b"big", bytes(range(256)) * (BIG_SIZE // 256), FLIGHT_TIME_MS + 6),
    ]
    plain = [
        SystemRecord(f"key-{number}".encode(), f"value {number} ".encode() * 5, FLIGHT_TIME_MS + 100 + number)
        for number in range(300)
    ]
    return special + plain
