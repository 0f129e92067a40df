"""`kbroker zookeeper`: the embedded ZooKeeper by itself."""

import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

WATCH_SECONDS = 0.2


def zookeeper(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0: a free one.")] = 2181,
    data: Annotated[Path, typer.Option(help="Directory that keeps its data.")] = Path("kbroker-data/zookeeper"),
) -> None:
    """Run a ZooKeeper on this machine until Ctrl-C; it listens on loopback."""
    from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with EmbeddedZooKeeper(data, port) as server:
        print(f"ZooKeeper serves at {server.connect_string}, data in {server.data_dir}; Ctrl-C stops it", flush=True)
        while not stop.wait(WATCH_SECONDS):
            if not server.is_running:
                print(f"kbroker zookeeper: the server ended: see {server.log_file}", file=sys.stderr)
                raise typer.Exit(1)
