"""Compaction beside Kafka's: megabytes of log per second of processor time, on the same log.

A log of many keys written again and again is compacted in this process by our cleaner, and by Kafka's own (its class
`Cleaner`, which has no broker around it either) in another. Both read the log twice: for the keys, then to copy.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.systems import kafka_is_there
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.compression import CompressionType
from kbroker.segment.cleaner import LogCleaner
from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_manager import LogManager
from tests.fixtures.maven import kafka_jars

PROGRAM = Path(__file__).parent / "CompactLog.java"
TOTAL_BYTES = 300 << 20
SEGMENTS = 8
"""What is active is not compacted; of a compressed log there are fewer."""
BATCH_BYTES = 16_384
CASES = [
    ("200 B, 10 % stay", 200, 10, CompressionType.NONE),
    ("200 B, 90 % stay", 200, 1, CompressionType.NONE),
    ("1 KB, 10 % stay", 1024, 10, CompressionType.NONE),
    ("200 B, lz4, 10 % stay", 200, 10, CompressionType.LZ4),
    ("200 B, zstd, 10 % stay", 200, 10, CompressionType.ZSTD),
]


def write(log: Log, value_bytes: int, repeats: int, compression: CompressionType, total_bytes: int) -> None:
    """Fill a log so that each key is there about `repeats` times."""
    rng = random.Random(1)
    values = [rng.randbytes(value_bytes // 2) * 2 for _ in range(1_000)]
    keys = max(total_bytes // (value_bytes + 20) // repeats, 1)
    written = 0
    while written < total_bytes:
        builder = BatchBuilder(BATCH_BYTES, compression)
        while builder.append(b"key-%012d" % rng.randrange(keys), rng.choice(values), (), 1_700_000_000_000):
            pass
        written += builder.size
        log.append_as_leader(builder.build(), 0, 1_700_000_000_000)
    log.update_high_watermark(log.log_end_offset)


def config_for(total_bytes: int) -> LogConfig:
    """Return the configuration of a log of that size."""
    size = total_bytes // SEGMENTS
    return LogConfig(cleanup_policy=("compact",), segment_bytes=size, min_cleanable_dirty_ratio=0.01)


def compact_ours(data: Path, config: LogConfig) -> tuple[float, float, int]:
    """(processor seconds, seconds, bytes kept) of our cleaner on the log in a data directory."""
    manager = LogManager([data])
    manager.open(1, "bench-compaction-id---")
    manager.load(lambda topic: config)
    log = manager.logs["table", 0]
    log.update_high_watermark(log.log_end_offset)
    cleaner = LogCleaner(manager)
    begun, used = time.monotonic(), time.process_time()
    assert cleaner.clean_dirtiest()
    seconds, cpu = time.monotonic() - begun, time.process_time() - used
    kept = sum(segment.size for segment in log.segments[:-1])
    manager.shutdown()
    return cpu, seconds, kept


def compact_kafka(data: Path, config: LogConfig, jars: str) -> tuple[float, float, int]:
    """The same of Kafka's cleaner; the start of its process does not count, its compiler and collector do."""
    command = ["java", "-Xmx1g", "-cp", jars, str(PROGRAM), str(data), str(config.segment_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    cpu, seconds, kept = done.stdout.split()[-3:]
    return float(cpu), float(seconds), int(kept)


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench compaction", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="shrink the logs")
    total_bytes = int(TOTAL_BYTES * parser.parse_args(arguments).scale)
    config = config_for(total_bytes)
    console = Console(width=None if os.isatty(1) else 120)
    jars = kafka_jars() if kafka_is_there() else None
    table = Table(title="Compaction: MB of log per second of processor time", title_justify="left")
    for heading in ("log", "Kafka 3.9.2", "kbroker", "kbroker / Kafka", "kept MB (both)", "MB/s by the clock"):
        table.add_column(heading, justify="left" if heading == "log" else "right")
    for name, value_bytes, repeats, compression in CASES:
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "data"
            manager = LogManager([data])
            manager.open(1, "bench-compaction-id---")
            manager.load()
            log = manager.create("table", 0, bytes(range(16)), config)
            write(log, value_bytes, repeats, compression, total_bytes)
            size = sum(segment.size for segment in log.segments[:-1]) / 1e6
            manager.shutdown()
            theirs = None
            if jars is not None:
                shutil.copytree(data, Path(folder) / "kafka")
                theirs = compact_kafka(Path(folder) / "kafka", config, jars)
            cpu, seconds, kept = compact_ours(data, config)
        row = [name, "", f"{size / cpu:,.0f}", "", f"{kept / 1e6:,.0f}", f"{size / seconds:,.0f}"]
        if theirs is not None:
            row[1], row[3] = f"{size / theirs[0]:,.0f}", f"{theirs[0] / cpu:.1f}"
            row[4] += f" / {theirs[2] / 1e6:,.0f}"
            row[5] += f" (Kafka {size / theirs[1]:,.0f})"
        table.add_row(*row)
    console.print(table)
