"""The producers of a Python worker: lent to one task after the other, so that tasks need no producer ids of their own.

A producer id is state in every partition it has written to, on every broker, for a day. Spark uses its workers again, a
handful for each executor, for all the tasks of a stream. Whoever borrows waits for all it has sent; a task that fails
leaves records behind whose fate is not known, so its producer is closed and the next task gets a new one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kbroker.spark_connector.options import OptionError
from kbroker.spark_connector.write_options import WriteOptions

if TYPE_CHECKING:
    from kbroker import Producer

KEPT = 4
"""Producers of different options that a worker keeps."""
PRODUCERS: dict[tuple[object, ...], Producer] = {}
"""By process and options, used last at the end; those that are lent are not in it."""


@contextmanager
def borrowed(options: WriteOptions) -> Iterator[Producer]:
    """Lend a producer with the client's options; raises OptionError where one of them is wrong."""
    key = (os.getpid(), options.bootstrap, *sorted(options.client.items()))
    producer = PRODUCERS.pop(key, None) or new_producer(options)
    try:
        yield producer
    except BaseException:
        producer.close()
        raise
    surplus = PRODUCERS.pop(key, None)  # of another who borrowed meanwhile
    PRODUCERS[key] = producer
    if surplus is not None:
        surplus.close()
    while len(PRODUCERS) > KEPT:
        PRODUCERS.pop(next(iter(PRODUCERS))).close()


def close_all() -> None:
    """Close those that are not lent."""
    while PRODUCERS:
        PRODUCERS.popitem()[1].close()


def new_producer(options: WriteOptions, **more: object) -> Producer:
    """Return a producer with the client's options and `more`; raises OptionError where one of them is wrong."""
    from kbroker import Producer
    from kbroker.client.client_config import ProducerConfig

    try:
        given = ProducerConfig.read(
            {"bootstrap": options.bootstrap, "client_id": "kbroker-spark", **options.client, **more}
        )
        arguments = {name: getattr(given, name) for name in given.__dataclass_fields__ if name != "bootstrap"}
        return Producer(options.bootstrap, **arguments)
    except ValueError as error:
        raise OptionError(f"one of the options kafka.* is wrong: {error}") from error
