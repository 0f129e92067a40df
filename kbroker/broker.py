"""One broker: its parts, built and introduced to each other, started and stopped in order.

start    ZooKeeper session · cluster id, broker id · dynamic configurations · logs recovered · ports bound
         · replica manager · registered in ZooKeeper · requests served · controller runs for election
         · first UpdateMetadata: ready
stop     controlled shutdown · requests end · ZooKeeper session closed, and with it the controller's term
         · replica manager · logs closed (clean-shutdown marker)
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
import uuid
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from kbroker import handlers
from kbroker.cluster.access_rules import AccessRules, open_access_rules
from kbroker.cluster.broker_channels import BrokerChannels
from kbroker.cluster.client_quotas import QuotaKeeper
from kbroker.cluster.cluster_features import ClusterFeatures
from kbroker.cluster.controlled_shutdown import hand_over
from kbroker.cluster.controller_channel import ControllerChannel
from kbroker.cluster.lost_logs import wait_until_left_out
from kbroker.cluster.metadata_cache import MetadataCache
from kbroker.cluster.peer_security import connection_setup, show_new_stores
from kbroker.cluster.producer_id_manager import ProducerIdManager
from kbroker.cluster.registration import check_endpoints_are_free, endpoints_of, registration_of
from kbroker.cluster.scram_users import USERS
from kbroker.cluster.stand_in_refusal import refuse_stand_in
from kbroker.cluster.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kbroker.cluster.transaction_verifier import TransactionVerifier
from kbroker.config.broker_config import BrokerConfig
from kbroker.config.dynamic_config import DynamicConfig
from kbroker.config.shares import controller_settings, settings_of, zookeeper_access
from kbroker.config.topic_defaults import topic_defaults
from kbroker.controller.runner import ControllerRunner
from kbroker.controller.znode_operations import BrokerIdTaken, NoNode, SessionExpired, ZooKeeperError
from kbroker.controller.znodes import BrokerRegistration, MalformedZnode
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.coordinator.group_coordinator import GroupCoordinator
from kbroker.coordinator.local_markers import LocalMarkers
from kbroker.coordinator.marker_sender import MarkerSender
from kbroker.coordinator.transaction_coordinator import TransactionCoordinator
from kbroker.handlers.context import Services
from kbroker.metrics.sources import BrokerState, Sources
from kbroker.network.dispatch import Dispatcher
from kbroker.network.limits import addresses_of, server_limits
from kbroker.network.listeners import Listeners
from kbroker.network.logins import Logins
from kbroker.network.server import Server
from kbroker.network.tls_listeners import renew
from kbroker.network.watchdog import Watchdog
from kbroker.protocol.config_def import ConfigError
from kbroker.protocol.messages.replication import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from kbroker.replica.log_care import LogCare
from kbroker.replica.replica_manager import ReplicaManager
from kbroker.replica.replication import Replication
from kbroker.replica.standstill import Standstill, proof
from kbroker.replica.turns import in_turns
from kbroker.replica.workers import Workers
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_manager import LogDirError, LogManager, LogManagerSettings

if TYPE_CHECKING:
    from kbroker.metrics.listener import MetricsListener

log = logging.getLogger(__name__)

DRAIN_S = 5.0
LEFT_OUT_S = 10.0
"""How long a broker that lost (parts of) logs waits for a controller to notice, once its old session is over."""
NOTE_S = 5.0
REGISTER_PAUSE_S = 1.0
TELL_S = 1.0
"""How long a controller that stops waits for brokers to hear its last orders."""
FIRST_METADATA_S = 60.0
FIRST_TOPICS_S = 5.0
"""How long a start waits to hear of the topics; and how long it takes until their absence is believed."""
LONGEST_SILENCE_S = 30.0
SLOW_CONNECT_S = 1.0
IN_FLIGHT_KEY = "zookeeper.max.in.flight.requests"
"""Counts only when it is set: with Kafka's default a start with many topics would take longer."""


class StartError(Exception):
    """The broker cannot start; the text is one clear line: what, where, what to do."""


class StartInterrupted(StartError):
    """The ZooKeeper session ended in the middle of the start, as when the process stood still: another start may do."""


class Broker:
    """A broker on the running loop.

    broker = Broker(read_broker_config(properties))
    await broker.start()        # raises StartError
    ...
    await broker.stop()
    """

    def __init__(self, config: BrokerConfig, watchdog: Watchdog | None = None) -> None:
        self.config = config
        self.broker_id = config.broker_id
        self.broker_epoch = -1
        self.cluster_id = ""
        self.state = BrokerState.NOT_RUNNING
        self.fatal = asyncio.Event()
        """Set when the broker cannot go on (all log directories lost, its id taken): whoever runs it stops it."""
        self.services: Services
        self.server: Server
        self.zookeeper: ZooKeeper
        self.logs: LogManager
        self._watchdog = watchdog
        self._metrics: MetricsListener | None = None
        self._controller: ControllerRunner | None = None
        self._replicas: ReplicaManager | None = None
        self._channels: BrokerChannels | None = None
        self._standstill: Standstill | None = None
        self._to_controller: ControllerChannel | None = None
        self._isr_channel: ControllerChannel | None = None
        """Of its own, so that changes of ISRs do not wait for a controlled shutdown."""
        self._verifier: TransactionVerifier | None = None
        self._producer_ids: ProducerIdManager | None = None
        self._rules: AccessRules | None = None
        self._features: ClusterFeatures
        self._groups: GroupCoordinator | None = None
        self._transactions: TransactionCoordinator | None = None
        self._logins: Logins | None = None
        self._listeners = Listeners()
        self._logs_open = False
        self._registered = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._workers = Workers(config.num_io_threads, config.background_threads)

    # -- start --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything and return when this broker knows itself from the controller.

        Raises StartError or StartInterrupted; all is closed then, and another Broker may be made.
        """
        self.state = BrokerState.STARTING
        try:
            await self._connect_to_zookeeper()
            await self._open_logs()
            await self._build()
            await self._serve()
            self.state = BrokerState.RUNNING
        except (ZooKeeperError, MalformedZnode, LogDirError, ConfigError, OSError) as error:
            await self.stop(controlled=False)
            kind = StartInterrupted if isinstance(error, SessionExpired) else StartError
            raise kind(str(error)) from error
        except BaseException:
            await self.stop(controlled=False)
            raise

    async def _connect_to_zookeeper(self) -> None:
        config = self.config
        timeout_ms = config.zookeeper_connection_timeout_ms or config.zookeeper_session_timeout_ms
        connect = config.zookeeper_connect or ""
        in_flight = config.zookeeper_max_in_flight_requests if IN_FLIGHT_KEY in config.properties else None
        self.zookeeper = ZooKeeper(
            connect, config.zookeeper_session_timeout_ms, timeout_ms, in_flight, zookeeper_access(config)
        )
        loop = asyncio.get_running_loop()
        text = "ZooKeeper at %s does not answer yet, retrying for up to %g s"
        patience = loop.call_later(SLOW_CONNECT_S, log.warning, text, connect, timeout_ms / 1000)
        try:
            await self.zookeeper.connect()
        finally:
            patience.cancel()
        refuse_stand_in(config, is_stand_in=await self.zookeeper.is_stand_in())
        await self.zookeeper.ensure_top_level_paths()
        self._rules = await open_access_rules(config, self.zookeeper)

    async def _open_logs(self) -> None:
        """Settle cluster id and broker id, lock the directories, recover the logs."""
        config = self.config
        proposed = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        self.cluster_id = await self.zookeeper.cluster_id(proposed)
        settings = settings_of(LogManagerSettings, config)
        self.logs = LogManager(config.directories, LogConfig(**topic_defaults(config)), settings)
        stored_cluster = self.logs.stored_cluster_id()
        if stored_cluster not in (None, self.cluster_id):
            raise StartError(
                f"the log directories {', '.join(config.directories)} belong to cluster {stored_cluster}, but "
                f"{config.zookeeper_connect} is cluster {self.cluster_id}: check zookeeper.connect and log.dirs"
            )
        self.broker_id = await self._settle_broker_id(self.logs.stored_broker_id())
        self.logs.open(self.broker_id, self.cluster_id)
        self._logs_open = True
        await self.zookeeper.end_former_life(self.broker_id, self.logs.former_sessions())
        self.configs = DynamicConfig(config, self.zookeeper, self.broker_id)
        self.configs.listeners = self._listeners
        await self.configs.load()
        self.config = self.configs.broker
        begun = time.monotonic()
        await asyncio.get_running_loop().run_in_executor(
            self._workers.upkeep, self.logs.load, self.configs.topic_config
        )
        log.info("opened %d logs in %.2f s", len(self.logs.logs), time.monotonic() - begun)

    async def _settle_broker_id(self, stored: int | None) -> int:
        configured = self.config.broker_id
        if configured >= 0:
            if stored not in (None, configured):
                raise StartError(
                    f"the log directories {', '.join(self.config.directories)} belong to broker {stored}, but "
                    f"broker.id is {configured}: correct broker.id, or use other log.dirs"
                )
            return configured
        if stored is not None:
            return stored
        return await self.zookeeper.generate_broker_id(self.config.reserved_broker_max_id)

    async def _build(self) -> None:
        """Make the parts and introduce them to each other; bind the ports."""
        config = self.config
        metadata = MetadataCache()
        metadata.introduced.clear()
        metadata.on_brokers_changed = lambda: self._spawn(self._look_at_brokers())
        listener = config.inter_broker_listener
        self._to_peers = connections = connection_setup(config, listener)
        self._to_control_planes = connection_setup(config, config.control_plane_listener_name or listener)
        self._channels = BrokerChannels(self.broker_id, config.controller_socket_timeout_ms, self._to_control_planes)
        self._controller = ControllerRunner(self.zookeeper, self.broker_id, self._channels, controller_settings(config))
        self._replicas = ReplicaManager(
            config,
            self.logs,
            metadata,
            self.broker_id,
            lambda: self.broker_epoch,
            self.configs.topic_config,
            on_log_dir_failure=self._on_log_dir_failure,
            workers=self._workers,
            connections=connections,
        )
        self._to_controller, self._isr_channel = (
            ControllerChannel(
                metadata, self.broker_id, listener, config.request_timeout_ms, self._controller.calls, connections
            )
            for _ in range(2)
        )
        self._replicas.replication = Replication(self._replicas, self._alter_partition)
        self._standstill = Standstill(config.zookeeper_session_timeout_ms / 2000, self._prove_leadership)
        self._replicas.is_leadership_unproven = self._standstill.is_unproven
        self._producer_ids = ProducerIdManager(self._allocate_producer_ids)
        self._groups = GroupCoordinator(config, self._replicas, self._workers.loading)
        self._features = ClusterFeatures(self.zookeeper)
        await self._features.begin()
        local = LocalMarkers(self._replicas, self._groups.transaction_ended, config.request_timeout_ms)
        markers = MarkerSender(self.broker_id, metadata, listener, local, config.request_timeout_ms, connections)
        replicas, features = self._replicas, self._features
        self._transactions = TransactionCoordinator(
            config, replicas, self._producer_ids, markers, features, self._workers.loading
        )
        self._verifier = self._replicas.verifier = TransactionVerifier(
            metadata, self.broker_id, listener, self._transactions.partition_for, config.request_timeout_ms, connections
        )
        self._verifier.here = self._transactions
        self._replicas.on_leadership_change = self._leadership_changed
        self._replicas.on_partitions_removed = self._groups.partitions_removed
        controller = self._controller
        self._logins = Logins(config, self.zookeeper, lambda: controller.is_active)
        self.services = Services(
            config=config,
            broker_id=self.broker_id,
            cluster_id=self.cluster_id,
            zookeeper=self.zookeeper,
            controller=self._controller,
            replicas=self._replicas,
            metadata=metadata,
            logs=self.logs,
            configs=self.configs,
            producer_ids=self._producer_ids,
            groups=self._groups,
            transactions=self._transactions,
            users=self._logins.users,
            tokens=self._logins.tokens,
            features=self._features,
            workers=self._workers,
            rules=self._rules,
        )
        await self._bind()

    async def _bind(self) -> None:
        config = self.config
        handlers.load_all()
        limits = server_limits(config)
        limits.per_ip_overrides = await addresses_of(config.per_ip_overrides)
        quotas = self.services.quotas = QuotaKeeper(config, self.zookeeper)
        await quotas.load(self.configs)
        dispatcher = Dispatcher(self.services, self._rules.authorizer if self._rules else None, quotas.quotas)
        self.server = Server(dispatcher, limits, quotas.ip_rates)
        assert self._logins is not None
        self.configs.follow(USERS, self._logins.users.refresh)
        await self._logins.start()
        await self._listeners.open(self.server, self._logins, config)
        sources = Sources(self.services, self.server, dispatcher, self._watchdog, lambda: self.state)
        if self.config.parsed_metrics_listeners:
            from kbroker.metrics.listener import serve_metrics  # loads an HTTP server

            self._metrics = serve_metrics(sources, self._to_peers)

    async def _partitions_of(self, topic: str) -> int | None:
        found = (await self.zookeeper.read_topics([topic])).get(topic)
        return None if found is None else len(found.partitions)

    async def _serve(self) -> None:
        """Register, serve, run for controller; wait until the controller has told us of ourselves."""
        assert self._replicas is not None
        assert self._controller is not None
        await self._replicas.start()
        self._replicas.care = LogCare(self._replicas)
        assert self._groups is not None
        self._groups.start(await self._partitions_of(OFFSETS_TOPIC))
        assert self._transactions is not None
        self._transactions.start(await self._partitions_of(TRANSACTIONS_TOPIC))
        self.configs.on_topic_change = self._topic_changed
        self.configs.on_broker_change = self._broker_changed
        self._listeners.check_endpoints = self._check_endpoints_are_free
        await self._check_endpoints_are_free(self.config)
        # A broker that was killed elsewhere, and is started here at once, finds its old registration until its old
        # session expires: ZooKeeper looks for such sessions once a tick, of 2 s or 3 s where nobody chose another.
        patience_ms = self.config.zookeeper_session_timeout_ms + 5_000
        left_out_s = patience_ms / 1000 + LEFT_OUT_S
        await wait_until_left_out(self.zookeeper, self.broker_id, lambda each: self.logs.has_whole(*each), left_out_s)
        await self._note_session()
        self.broker_epoch = await self.zookeeper.register_broker(self.registration(), wait_ms=patience_ms)
        self._registered = True
        await asyncio.get_running_loop().run_in_executor(None, self.logs.note_boot)
        self.zookeeper.on_session_established.append(lambda: self._spawn(self._register_again()))
        self.server.start()
        self._controller.on_new_controller.append(lambda: self._spawn(self._forget_gone_topics()))
        await self._controller.start()
        await self.configs.watch()
        metadata = self.services.metadata
        if not await metadata.wait_for(lambda cache: self.broker_id in cache.brokers, FIRST_METADATA_S):
            raise StartError(
                f"no controller has told this broker of the cluster within {FIRST_METADATA_S:g} s: check the log of "
                f"the controller's broker, and that it can reach {', '.join(self.endpoints)}"
            )
        if await self.zookeeper.topic_names():
            # A topic without any leader is never told of: so neither wait is without an end.
            self._spawn(metadata.hear_of_topics(LONGEST_SILENCE_S))
            await metadata.wait_for(lambda cache: bool(cache.topics), FIRST_TOPICS_S)
        else:
            metadata.introduced.set()
        await self._features.watch()

    # -- who we are ---------------------------------------------------------------------------------------------------

    @property
    def endpoints(self) -> list[str]:
        """Advertised listeners, as NAME://host:port."""
        return [str(endpoint) for endpoint in self.registration().endpoints]

    @property
    def metrics_addresses(self) -> list[str]:
        """Where its metrics are served, as http://host:port/metrics."""
        return [] if self._metrics is None else self._metrics.addresses

    def registration(self) -> BrokerRegistration:
        """Return what stands in this broker's znode."""
        return registration_of(self.config, self.broker_id, self.server.ports)

    async def _check_endpoints_are_free(self, config: BrokerConfig) -> None:
        await check_endpoints_are_free(self.zookeeper, self.broker_id, endpoints_of(config, self.server.ports))

    async def _note_session(self) -> None:
        """The next process of this broker is to know whose registration it finds; else it waits until that is over."""
        run, session = asyncio.get_running_loop().run_in_executor, self.zookeeper.session_id
        notes = [run(self._workers.tending(it), self.logs.note_session, session, it) for it in self.logs.live_dirs]
        if notes:  # a disk that hangs keeps no broker from its cluster, nor the others from noting it
            await asyncio.wait(notes, timeout=NOTE_S)

    # -- events -------------------------------------------------------------------------------------------------------

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("what an event asked for failed", exc_info=error)

    def _leadership_changed(self, elected: Sequence[tuple[str, int]], resigned: Sequence[tuple[str, int]]) -> None:
        self.services.groups.leadership_changed(elected, resigned)
        self.services.transactions.leadership_changed(elected, resigned)

    async def _register_again(self) -> None:
        """The old session took our registration with it: register anew, with a new epoch."""
        assert self._controller is not None
        try:
            self.broker_epoch, told = await self._register_at_last()
        except SessionExpired:
            return
        except BrokerIdTaken as error:
            log.critical("%s", error)
            self.fatal.set()
            return
        log.info("registered again as broker %d, epoch %d", self.broker_id, self.broker_epoch)
        self._controller.on_registered()
        self._spawn(self._note_session())  # no disk keeps a broker from being registered
        if told.endpoints != self.registration().endpoints:
            self._spawn(self._tell_endpoints())
        await self._forget_gone_topics()

    async def _register_at_last(self) -> tuple[int, BrokerRegistration]:
        """Try until it can be, for else nobody would know this broker. Raises SessionExpired, BrokerIdTaken."""
        while True:
            try:
                told = self.registration()
                return await self.zookeeper.register_broker(told), told
            except (SessionExpired, BrokerIdTaken):
                raise
            except ZooKeeperError as error:
                log.error("this broker cannot be registered again, trying on: %s", error)
                await asyncio.sleep(REGISTER_PAUSE_S)

    async def _tell_endpoints(self) -> None:
        """Clients are told other addresses from now on; a new session registers with them anyway."""
        while self._registered:
            try:
                await self.zookeeper.update_broker(self.registration())
            except (SessionExpired, NoNode):
                return
            except ZooKeeperError as error:
                log.error("the addresses of this broker cannot be changed in ZooKeeper, trying on: %s", error)
                await asyncio.sleep(REGISTER_PAUSE_S)
            else:
                log.info("broker %d serves %s", self.broker_id, ", ".join(self.endpoints))
                return

    async def _prove_leadership(self) -> None:
        """Return when ZooKeeper says that this broker is alive, or has its orders for the life it has begun."""
        replicas, before = self.services.replicas, self.broker_epoch
        await proof(
            lambda: self.zookeeper.registered_epoch(self.broker_id),
            lambda present: present == self.broker_epoch and present in (before, replicas.ordered_epoch),
        )

    async def _look_at_brokers(self) -> None:
        """A broker without the newer group protocol could not go on with its groups: then nobody may begin one."""
        try:
            brokers = await self.zookeeper.brokers()
        except ZooKeeperError as error:
            log.info("what the brokers support is not known: %s", error)
            return
        self._features.look_at(brokers.values())
        lacking = frozenset(each.broker_id for each in brokers.values() if "consumer" not in each.group_protocols)
        self.services.groups.brokers_without_newer_protocol = lacking

    async def _forget_gone_topics(self) -> None:
        """Topics whose deletion nobody told us of: we were away, or the controller that should have is dead."""
        assert self._replicas is not None
        known = set(self.services.metadata.topics)
        try:
            # The controller may have told us, once, of topics that the server we ask has not heard of yet.
            await self.zookeeper.sync()
            self._replicas.forget_topics(known.difference(await self.zookeeper.topic_names()))
        except ZooKeeperError as error:
            log.info("topics not compared with ZooKeeper: %s", error)

    def _on_log_dir_failure(self) -> None:
        if not self.logs.live_dirs:
            log.critical("all log directories are offline: this broker stops")
            self.fatal.set()
            return
        if self._registered:
            self._spawn(self.zookeeper.notify_log_dir_failure(self.broker_id))

    def _topic_changed(self, topic: str) -> None:
        assert self._replicas is not None
        assert self._controller is not None
        config = self.configs.topic_config(topic)
        self._replicas.apply_topic_config(topic, config)
        if self.configs.topic_overrides.get(topic, {}).get("unclean.leader.election.enable") == "true":
            self._controller.unclean_election_enabled(topic)

    def _broker_changed(self, before: BrokerConfig, after: BrokerConfig) -> None:
        """Dynamic broker settings changed: hand them to whoever holds a copy."""
        assert self._replicas is not None
        assert self._controller is not None
        self.config = self.services.config = self._replicas.config = after
        ports = self.server.ports
        if endpoints_of(before, ports) != endpoints_of(after, ports):
            self._spawn(self._tell_endpoints())
        if renew(self.server, after):
            for setup in (self._to_peers, self._to_control_planes):
                show_new_stores(setup, after)
        self._spawn(self._limit_clients(after))
        if self._replicas.care is not None:
            self._replicas.care.reconfigure(after)
        applied = in_turns(self._apply_topic_defaults())
        if applied is not None:
            self._spawn(applied)
        if after.num_replica_fetchers != before.num_replica_fetchers and self._replicas.replication is not None:
            self._spawn(self._replicas.replication.redistribute())
        self._workers.resize(after.num_io_threads, after.background_threads)
        self.logs.set_producer_expiration(after.producer_id_expiration_ms)
        self._controller.set_unclean_default(after.unclean_leader_election_enable)

    def _apply_topic_defaults(self) -> Generator[None, None, None]:
        """Give every log what its topic is configured to now; yields after each, for there may be very many."""
        assert self._replicas is not None
        for each in self.logs.table.all_logs():
            each.apply_config(self.configs.topic_config(each.topic))
            yield
        for hosted in list(self._replicas.hosted.values()):
            self._replicas.apply_config_of(hosted)
            yield

    async def _limit_clients(self, config: BrokerConfig) -> None:
        try:
            limits = server_limits(config)
            limits.per_ip_overrides = await addresses_of(config.per_ip_overrides)
        except (OSError, ConfigError) as error:
            log.warning("the limits of connections stay as they were: %s", error)
            return
        if self.config is config:  # nothing newer came meanwhile
            self.server.change_limits(limits)

    async def _allocate_producer_ids(self) -> Any:
        request = AllocateProducerIdsRequest(broker_id=self.broker_id, broker_epoch=self.broker_epoch)
        assert self._to_controller is not None
        return await self._to_controller.request(request)

    async def _alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        assert self._isr_channel is not None
        answer: AlterPartitionResponse = await self._isr_channel.request(request)
        return answer

    # -- stop ---------------------------------------------------------------------------------------------------------

    async def stop(self, controlled: bool = True) -> None:
        """Stop in order; `controlled`: hand leaderships over first."""
        self.state = BrokerState.SHUTTING_DOWN
        if controlled and self._registered and self.config.controlled_shutdown_enable:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            await self._controlled_shutdown()
        for coordinator in (self._groups, self._transactions):
            if coordinator is not None:
                await coordinator.stop()
        if hasattr(self, "server"):
            self.services.metadata.end()
            await self.server.stop(DRAIN_S if controlled else 0.1)
        for task in list(self._tasks):
            task.cancel()
        for part in (self._logins, self._producer_ids):
            if part is not None:
                await part.close()
        await self._leave_cluster()
        if self._standstill is not None:
            self._standstill.close()
        if self._replicas is not None:
            await self._replicas.shutdown()
        if self._logs_open:
            loop = asyncio.get_running_loop()
            if self._replicas is not None and self._replicas.care is not None:
                await self._replicas.care.stop()
            await loop.run_in_executor(self._workers.upkeep, self.logs.shutdown)
        self._workers.close()
        if self._metrics is not None:
            self._metrics.close()

    async def _leave_cluster(self) -> None:
        """End the session: registration and controller's node go at once, and another broker takes over while our logs
        are still being closed.
        """
        self._registered = False
        if self._controller is not None:
            await self._controller.stop(resign=False)
        for channel in (self._channels, self._to_controller, self._isr_channel, self._verifier):
            if channel is not None:
                await channel.close()
        if self._rules is not None:
            await self._rules.close()
        if hasattr(self, "zookeeper"):
            await self.zookeeper.close()

    async def _controlled_shutdown(self) -> None:
        assert self._to_controller is not None
        if not self.zookeeper.is_connected:
            log.warning("no ZooKeeper: stopping without a controlled shutdown")
            return
        ask = self._to_controller.request
        if await hand_over(ask, self.broker_id, lambda: self.broker_epoch, self.config) and self._channels:
            await self._channels.drain(TELL_S)  # as the controller: what was decided is told before we go
