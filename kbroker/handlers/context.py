"""What a handler is given: the broker's parts (Services); who asks, when, through which listener (RequestContext)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbroker.cluster.access_rules import AccessRules
    from kbroker.cluster.client_quotas import QuotaKeeper
    from kbroker.cluster.cluster_features import ClusterFeatures
    from kbroker.cluster.metadata_cache import MetadataCache
    from kbroker.cluster.producer_id_manager import ProducerIdManager
    from kbroker.cluster.scram_users import ScramUsers
    from kbroker.cluster.token_store import DelegationTokens
    from kbroker.config.broker_config import BrokerConfig
    from kbroker.config.dynamic_config import DynamicConfig
    from kbroker.controller.runner import ControllerRunner
    from kbroker.controller.zookeeper import ZooKeeper
    from kbroker.coordinator.group_coordinator import GroupCoordinator
    from kbroker.coordinator.transaction_coordinator import TransactionCoordinator
    from kbroker.replica.replica_manager import ReplicaManager
    from kbroker.replica.workers import Workers
    from kbroker.security.authorizer import Everything
    from kbroker.segment.log_manager import LogManager


@dataclass(slots=True)
class Services:
    """The parts of one broker, introduced to each other by broker.py. A test may leave out what it does not touch."""

    config: BrokerConfig
    broker_id: int
    cluster_id: str
    zookeeper: ZooKeeper
    controller: ControllerRunner
    replicas: ReplicaManager
    metadata: MetadataCache
    logs: LogManager
    configs: DynamicConfig
    producer_ids: ProducerIdManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    users: ScramUsers
    tokens: DelegationTokens | None
    """None where there is no delegation.token.secret.key."""
    features: ClusterFeatures
    workers: Workers
    """For slow blocking work: `await loop.run_in_executor(services.workers.upkeep, function)`."""
    rules: AccessRules | None = None
    """None where everybody may do everything."""
    quotas: QuotaKeeper | None = None


class RequestContext:
    """Who asks, when, through which listener; made once per request, so it has only slots."""

    __slots__ = (
        "api_key",
        "api_version",
        "busy_ms",
        "client_id",
        "connection",
        "correlation_id",
        "ends_with_connection",
        "is_large",
        "late",
        "may_be_overtaken",
        "received_at",
        "request_bytes",
        "timing",
        "withheld",
    )

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        received_at: int,
        connection: Any,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.received_at = received_at
        """Milliseconds since 1970 when the frame was complete."""
        self.request_bytes = 0
        """Counted, as `busy_ms`, only while clients have limits."""
        self.busy_ms = 0.0
        """How long the handler has worked on it before it waited."""
        self.connection = connection
        """A `Connection` (network/connection.py), or anything with its attributes."""
        self.timing: Any = None
        """A `Timing` (network/request_times.py), of the requests that are timed."""
        self.withheld: Callable[[Any], None] | None = None
        """Set by a handler that remembers what it tells: called with an answer that goes out without its contents."""
        self.may_be_overtaken = False
        """Set by a handler that has done its work and only waits: later requests like it may be served meanwhile."""
        self.late: Any = None
        """A `LateAnswer` (network/dispatch.py), of a request that may be overtaken."""
        self.is_large = False
        """Whether the request was decoded in turns, as it may hold very much: what it asks for takes turns, too."""
        self.ends_with_connection = False
        """Set by a handler whose answer is all that it waits for, or where that is registered: when the client goes,
        the waiting is cancelled, and so is work in turns.
        """

    def let_overtake(self) -> None:
        """Have later requests like it served from now on: the handler has done its work only after a while."""
        self.may_be_overtaken = True
        self.connection.let_overtake(self)

    @property
    def listener(self) -> str:
        """Name of the listener (INTERNAL, PLAINTEXT, …) that the request came through."""
        return str(self.connection.listener)

    @property
    def client_host(self) -> str:
        """Address of the peer, as text without brackets."""
        return str(self.connection.host)

    @property
    def principal(self) -> str:
        """Kafka's principal text, `User:ANONYMOUS` on a plain listener."""
        return str(self.connection.principal)

    @property
    def user(self) -> str:
        """The principal's name without its type, as limits know it."""
        return self.principal.partition(":")[2]

    @property
    def authority(self) -> Everything:
        """What the sender may do."""
        authority: Everything = self.connection.authority
        return authority
