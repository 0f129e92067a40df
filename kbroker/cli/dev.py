"""`kbroker dev`: ZooKeeper and brokers on this machine until Ctrl-C."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from kbroker.cli.options import Setting, parse_settings

ZOOKEEPER_HELP = (
    "HOST:PORT/chroot of a ZooKeeper that runs; or which to run: `embedded` (a real one, needs a JVM and PySpark's "
    "jars), `stand-in` (needs nothing, is there at once). Default: a real one where it can run, else the stand-in."
)


def dev(
    brokers: Annotated[int, typer.Option(min=1, max=100, help="Number of brokers; their ids start at 1.")] = 1,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the first broker, the others follow; 0: free ones.")
    ] = 9092,
    data: Annotated[Path, typer.Option(help="Directory that keeps all data.")] = Path("kbroker-data"),
    zookeeper: Annotated[str | None, typer.Option(help=ZOOKEEPER_HELP)] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="JSON file to write when every broker serves: addresses, ports, pids.")
    ] = None,
    metrics: Annotated[
        bool,
        typer.Option("--metrics", help="Serve metrics to Prometheus, on ports from 9404 on (free ones with --port 0)."),
    ] = False,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="With TLS, users with passwords and access rules; says how clients of all kinds get in.",
        ),
    ] = False,
    page: Annotated[
        bool, typer.Option("--page", help="Serve the web page on it at http://127.0.0.1:8080, with --allow-writes.")
    ] = False,
    setting: Setting = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that the start may take.")] = 60,
) -> None:
    """Run ZooKeeper and brokers on this machine, for development; Ctrl-C ends them in order.

    \b
    kbroker dev --brokers 3 --page
    """
    properties = parse_settings(setting)
    if page and secure:
        profile = data / "secure" / "admin" / "profile.toml"
        way = f"start it beside a --secure cluster as one of its users: kbroker --profile {profile} page"
        raise typer.BadParameter(way, param_hint="--page")
    if page:
        from kbroker.cli.page import check_libraries

        check_libraries()
    if properties:
        _tell_unknown_keys(properties)
    from kbroker.dev.cluster import DevCluster
    from kbroker.dev.run import run

    cluster = DevCluster(
        data,
        brokers=brokers,
        port=port,
        zookeeper=zookeeper,
        properties=properties,
        timeout=timeout,
        metrics=metrics,
        secure=secure,
    )
    companion = [sys.executable, "-m", "kbroker", "page", "--allow-writes"] if page else []
    raise typer.Exit(run(cluster, ready_file.absolute() if ready_file else None, companion))


def _tell_unknown_keys(properties: Mapping[str, str]) -> None:
    """Say here what else only the brokers' logs would: as with Kafka, such a key is no error."""
    import difflib

    from kbroker.config.broker_config import BROKER_KEYS, unknown_keys

    for name in unknown_keys(properties):
        nearest = difflib.get_close_matches(name, BROKER_KEYS, n=2)
        hint = f" (did you mean {' or '.join(nearest)}?)" if nearest else ""
        print(f"kbroker dev: {name} is no key of a broker and means nothing here{hint}", file=sys.stderr)
