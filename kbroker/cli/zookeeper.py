"""`kbroker zookeeper`: the embedded ZooKeeper, or the stand-in for one, by itself."""

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
    stand_in: Annotated[
        bool, typer.Option("--stand-in", help="A stand-in without a JVM, for development and tests only.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen on: no other than loopback is taken.")] = "127.0.0.1",
    sync: Annotated[
        bool, typer.Option("--sync", help="The stand-in writes everything to the disk before it acknowledges it.")
    ] = False,
) -> None:
    """Run a ZooKeeper on this machine until Ctrl-C; it listens on loopback.

    \b
    kbroker zookeeper --port 2181
    """
    from kbroker.cli.errors import CommandFailed
    from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper
    from kbroker.dev.stand_in_zookeeper import StandInZooKeeper
    from kbroker.stop_signals import stop_signals

    if sync and not stand_in:
        raise typer.BadParameter("--sync is for --stand-in")
    if not stand_in and host not in ("127.0.0.1", "localhost"):
        raise CommandFailed(f"the embedded ZooKeeper does not listen on {host}: it is for one machine")
    stop = threading.Event()
    for number in stop_signals():
        signal.signal(number, lambda *_: stop.set())
    server = StandInZooKeeper(data, port, sync=sync, host=host) if stand_in else EmbeddedZooKeeper(data, port)
    with server:
        name = "stand-in for ZooKeeper" if stand_in else "ZooKeeper"
        print(f"{name} serves at {server.connect_string}, data in {server.data_dir}; Ctrl-C stops it", flush=True)
        while not stop.wait(WATCH_SECONDS):
            if not server.is_running:
                print(f"kbroker zookeeper: the server ended: see {server.log_file}", file=sys.stderr)
                raise typer.Exit(1)
