"""The process: who it is, its memory, files, threads, garbage collections, what it reads and writes.

Where dashboards made for Kafka ask for the JVM's numbers they get those of the process.
"""

from __future__ import annotations

import gc
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

from kbroker.metrics.exposition import Exposition
from kbroker.metrics.families import Section
from kbroker.metrics.sources import Sources

_declare = Section("Process")
INFO = _declare.gauge("kbroker_info", "1, with what this broker is.", "version", "cluster_id", "broker_id")
STATE = _declare.gauge(
    "kafka_server_kafkaserver_brokerstate",
    "1 starting, 2 recovering, 3 running, 6 handing its partitions over, 7 stopping.",
)
DISK_READ = _declare.gauge("kafka_server_kafkaserver_linux_disk_read_bytes", "Bytes read from disks since the start.")
DISK_WRITE = _declare.gauge(
    "kafka_server_kafkaserver_linux_disk_write_bytes", "Bytes written to disks since the start."
)
OPEN_FILES = _declare.gauge("process_open_fds", "Open files and connections.")
MOST_FILES = _declare.gauge("process_max_fds", "As many may be open.")
RESIDENT = _declare.gauge("process_resident_memory_bytes", "Resident memory.")
VIRTUAL = _declare.gauge("process_virtual_memory_bytes", "Virtual memory.")
CPU = _declare.counter("process_cpu_seconds_total", "Processor time.")
STARTED = _declare.gauge("process_start_time_seconds", "When the process started, in seconds since 1970.")
MEMORY_USED = _declare.gauge(
    "jvm_memory_used_bytes", "Resident memory, where dashboards look for a JVM's heap.", "area"
)
THREADS = _declare.gauge("jvm_threads_current", "Threads of the process.")
COLLECTIONS = _declare.summary(
    "jvm_gc_collection_seconds", "Garbage collections by generation, and the seconds they took.", "gc"
)
SCRAPE = _declare.gauge("kbroker_scrape_seconds", "How long it took to gather what is served here.")


class Collections:
    """Counts garbage collections while it is open."""

    def __init__(self) -> None:
        self.by_generation: dict[int, list[float]] = {}
        """Generation -> how many, and the seconds they took."""
        self._begun = 0.0
        gc.callbacks.append(self._note)

    def close(self) -> None:
        """Count no more."""
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._begun = time.perf_counter()
            return
        counted = self.by_generation.setdefault(info["generation"], [0, 0.0])
        counted[0] += 1
        counted[1] += time.perf_counter() - self._begun


def collect(sources: Sources, out: Exposition) -> None:
    """Add the process's numbers, as far as the system tells them."""
    from prometheus_client import process_collector

    services = sources.services
    out.add(INFO, 1, _version(), services.cluster_id, str(services.broker_id))
    out.add(STATE, int(sources.state()))
    found = {
        sample.name: sample.value
        for metric in process_collector.ProcessCollector(registry=None).collect()
        for sample in metric.samples
    }
    for family in (OPEN_FILES, MOST_FILES, RESIDENT, VIRTUAL, CPU, STARTED):
        if family.name in found:
            out.add(family, found[family.name])
    out.add(MEMORY_USED, found.get(RESIDENT.name, 0), "heap")
    out.add(THREADS, threading.active_count())
    for generation, (count, seconds) in (
        sorted(sources.collections.by_generation.items()) if sources.collections else ()
    ):
        lines = out.lines(COLLECTIONS)
        lines.append(f'{COLLECTIONS.name}_count{{gc="generation {generation}"}} {int(count)}')
        lines.append(f'{COLLECTIONS.name}_sum{{gc="generation {generation}"}} {seconds!r}')
    _disk_bytes(out)


def _disk_bytes(out: Exposition) -> None:
    try:
        text = Path(f"/proc/{os.getpid()}/io").read_text()
    except OSError:
        return
    for family, name in ((DISK_READ, "read_bytes"), (DISK_WRITE, "write_bytes")):
        match = re.search(rf"^{name}: (\d+)$", text, re.MULTILINE)
        if match:
            out.add(family, int(match[1]))


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("kbroker")
    except PackageNotFoundError:
        return "a checkout"
