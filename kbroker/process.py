"""A broker as a process: its log and open files, its signals, the file that says it is ready, its exit status.

`python -m kbroker.process server.properties [--set key=value]... [--ready-file FILE]` runs one in this process.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # what is loaded now stays: to look at all of it again and again would be a tenth of the start

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar

from kbroker.broker import Broker, StartError, StartInterrupted
from kbroker.config.broker_config import BrokerConfig, read_broker_config, read_properties
from kbroker.descriptors import raise_descriptor_limit
from kbroker.network.watchdog import Watchdog
from kbroker.protocol.config_def import ConfigError
from kbroker.replica import turns
from kbroker.stop_signals import StopRequests, stop_signals

log = logging.getLogger(__name__)

GC_THRESHOLDS = 5_000, 3, 1 << 30
"""Requests free what they make without the garbage collector's help: it may look less often than by default. It looks
at everything, which may take long, only when the loop has nothing long to do: `collect_now_and_then`."""
COLLECT_PAUSE_S = 60.0
LONGEST_COLLECT_PAUSE_S = 600.0


class OneLine(logging.Formatter):
    """Names that clients send may hold line ends and worse: an event stays one line, and nobody forges another."""

    CONTROLS: ClassVar = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
        code: f"\\u{code:04x}" for code in (0x2028, 0x2029)
    }

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Put together what is logged, without what a traceback adds."""
        record.message = record.message.translate(self.CONTROLS)
        return super().formatMessage(record)


def set_up_logging() -> None:
    """Log to standard error, one line per event, unless the process has its own logging."""
    if not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(OneLine("[%(asctime)s] %(levelname)s %(message)s (%(name)s)"))
        logging.basicConfig(level=logging.INFO, handlers=[handler])


def run(properties: Mapping[str, str], ready_file: Path | None = None) -> int:
    """Live as a broker until a signal stops it; return the exit status. A second signal ends the process at once."""
    gc.disable()
    set_up_logging()
    raise_descriptor_limit()
    try:
        config = read_broker_config(properties)
    except ConfigError as error:
        print(f"kbroker: {error}", file=sys.stderr)
        return 1
    try:
        watchdog = Watchdog()
        with asyncio.Runner(loop_factory=watchdog.new_loop) as runner:
            return runner.run(_live(config, ready_file, watchdog))
    except StartError as error:
        print(f"kbroker: {error}", file=sys.stderr)
        return 1


async def _live(config: BrokerConfig, ready_file: Path | None, watchdog: Watchdog) -> int:
    stop, requests = asyncio.Event(), StopRequests()
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, _on_signal, stop, requests, number)
    stopping = asyncio.create_task(stop.wait())
    broker = await _started(config, stopping, watchdog)
    if broker is None:
        return 0
    log.info("broker %d serves %s", broker.broker_id, ", ".join(broker.endpoints))
    if ready_file is not None:
        write_ready_file(ready_file, broker)
    gc.collect()
    gc.freeze()  # what a broker is made of stays
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
    collecting = asyncio.create_task(collect_now_and_then(gc.collect))
    failing = asyncio.create_task(broker.fatal.wait())
    await asyncio.wait({stopping, failing}, return_when=asyncio.FIRST_COMPLETED)
    failed = broker.fatal.is_set()
    for task in (stopping, failing, collecting):
        task.cancel()
    log.info("broker %d stops", broker.broker_id)
    await broker.stop(controlled=not failed)
    return 1 if failed else 0


async def collect_now_and_then(collect: Callable[[], object]) -> None:
    """Have all garbage collected about once a minute, when nobody waits for long work; at last in any case."""
    while True:
        await asyncio.sleep(COLLECT_PAUSE_S)
        latest = monotonic() + LONGEST_COLLECT_PAUSE_S - COLLECT_PAUSE_S
        while turns.is_long_work_under_way() and monotonic() < latest:  # noqa: ASYNC110
            await asyncio.sleep(COLLECT_PAUSE_S / 60)
        collect()


async def _started(config: BrokerConfig, stopping: asyncio.Task[Any], watchdog: Watchdog) -> Broker | None:
    """Start a broker, again as often as its session ends meanwhile; None when it is stopped first."""
    while True:
        broker = Broker(config, watchdog)
        starting = asyncio.create_task(broker.start())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return None
        try:
            starting.result()
        except StartInterrupted as error:
            log.warning("%s, and the broker was starting: starting again", error)
        else:
            return broker


def _on_signal(stop: asyncio.Event, requests: StopRequests, number: signal.Signals) -> None:
    if requests.add(number):
        log.warning("second %s: ending at once", number.name)
        os._exit(128 + number)
    stop.set()


def write_ready_file(path: Path, broker: Broker) -> None:
    """Write atomically what `kbroker dev` and tests need to know."""
    endpoint = broker.registration().endpoints[0]
    ready = {
        "id": broker.broker_id,
        "port": endpoint.port,
        "host": endpoint.host,
        "pid": os.getpid(),
        "log_dirs": [os.path.abspath(directory) for directory in broker.config.directories],
        "metrics": broker.metrics_addresses,
    }
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(ready))
    temporary.replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a broker from the command line, without the command line tool's libraries."""
    parser = argparse.ArgumentParser(prog="python -m kbroker.process", description="Run one broker.")
    parser.add_argument("properties", type=Path, help="server.properties with Kafka's broker keys")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="go before the file")
    parser.add_argument("--ready-file", type=Path, help="JSON file to write when the broker serves")
    options = parser.parse_args(arguments)
    try:
        properties = read_properties(options.properties)
    except (OSError, ConfigError) as error:
        print(f"kbroker: {error}", file=sys.stderr)
        return 1
    for setting in options.set:
        key, equals, value = setting.partition("=")
        if not equals:
            parser.error(f"--set {setting}: expected KEY=VALUE")
        properties[key.strip()] = value.strip()
    return run(properties, options.ready_file)


if __name__ == "__main__":
    sys.exit(main())
