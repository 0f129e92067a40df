"""What a broker reads and writes in ZooKeeper: its registration, ids, topics, configurations, notifications.

The operations are those of Kafka's KafkaZkClient and AdminZkClient; znodes.py draws the nodes. `BrokerStore` is a
part of `ZooKeeper` (zookeeper.py) and asks nothing of it but `Znodes`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kbroker.controller import znodes
from kbroker.controller.change_notifications import ChangeNotifications
from kbroker.controller.multi_codec import BYTES_PER_MULTI, encoded_size
from kbroker.controller.znode_operations import (
    BadVersion,
    BrokerIdTaken,
    Check,
    ControllerMoved,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotAllowed,
    NotEmpty,
    Operation,
    SetData,
    Stat,
    TooLarge,
    Znodes,
    ZooKeeperError,
    failure,
)
from kbroker.controller.znodes import (
    BrokerRegistration,
    ControllerNode,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
)

log = logging.getLogger(__name__)

_BROKER_ID = re.compile("[0-9]{1,10}")
"""Nobody else's nodes are to be there; one that is must not keep the cluster without a controller."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created, everything decided: id (16 bytes), replicas per partition, overrides."""

    name: str
    topic_id: bytes
    assignment: dict[int, list[int]]
    config: dict[str, str]


ConfigChange = Callable[[dict[str, str]], Awaitable[dict[str, str]]]
"""Makes an entity's new overrides of the present ones, which are its own to change."""
DECODED_AT_ONCE = 1 << 16
"""Bytes of topics' nodes that are decoded in one turn of the event loop, each of them counted as SMALL_NODE more."""
SMALL_NODE = 1 << 9

MOST_CHANGE_ATTEMPTS = 30
LONGEST_PAUSE_S = 0.1
"""Between two attempts."""


def _replacement(path: str, data: bytes | None, version: int | None) -> list[Operation]:
    """Replace a node that has this version (None: there is none) by this data (None: by nothing)."""
    if version is None:
        return [] if data is None else [Create(path, data)]
    return [Delete(path, version)] if data is None else [SetData(path, data, version)]


class BrokerStore(Znodes):
    """The broker's side of ZooKeeper."""

    def __init__(self) -> None:
        self._own_sessions: set[int] = set()
        """Those by which we were registered, and a dead process that was this broker before us."""

    # --- start-up ---

    async def ensure_top_level_paths(self) -> None:
        """Make the directories every broker makes, with null data."""
        await asyncio.gather(*map(self._create_if_missing, znodes.TOP_LEVEL_PATHS))

    async def _create_if_missing(self, path: str) -> None:
        if await self.exists(path) is None:
            try:
                await self.create_recursive(path, None)
            except NodeExists:
                return

    async def read_cluster_id(self) -> str | None:
        """The cluster's id, None before the first broker."""
        try:
            data, _ = await self.get(znodes.CLUSTER_ID)
        except NoNode:
            return None
        return znodes.decode_cluster_id(data)

    async def cluster_id(self, proposed: str) -> str:
        """The cluster's id: the one there, else `proposed` (22 characters), which is then everybody's."""
        known = await self.read_cluster_id()
        if known is not None:
            return known
        try:
            await self.create_recursive(znodes.CLUSTER_ID, znodes.encode_cluster_id(proposed))
        except NodeExists:
            data, _ = await self.get(znodes.CLUSTER_ID)
            return znodes.decode_cluster_id(data)
        return proposed

    async def generate_broker_id(self, reserved_max: int = 1000) -> int:
        """A broker id that nobody had: the next version of /brokers/seqid, above the reserved ones."""
        try:
            stat = await self.set(znodes.BROKER_SEQUENCE, b"")
        except NoNode:
            await self._create_if_missing(znodes.BROKER_SEQUENCE)
            stat = await self.set(znodes.BROKER_SEQUENCE, b"")
        return stat.version + reserved_max

    # --- registration ---

    async def end_former_life(self, broker_id: int, sessions: Collection[int]) -> None:
        """Remove what processes have left that were this broker and are dead, by their sessions: else it would stay
        until those expire.
        """
        if not sessions:
            return
        try:
            _, epoch = await self.get(znodes.CONTROLLER_EPOCH)  # first: each election changes it
            for path in (znodes.broker_path(broker_id), znodes.CONTROLLER):
                stat = await self.exists(path)
                if stat is not None and stat.ephemeral_owner in sessions:
                    log.info("%s is of a process that is dead: it goes", path)
                    # Should that session expire just now, and somebody else who has this id register meanwhile, his
                    # registration goes: ZooKeeper checks no owner. Two with one id are refused everywhere else.
                    outcomes = await self.multi([Check(znodes.CONTROLLER_EPOCH, epoch.version), Delete(path)])
                    failed = failure(outcomes)
                    if failed is not None and not isinstance(failed[1], BadVersion | NoNode):
                        raise failed[1]
        except (NoNode, NotAllowed) as error:
            log.info("what a process has left that is dead stays until its session expires: %s", error)
        else:
            self._own_sessions.update(sessions)

    async def register_broker(self, broker: BrokerRegistration, *, wait_ms: int = 0) -> int:
        """Make /brokers/ids/<id> (ephemeral) and return the broker epoch, its czxid.

        A node of our present session is kept, one of our previous session replaced. Raises BrokerIdTaken when
        another live broker has the id, at once or after waiting: a broker that was killed and is started again may
        find its old node, until its old session expires.
        """
        deadline = time.monotonic() + wait_ms / 1000
        is_waiting = False
        while True:
            try:
                return await self._register_broker(broker)
            except BrokerIdTaken as error:
                if time.monotonic() >= deadline:
                    raise
                if not is_waiting:
                    is_waiting = True
                    log.info("%s: waiting up to %g s for that", error, wait_ms / 1000)
                await asyncio.sleep(0.1)

    async def _register_broker(self, broker: BrokerRegistration) -> int:
        path = znodes.broker_path(broker.broker_id)
        data = znodes.encode_broker(broker)
        while True:
            outcomes = await self.multi([Create(path, None, ephemeral=True), SetData(path, data, 0)])
            failed = failure(outcomes)
            if failed is None:
                assert isinstance(outcomes[1], Stat)
                epoch = outcomes[1].czxid
                break
            if not isinstance(failed[1], NodeExists):
                raise failed[1]
            found = await self._found_registration(path, broker.broker_id)
            if found is not None:
                epoch = found
                break
        self._own_sessions.add(self.session_id)
        return epoch

    async def _found_registration(self, path: str, broker_id: int) -> int | None:
        """The epoch of the node that is there when it is ours; None when one should try again."""
        stat = await self.exists(path)
        if stat is None:
            return None
        if stat.ephemeral_owner == self.session_id:
            return stat.czxid
        if stat.ephemeral_owner in self._own_sessions:
            with contextlib.suppress(NoNode):
                await self.delete(path)
            return None
        raise BrokerIdTaken(
            f"broker id {broker_id} is in use: {path} belongs to another session (0x{stat.ephemeral_owner:x}). "
            f"Stop the other broker, choose another broker.id, or wait for its session to expire"
        )

    async def registered_epoch(self, broker_id: int) -> int | None:
        """The epoch under which a broker is registered now; None when it is not."""
        stat = await self.exists(znodes.broker_path(broker_id))
        return None if stat is None else stat.czxid

    async def update_broker(self, broker: BrokerRegistration) -> None:
        """Change our registration's data (listeners); the epoch stays."""
        await self.set(znodes.broker_path(broker.broker_id), znodes.encode_broker(broker))

    async def brokers(self, *, watch: bool = False) -> dict[int, BrokerRegistration]:
        """All live brokers with their epochs; with `watch` both the list and each broker's data are watched."""
        names = await self.children(znodes.BROKER_IDS, watch=watch)
        ids = sorted(int(name) for name in names if _BROKER_ID.fullmatch(name) and int(name) < 1 << 31)
        found = await self.get_many([znodes.broker_path(broker_id) for broker_id in ids], watch=watch)
        brokers = {}
        for broker_id, node in zip(ids, found, strict=True):
            if node is not None:
                try:
                    brokers[broker_id] = znodes.decode_broker(broker_id, node[0], node[1].czxid)
                except znodes.MalformedZnode as error:
                    log.error("broker %d left out: %s", broker_id, error)
        return brokers

    async def read_controller(self, *, watch: bool = False) -> ControllerNode | None:
        """Who is the controller, None when nobody is."""
        try:
            data, stat = await self.get(znodes.CONTROLLER, watch=watch)
        except NoNode:
            if watch and await self.exists(znodes.CONTROLLER, watch=True) is not None:
                return await self.read_controller(watch=watch)
            return None
        return znodes.decode_controller(data, stat.version)

    # --- topics ---

    async def topic_names(self, *, watch: bool = False) -> list[str]:
        """All topics, those being deleted too."""
        return await self.children(znodes.TOPICS, watch=watch)

    async def topic_exists(self, topic: str) -> bool:
        """Whether the topic's node is there."""
        return await self.exists(znodes.topic_path(topic)) is not None

    async def read_topics(
        self, names: Iterable[str] | None = None, *, watch: bool = False
    ) -> dict[str, TopicAssignment]:
        """Assignments of the named topics (of all: None); topics that are not there are left out."""
        wanted = list(names) if names is not None else await self.topic_names()
        found = await self.get_many([znodes.topic_path(name) for name in wanted], watch=watch)
        topics = {}
        decoded = 0
        for name, node in zip(wanted, found, strict=True):
            if node is None:
                continue
            decoded += SMALL_NODE + len(node[0] or b"")
            if decoded > DECODED_AT_ONCE:
                decoded = 0
                await asyncio.sleep(0)
            try:
                topics[name] = znodes.decode_topic(name, node[0], node[1].version)
            except znodes.MalformedZnode as error:
                log.error("topic %.250s left out: %s", name, error)
        return topics

    async def create_topics(self, topics: Sequence[NewTopic]) -> dict[str, ZooKeeperError | None]:
        """Make topics: first the configuration, then the assignment, which wakes the controller.

        Gives per topic None, TooLarge, or NodeExists when there is one of that name (its configuration is then left
        alone only if it existed before the call: Kafka writes it first, too).
        """
        results: dict[str, ZooKeeperError | None] = {}
        chunk: list[NewTopic] = []
        operations: list[Operation] = []
        size = 0
        for topic in topics:
            creation = self._creation(topic)
            await asyncio.sleep(0)  # a large topic takes some milliseconds to be put into words
            needed = sum(map(encoded_size, creation))
            if chunk and size + needed > BYTES_PER_MULTI:
                results.update(await self._create_at_once(chunk, operations))
                chunk, operations, size = [], [], 0
            chunk.append(topic)
            operations += creation
            size += needed
        if chunk:
            results.update(await self._create_at_once(chunk, operations))
        return results

    async def _create_at_once(
        self, topics: Sequence[NewTopic], operations: Sequence[Operation]
    ) -> dict[str, ZooKeeperError | None]:
        """One multi for all; when it fails, each topic for itself."""
        if len(topics) > 1 and failure(await self.multi(operations)) is None:
            return {topic.name: None for topic in topics}
        return {topic.name: await self._create_topic(topic) for topic in topics}

    @staticmethod
    def _creation(topic: NewTopic) -> list[Operation]:
        assignment = TopicAssignment(
            topic.topic_id, {number: ReplicaAssignment(tuple(each)) for number, each in topic.assignment.items()}
        )
        return [
            Create(znodes.config_path("topics", topic.name), znodes.encode_config(topic.config)),
            Create(znodes.topic_path(topic.name), znodes.encode_topic(assignment)),
        ]

    async def _create_topic(self, topic: NewTopic) -> ZooKeeperError | None:
        """Make one topic; a configuration left over from an earlier topic of the name is replaced."""
        create_config, create_topic = self._creation(topic)
        path = znodes.config_path("topics", topic.name)
        if await self.topic_exists(topic.name):
            known = (await self.read_topics([topic.name])).get(topic.name)
            is_ours = known is not None and known.topic_id == topic.topic_id  # the answer was lost
            return None if is_ours else NodeExists(znodes.topic_path(topic.name))
        try:
            failed = failure(await self.multi([create_config, create_topic]))
            if failed is not None and failed[0] == 0 and isinstance(failed[1], NodeExists):
                replace = SetData(path, znodes.encode_config(topic.config))
                failed = failure(await self.multi([replace, create_topic]))
        except TooLarge as error:
            return error
        return failed[1] if failed else None

    async def write_topic_assignment(self, topic: str, assignment: TopicAssignment) -> None:
        """Replace the whole assignment, if the node still has its version: how partitions are added.

        Raises NoNode, BadVersion.
        """
        try:
            await self.set(znodes.topic_path(topic), znodes.encode_topic(assignment), assignment.version)
        except BadVersion:
            known = await self.read_topics([topic])
            if known.get(topic) != assignment:  # else it was written, and the answer lost
                raise

    async def mark_topic_deleted(self, topic: str) -> None:
        """Ask the controller to delete the topic. Raises NoNode when there is none; marked twice is fine."""
        if not await self.topic_exists(topic):
            raise NoNode(znodes.topic_path(topic))
        try:
            await self.create_recursive(znodes.delete_topic_path(topic), None)
        except NodeExists:
            return

    async def topics_to_delete(self, *, watch: bool = False) -> set[str]:
        """Topics marked for deletion that are still there."""
        return set(await self.children(znodes.DELETE_TOPICS, watch=watch))

    # --- configurations ---

    async def read_config(self, entity_type: str, entity: str) -> dict[str, str]:
        """Overrides of one entity; none when it has no node."""
        path = znodes.config_path(entity_type, entity)
        try:
            data, _ = await self.get(path)
        except NoNode:
            return {}
        return znodes.decode_config(data, path)

    async def read_configs(self, entity_type: str, entities: Sequence[str]) -> dict[str, dict[str, str]]:
        """Overrides of many entities, in few round trips; an entity that cannot be read has none."""
        paths = [znodes.config_path(entity_type, entity) for entity in entities]
        configs = {}
        for entity, path, node in zip(entities, paths, await self.get_many(paths), strict=True):
            try:
                configs[entity] = znodes.decode_config(node[0], path) if node is not None else {}
            except znodes.MalformedZnode as error:
                log.error("overrides of %s %s left out: %s", entity_type, entity, error)
                configs[entity] = {}
        return configs

    async def config_entities(self, entity_type: str) -> list[str]:
        """All entities of a type that have a node, by their names in the path."""
        try:
            return await self.children(f"{znodes.CONFIG}/{entity_type}")
        except NoNode:
            return []

    async def clients_of_users(self) -> list[str]:
        """All entities `<user>/clients/<client>` that have a node, read in few round trips."""
        users = await self.config_entities("users")
        clients = await self.children_of_many([f"{znodes.CONFIG}/users/{user}/clients" for user in users])
        return [f"{user}/clients/{each}" for user, of_user in zip(users, clients, strict=True) for each in of_user]

    async def read_all_configs(self, entity_type: str) -> dict[str, dict[str, str]]:
        """Overrides of all entities of a type, by their names in the path."""
        return await self.read_configs(entity_type, await self.config_entities(entity_type))

    async def change_config(
        self, entity_type: str, entity: str, change: ConfigChange, *, needs_controller: bool = True
    ) -> dict[str, str]:
        """Change an entity's overrides and tell every broker, both or neither; returns what they are now.

        `change` makes the new ones of the present ones, and again when somebody else was faster: no change of others is
        lost. What it raises is raised. Raises ControllerMoved when there is no controller, unless none is needed, as
        before the first broker starts; BadVersion when others were faster all the time.
        """
        path = znodes.config_path(entity_type, entity)
        notification = znodes.encode_config_change(entity_type, entity)
        tell = Create(znodes.CONFIG_CHANGE_PREFIX, notification, sequential=True)
        wanted: bytes | None = None
        for attempt in range(MOST_CHANGE_ATTEMPTS):
            if attempt:
                await asyncio.sleep(LONGEST_PAUSE_S * random.random())
            data, version = await self._data_of(path)
            present = {} if data is None else znodes.decode_config(data, path)
            if attempt and data == wanted:
                return present  # it was written, and the answer lost
            after = await change(present)
            goes = not after and await self._goes_when_empty(entity_type, entity)
            wanted = None if goes else znodes.encode_config(after)
            if await self._is_carried_out([*_replacement(path, wanted, version), tell], path, needs_controller):
                return after
        raise BadVersion(path)

    async def _data_of(self, path: str) -> tuple[bytes | None, int | None]:
        """A node's data and version; version None where there is no node."""
        try:
            data, stat = await self.get(path)
        except NoNode:
            return None, None
        return data, stat.version

    async def _goes_when_empty(self, entity_type: str, entity: str) -> bool:
        """A user that has no overrides, and no clients with any, has no node."""
        if entity_type != "users" or "/" in entity:
            return False
        return not await self._has_children(znodes.config_path(entity_type, entity))

    async def _is_carried_out(self, write: Sequence[Operation], path: str, needs_controller: bool) -> bool:
        """Write under the controller's eyes; False when the node is not as it was read."""
        checks: list[Operation] = []
        if needs_controller:
            controller = await self.read_controller()
            if controller is None or controller.kraft_controller_epoch > 0:
                raise ControllerMoved("there is no ZooKeeper controller at this moment")
            checks.append(Check(znodes.CONTROLLER, controller.version))
        failed = failure(await self.multi([*checks, *write]))
        if failed is None:
            return True
        index, error = failed
        if index < len(checks):
            raise ControllerMoved("the controller changed during the write")
        if not isinstance(error, BadVersion | NodeExists | NoNode | NotEmpty):
            raise error
        if isinstance(error, NoNode):
            await self._create_if_missing(path.rpartition("/")[0])
        return False

    async def _has_children(self, path: str) -> bool:
        try:
            return bool(await self.children(path))
        except NoNode:
            return False

    async def watch_config_changes(self, callback: Callable[[str, str], Awaitable[None] | None]) -> None:
        """Call back with (type, entity) for every change from now on, and once for each still listed.

        Changes are told in order, one at a time, each once; those of before a lost connection too. The overrides
        are to be read anew then.
        """

        def tell(change: tuple[str, str]) -> Awaitable[None] | None:
            return callback(*change)

        await ChangeNotifications(self, znodes.CONFIG_CHANGES, znodes.decode_config_change, tell).watch()

    # --- small things ---

    async def next_producer_id_block(self, broker_id: int) -> ProducerIdBlock | None:
        """Take the next 1,000 producer ids for a broker; None when all 2^63 are gone."""
        while True:
            try:
                data, stat = await self.get(znodes.PRODUCER_ID_BLOCK)
            except NoNode:
                await self._create_if_missing(znodes.PRODUCER_ID_BLOCK)
                continue
            block = znodes.next_producer_id_block(broker_id, znodes.decode_producer_id_block(data))
            if block is None:
                return None
            try:
                await self.set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block), stat.version)
            except BadVersion:
                continue
            return block

    async def notify_log_dir_failure(self, broker_id: int) -> None:
        """Tell the controller that one of our log directories failed."""
        data = znodes.encode_log_dir_event(broker_id)
        await self.create(znodes.LOG_DIR_EVENT_PREFIX, data, sequential=True)

    async def read_feature(self, *, watch: bool = False) -> tuple[bytes | None, int] | None:
        """Data and version of /feature, None when it is missing."""
        if watch and await self.exists(znodes.FEATURE, watch=True) is None:
            return None
        try:
            data, stat = await self.get(znodes.FEATURE)
        except NoNode:
            return None
        return data, stat.version

    async def update_features(self, change: Callable[[dict[str, int]], Awaitable[Mapping[str, int]]]) -> None:
        """Replace the levels in /feature by what `change` makes of them; asks it again where somebody was faster."""
        while True:
            data, stat = await self.get(znodes.FEATURE)
            before = znodes.decode_feature(data)
            after = await change(before)
            if after == before:
                return
            try:
                await self.set(znodes.FEATURE, znodes.encode_feature(after), stat.version)
            except BadVersion:
                continue
            return
