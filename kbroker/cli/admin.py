"""What the commands about topics, settings and the cluster do with an Admin client."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

import typer

from kbroker.cli.profiles import chosen_bootstrap, settings_for
from kbroker.client.admin import Admin
from kbroker.client.settings import setting_name
from kbroker.client.types import EARLIEST, LATEST, PartitionDescription, ResourceType, TopicPartition

T = TypeVar("T")
REQUEST_TIMEOUT_MS = 10_000
CHANGE_TIMEOUT_MS = 30_000
"""Of a change that the controller makes: a question is asked again sooner than many topics are made."""
CONNECT_TIMEOUT_MS = 5_000
"""Who takes a connection and then says nothing for so long is taken for no broker."""


def with_admin(bootstrap: str, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Run the work on a connected Admin and return its value."""

    async def run() -> T:
        async with Admin(chosen_bootstrap(bootstrap), **admin_settings()) as admin:
            return await work(admin)

    return asyncio.run(run())


def admin_settings() -> dict[str, Any]:
    """Return what such an Admin is told, but for the brokers; a request timeout that is chosen is for changes, too."""
    chosen = settings_for("admin")
    own: dict[str, Any] = {"client_id": "kbroker-cli", "connect_timeout_ms": CONNECT_TIMEOUT_MS}
    if "request_timeout_ms" not in map(setting_name, chosen):
        own |= {"request_timeout_ms": REQUEST_TIMEOUT_MS, "default_api_timeout_ms": CHANGE_TIMEOUT_MS}
    return {**own, **chosen}


def check_reach(bootstrap: str) -> None:
    """Raise at once what a client that goes on trying would say after a minute: that no broker is there."""
    with_admin(bootstrap, lambda admin: admin.cluster.any_connection())


async def partitions_of(admin: Admin, texts: Sequence[str]) -> list[TopicPartition]:
    """Read TOPIC (all its partitions) or TOPIC:0,3."""
    chosen: list[TopicPartition] = []
    for text in texts:
        name, colon, numbers = text.partition(":")
        indexes = [part.strip() for part in numbers.split(",")]
        if colon and not all(part.isdigit() for part in indexes):
            raise typer.BadParameter(f"{text!r} is not TOPIC or TOPIC:0,1", param_hint="--topic")
        if colon:
            chosen += [TopicPartition(name, int(part)) for part in indexes]
        else:
            described = (await admin.describe_topics([name]))[name]
            chosen += [TopicPartition(name, each.partition) for each in described.partitions]
    return sorted(set(chosen))


async def topic_rows(admin: Admin, include_internal: bool) -> list[dict[str, Any]]:
    """One row for each topic."""
    topics = await admin.describe_topics()
    return [
        {
            "topic": name,
            "partitions": len(topic.partitions),
            "replicas": max((len(partition.replicas) for partition in topic.partitions), default=0),
        }
        for name, topic in topics.items()
        if include_internal or not topic.is_internal
    ]


async def partition_rows(
    admin: Admin, names: Sequence[str] | None, states: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """One row for each partition (in one of the `states`); offsets are None where no leader can be asked."""
    topics = await admin.describe_topics(names)
    partitions = [
        (TopicPartition(name, partition.partition), partition)
        for name, topic in topics.items()
        if names is not None or states is not None or not topic.is_internal
        for partition in topic.partitions
        if states is None or partition_state(partition) in states
    ]
    led = [key for key, partition in partitions if partition.leader is not None]
    first = await admin.list_offsets(dict.fromkeys(led, EARLIEST)) if led else {}
    last = await admin.list_offsets(dict.fromkeys(led, LATEST)) if led else {}
    return [
        {
            "topic": key.topic,
            "partition": key.partition,
            "leader": partition.leader,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            "start_offset": first[key].offset if key in first else None,
            "end_offset": last[key].offset if key in last else None,
            "state": partition_state(partition),
        }
        for key, partition in partitions
    ]


def partition_state(partition: PartitionDescription) -> str:
    """Say in a word how a partition is."""
    if partition.leader is None:
        return "offline"
    return "ok" if len(partition.isr) == len(partition.replicas) else "under-replicated"


async def config_rows(
    admin: Admin, resource: ResourceType, names: Sequence[str], include_defaults: bool
) -> list[dict[str, Any]]:
    """One row for each key of each resource; without defaults only what somebody set."""
    described = await admin.describe_configs(resource, names)
    return [
        {
            "name": name,
            "key": entry.name,
            "value": entry.value,
            "source": entry.source.lower(),
            "read_only": entry.is_read_only,
        }
        for name, entries in described.items()
        for entry in sorted(entries.values(), key=lambda entry: entry.name)
        if include_defaults or not entry.is_default
    ]


async def changed_configs(admin: Admin, resource: ResourceType) -> list[dict[str, Any]]:
    """One row for each topic, or broker, with the number of keys that somebody set on it."""
    if resource is ResourceType.TOPIC:
        names = await admin.list_topics(include_internal=True)
    else:
        names = [str(broker.id) for broker in (await admin.describe_cluster()).brokers]
    described = await admin.describe_configs(resource, names) if names else {}
    own = f"DYNAMIC_{resource.name}_CONFIG"
    return [
        {"name": name, "changed_keys": sum(entry.source == own for entry in entries.values())}
        for name, entries in described.items()
    ]
