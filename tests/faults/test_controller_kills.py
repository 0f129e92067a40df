"""A controller killed in the middle of creating and deleting topics and of reassignments, under load."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kazoo.exceptions import NoNodeError

from kbroker import Admin
from kbroker.protocol.errors import KafkaError
from tests.faults.cluster import BROKERS, TIMEOUT, FaultCluster, until
from tests.faults.load import Load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MANY = 12


@contextlib.contextmanager
def in_background(work: Callable[[], None]) -> Iterator[threading.Thread]:
    """Do it in a thread, and wait for its end."""
    thread = threading.Thread(target=work, name="admin")
    thread.start()
    try:
        yield thread
    finally:
        thread.join(2 * TIMEOUT)
        assert not thread.is_alive()


def attempt(cluster: FaultCluster, action: Callable[[Admin], object]) -> bool:
    """Ask once, and say whether it was acknowledged: then it has to last.

    The controller may die over it, and nobody knows then how far it came.
    """
    with contextlib.suppress(KafkaError, OSError), Admin(cluster.bootstrap, request_timeout_ms=3000) as admin:
        action(admin)
        return True
    return False


def kill_controller(cluster: FaultCluster) -> int:
    controller = cluster.controller()
    cluster.kill(controller)
    until(lambda: cluster.controller() not in (-1, controller), "another controller")
    return controller


def folders(cluster: FaultCluster, prefix: str) -> list[str]:
    """All partitions' folders of topics with that prefix, those on their way out too."""
    logs = (broker.log_dir for broker in cluster.brokers.values())
    return [path.name for log_dir in logs for path in log_dir.iterdir() if path.name.startswith(prefix)]


def test_topics_that_were_being_created_have_all_their_partitions_or_are_not_there(
    cluster: FaultCluster, topic_name: str
) -> None:
    cluster.create_topic(topic_name)
    names = [f"new-{number}-{topic_name}" for number in range(MANY)]
    acknowledged: list[str] = []

    def create() -> None:
        for name in names:
            if attempt(cluster, lambda admin, name=name: admin.create_topic(name, 3, 2, timeout_ms=5000)):  # type: ignore[misc]
                acknowledged.append(name)

    with Load(cluster, topic_name) as load:
        with in_background(create):
            until(lambda: cluster.kazoo.exists(f"/brokers/topics/{names[1]}"), "the second topic is there")
            kill_controller(cluster)
        cluster.mend()
        there = [name for name in names if cluster.kazoo.exists(f"/brokers/topics/{name}")]
        assert len(there) > MANY // 2
        assert acknowledged
        assert set(acknowledged) <= set(there)
        for name in there:
            until(lambda name=name: is_complete(cluster, name, 3), f"{name} is complete")  # type: ignore[misc]
        load.until_progress()
        load.finish_and_check()


def is_complete(cluster: FaultCluster, topic: str, partitions: int) -> bool:
    with contextlib.suppress(NoNodeError):
        return cluster.partitions(topic) == list(range(partitions)) and cluster.is_whole(topic)
    return False


def test_topics_that_were_being_deleted_are_gone_everywhere(cluster: FaultCluster, topic_name: str) -> None:
    cluster.create_topic(topic_name)
    names = [f"old-{number}-{topic_name}" for number in range(MANY)]
    with Admin(cluster.bootstrap) as admin:
        for name in names:
            admin.create_topic(name, 2, 3)
    until(lambda: len(folders(cluster, "old-")) == MANY * 2 * 3, "all folders are there")
    acknowledged: list[bool] = []

    def delete() -> None:
        acknowledged.append(attempt(cluster, lambda admin: admin.delete_topics(names, timeout_ms=5000)))

    with Load(cluster, topic_name) as load:
        with in_background(delete):
            until(lambda: cluster.kazoo.get_children("/admin/delete_topics"), "the deletion begins")
            kill_controller(cluster)
        # One of the three is away: nothing may be forgotten that it has still to delete.
        time.sleep(0.5)
        cluster.mend()

        def are_gone() -> bool:
            """What nobody has acknowledged and the dead controller was not told of is asked for again."""
            left = set(names) & set(cluster.kazoo.get_children("/brokers/topics"))
            for name in () if acknowledged[0] else left - set(cluster.kazoo.get_children("/admin/delete_topics")):
                attempt(cluster, lambda admin, name=name: admin.delete_topic(name))  # type: ignore[misc]
            return not left

        until(are_gone, "topics are gone")
        until(lambda: not cluster.kazoo.get_children("/admin/delete_topics"), "nothing is left to delete")
        until(
            lambda: not [name for name in folders(cluster, "old-") if not name.endswith("-delete")], "folders are gone"
        )
        load.until_progress()
        load.finish_and_check()


def test_a_reassignment_under_load_ends_under_the_next_controller(cluster: FaultCluster, topic_name: str) -> None:
    controller = cluster.controller()
    first, second = (broker for broker in BROKERS if broker != controller)
    with Admin(cluster.bootstrap) as admin:
        assignments = {p: [first, controller] for p in range(4)}
        admin.create_topic(topic_name, assignments=assignments)
    cluster.until_whole(topic_name)
    with Load(cluster, topic_name) as load:
        targets = {(topic_name, p): [second, first] for p in range(4)}
        acknowledged: list[bool] = []
        with in_background(
            lambda: acknowledged.append(attempt(cluster, lambda admin: admin.alter_reassignments(targets)))
        ):
            until(lambda: second in cluster.replicas(topic_name), "the reassignment begins")
            cluster.kill(controller)
        until(lambda: cluster.controller() not in (-1, controller), "another controller")
        cluster.mend()
        # What nobody acknowledged and the dead controller had not written down is asked for again.
        rest = {(topic_name, p): [second, first] for p in range(4) if second not in cluster.replicas(topic_name, p)}
        assert not (acknowledged[0] and rest)
        until(lambda: not rest or attempt(cluster, lambda admin: admin.alter_reassignments(rest)), "it is taken up")
        for partition in range(4):
            until(
                lambda p=partition: cluster.replicas(topic_name, p) == (second, first),  # type: ignore[misc]
                f"partition {partition} is where it was to go",
            )
        cluster.until_whole(topic_name)
        load.until_progress()
        load.finish_and_check()
