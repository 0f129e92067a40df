"""A replica manager on real logs, told by a played controller what to lead."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.context import RequestContext, Services
from kbroker.metadata_cache import MetadataCache
from kbroker.replica.replica_manager import ReplicaManager
from protocol.messages.replication import LeaderAndIsrRequest, UpdateMetadataRequest
from protocol.records.builder import BatchBuilder
from segment.log_config import LogConfig
from segment.log_manager import LogManager

TOPIC = "orders"
TOPIC_ID = bytes(range(16))
BROKER = 1


def one_batch(*values: bytes, key: bytes | None = b"k", timestamp: int = 1_000) -> bytearray:
    """A batch as a producer sends it."""
    builder = BatchBuilder()
    for value in values or (b"value",):
        builder.append(key, value, (), timestamp)
    return bytearray(builder.build())


class Played:
    """A broker's data path without sockets and ZooKeeper: the test plays the controller."""

    def __init__(self, folder: Path, **topic_config: Any) -> None:
        self.folder = folder
        self.log_config = LogConfig(**topic_config)
        self.metadata = MetadataCache()
        self.logs = LogManager([folder / "logs"], self.log_config)
        self.logs.open(BROKER, "cluster-of-the-test")
        self.logs.load()
        self.now = 1_000_000
        self.failures = 0
        self.config = SimpleNamespace(
            max_incremental_fetch_session_cache_slots=10,
            replica_lag_time_max_ms=30_000,
            fetch_max_bytes=55 << 20,
        )
        self.changes: list[tuple[list[Any], list[Any]]] = []
        self.replicas = ReplicaManager(
            self.config,  # type: ignore[arg-type]
            self.logs,
            self.metadata,
            BROKER,
            lambda: 7,
            lambda topic: self.log_config,
            on_log_dir_failure=self._failed,
            on_leadership_change=lambda elected, resigned: self.changes.append((list(elected), list(resigned))),
            clock=lambda: self.now,
        )
        self.services: Services = SimpleNamespace(  # type: ignore[assignment]
            config=self.config, replicas=self.replicas, metadata=self.metadata, logs=self.logs, broker_id=BROKER
        )

    def _failed(self) -> None:
        self.failures += 1

    def ctx(self, version: int, client_id: str = "test") -> RequestContext:
        connection = SimpleNamespace(listener="PLAINTEXT", host="127.0.0.1", principal="User:ANONYMOUS")
        return RequestContext(0, version, 1, client_id, self.now, connection)

    async def lead(
        self,
        partitions: Sequence[int] = (0,),
        topic: str = TOPIC,
        topic_id: bytes = TOPIC_ID,
        leader: int = BROKER,
        leader_epoch: int = 0,
        replicas: Sequence[int] = (BROKER,),
        isr: Sequence[int] | None = None,
        partition_epoch: int = 0,
        is_new: bool = True,
    ) -> Any:
        """What a controller sends when it has created (or moved) a partition: LeaderAndIsr, UpdateMetadata."""
        in_sync = list(replicas if isr is None else isr)
        answer = await self.replicas.become_leader_or_follower(
            LeaderAndIsrRequest(
                controller_id=BROKER,
                controller_epoch=1,
                broker_epoch=7,
                topic_states=[
                    LeaderAndIsrRequest.LeaderAndIsrTopicState(
                        topic_name=topic,
                        topic_id=topic_id,
                        partition_states=[
                            LeaderAndIsrRequest.LeaderAndIsrPartitionState(
                                partition_index=partition,
                                controller_epoch=1,
                                leader=leader,
                                leader_epoch=leader_epoch,
                                isr=in_sync,
                                partition_epoch=partition_epoch,
                                replicas=list(replicas),
                                is_new=is_new,
                            )
                            for partition in partitions
                        ],
                    )
                ],
                live_leaders=[],
            )
        )
        self.tell(topic, topic_id, partitions, leader, leader_epoch, replicas, in_sync)
        return answer

    def tell(
        self,
        topic: str,
        topic_id: bytes,
        partitions: Sequence[int],
        leader: int = BROKER,
        leader_epoch: int = 0,
        replicas: Sequence[int] = (BROKER,),
        isr: Sequence[int] = (BROKER,),
        controller_epoch: int = 1,
        brokers: Sequence[int] = (1, 2, 3),
    ) -> Any:
        """UpdateMetadata."""
        request = UpdateMetadataRequest
        return self.replicas.update_metadata(
            request(
                controller_id=BROKER,
                controller_epoch=controller_epoch,
                broker_epoch=7,
                topic_states=[
                    request.UpdateMetadataTopicState(
                        topic_name=topic,
                        topic_id=topic_id,
                        partition_states=[
                            request.UpdateMetadataPartitionState(
                                partition_index=partition,
                                controller_epoch=controller_epoch,
                                leader=leader,
                                leader_epoch=leader_epoch,
                                isr=list(isr),
                                zk_version=0,
                                replicas=list(replicas),
                            )
                            for partition in partitions
                        ],
                    )
                ],
                live_brokers=[
                    request.UpdateMetadataBroker(
                        id=broker_id,
                        endpoints=[
                            request.UpdateMetadataEndpoint(
                                port=9000 + broker_id, host="127.0.0.1", listener="PLAINTEXT", security_protocol=0
                            )
                        ],
                        rack=None,
                    )
                    for broker_id in brokers
                ],
            )
        )

    async def close(self) -> None:
        await self.replicas.shutdown()
        self.logs.abandon()


@pytest.fixture
async def played(tmp_path: Path) -> AsyncIterator[Played]:
    broker = Played(tmp_path)
    yield broker
    await broker.close()
