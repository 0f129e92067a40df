"""What `from kbroker import …` gives, at run time and to a type checker."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import kbroker
from kbroker import AclOperation, aio
from kbroker.client import errors

ROOT = Path(__file__).parents[2]
USER = """
from kbroker import Consumer, Delivery, Producer, Record, TopicPartition, MAX_TIMESTAMP
from kbroker import Admin, ClientError, DeliveryTimeout, KafkaError, NotEnoughReplicasError, OffsetAndMetadata, aio

from kbroker import AccessRule, AclOperation, AclResource

place: TopicPartition = TopicPartition("t", 0)
rule: AccessRule = AccessRule(AclResource.TOPIC, "t", "User:alice", AclOperation.READ)
number: int = MAX_TIMESTAMP
error_class: type[ClientError] = NotEnoughReplicasError


def send(producer: Producer) -> int:
    delivery: Delivery = producer.send("t", b"value", key=b"key")
    try:
        return delivery.result(60).offset
    except DeliveryTimeout as error:
        topic: str | None = error.topic
        print(topic, error.retriable)
    except KafkaError as error:
        print(error.code.name, error.retriable)
    return -1


def read(consumer: Consumer) -> list[bytes | None]:
    records: list[Record] = consumer.poll(1.0)
    return [record.value for record in records]


async def by_pairs_or_names(consumer: aio.Consumer, producer: aio.Producer, admin: aio.Admin) -> None:
    pairs = {("t", 0): 5}
    names = {TopicPartition("t", 0): 5}
    await consumer.commit(pairs)
    await consumer.commit(names)
    await consumer.commit({("t", 0): OffsetAndMetadata(5), ("t", 1): 7})
    await producer.send_offsets(pairs, "g")
    await producer.send_offsets(names, "g")
    await consumer.offsets_for_times(pairs)
    await consumer.offsets_for_times(names)
    await admin.list_offsets(pairs)
    await admin.list_offsets(pairs.keys())
    await admin.list_offsets([("t", 0)])
    await admin.list_offsets(names.keys())
    await admin.delete_records(pairs)
    await admin.alter_group_offsets("g", names)
    await admin.alter_group_offsets("g", pairs)
    await admin.reset_group_offsets("g", ["t"], "earliest")
    await admin.reset_group_offsets("g", [("t", 0)], "earliest")
    await admin.alter_reassignments({("t", 0): [1, 2], ("t", 1): None})


def blocking(consumer: Consumer, producer: Producer, admin: Admin) -> dict[TopicPartition, int]:
    pairs = {("t", 0): 5}
    names = {TopicPartition("t", 0): 5}
    consumer.commit(pairs)
    consumer.commit(names)
    consumer.commit_async(names)
    consumer.end_offsets(pairs)
    consumer.offsets_for_times(pairs)
    producer.send_offsets(names, "g")
    admin.alter_group_offsets("g", names)
    return admin.delete_records(pairs)


async def send_async(producer: aio.Producer) -> int:
    return (await producer.send_and_wait("t", b"x")).offset
"""


def test_every_public_name_can_be_imported() -> None:
    assert len(kbroker.__all__) > 170  # type: ignore[attr-defined]
    for name in kbroker.__all__:  # type: ignore[attr-defined]
        assert getattr(kbroker, name) is not None
        assert name in dir(kbroker)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        kbroker.Nothing  # type: ignore[attr-defined]  # noqa: B018


def test_every_error_that_clients_raise_is_public() -> None:
    kinds = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert {kind.__name__ for kind in kinds} <= set(kbroker.__all__)  # type: ignore[attr-defined]


def test_whoever_catches_kafka_error_catches_all_that_clients_raise() -> None:
    public = [getattr(kbroker, name) for name in kbroker.__all__]  # type: ignore[attr-defined]
    kinds = [each for each in public if isinstance(each, type) and issubclass(each, Exception)]
    assert len(kinds) > 100
    assert [kind for kind in kinds if not issubclass(kind, kbroker.KafkaError)] == []
    assert [
        (e.code.name, e.retriable) for e in (errors.NotConnected("x"), errors.TimedOut("x"), errors.WokenUp("x"))
    ] == [
        ("NETWORK_EXCEPTION", True),
        ("REQUEST_TIMED_OUT", True),
        ("UNKNOWN_SERVER_ERROR", False),
    ]


def test_what_public_values_are_made_of_is_public() -> None:
    """Who is to fill an AccessRule needs the names of its fields' types."""
    public = {name: getattr(kbroker, name) for name in kbroker.__all__}  # type: ignore[attr-defined]
    values = [each for each in public.values() if isinstance(each, type) and "__annotations__" in vars(each)]
    wanted = list(chain.from_iterable(get_type_hints(each).values() for each in values))
    for hint in wanted:
        wanted += get_args(hint)
        if isinstance(hint, type) and hint.__module__.startswith("kbroker."):
            assert public.get(hint.__name__) is hint
    assert AclOperation in wanted


def test_type_checkers_are_told_of_the_same_names() -> None:
    tree = ast.parse((ROOT / "kbroker" / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    imported = {
        (alias.name, node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name != "*"
    }
    assert imported | {(name, "kbroker.client.types") for name in ("EARLIEST", "LATEST", "MAX_TIMESTAMP")} == set(
        kbroker._MODULES.items()
    )
    stars = {node.module for node in block.body if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"}
    assert stars == set(kbroker._ALL_OF)


def test_importing_kbroker_loads_nothing_heavy() -> None:
    script = "import kbroker, sys; print([m for m in sys.modules if m.startswith(('kbroker.', 'asyncio', 'pyarrow'))])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
    assert aio.__all__ == ["Admin", "Consumer", "Producer"]


@pytest.mark.slow
def test_a_users_program_passes_a_strict_type_checker_and_its_typos_do_not(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program, typo = tmp_path / "program.py", tmp_path / "typo.py"
    everything = ", ".join(kbroker.__all__)  # type: ignore[attr-defined]
    program.write_text(f"from kbroker import (  # everything\n    {everything},\n)\n{USER}")
    typo.write_text("from kbroker import Producr\nfrom kbroker.aio import Admn\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "--cache-dir", str(tmp_path)]
    environment = os.environ | {"MYPYPATH": str(ROOT)}
    done = subprocess.run(
        [*command, str(program), str(typo)], capture_output=True, text=True, timeout=110, env=environment, check=False
    )
    lines = done.stdout.splitlines()
    assert [line for line in lines if "program.py" in line] == [], done.stdout + done.stderr
    assert sum("typo.py" in line and "has no attribute" in line for line in lines) == 2, done.stdout + done.stderr
