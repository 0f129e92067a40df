"""Which ZooKeeper a development cluster runs: a real one in a JVM, the stand-in without one, or one of the user's.

By itself it is a real one where its jars and a JVM are there, else the stand-in; a folder keeps the kind it began with.
"""

from __future__ import annotations

from pathlib import Path

from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper, EmbeddedZooKeeperError, find_jars
from kbroker.dev.java import JavaNotFound, find_java
from kbroker.dev.stand_in_zookeeper import StandInZooKeeper

STAND_IN = "stand-in"
EMBEDDED = "embedded"
KINDS = (STAND_IN, EMBEDDED)
"""What may be given in place of a connect string."""

OwnZooKeeper = EmbeddedZooKeeper | StandInZooKeeper


def own_zookeeper(data_dir: Path, wanted: str | None = None, port: int = 0) -> OwnZooKeeper:
    """Return the ZooKeeper of that kind (one of KINDS) for the folder, not started; None: the one that suits."""
    kind = wanted or _kind_of(data_dir) or (EMBEDDED if can_run_embedded() else STAND_IN)
    return StandInZooKeeper(data_dir, port) if kind == STAND_IN else EmbeddedZooKeeper(data_dir, port)


def _kind_of(data_dir: Path) -> str | None:
    """Which kind has left its data there."""
    for folder, kind in (("stand-in", STAND_IN), ("version-2", EMBEDDED)):
        if (data_dir / folder).exists():
            return kind
    return None


def can_run_embedded() -> bool:
    """Whether the jars and a JVM are there."""
    try:
        find_jars()
        find_java()
    except (EmbeddedZooKeeperError, JavaNotFound):
        return False
    return True
