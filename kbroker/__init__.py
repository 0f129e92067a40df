"""Kafka-compatible broker and clients: `from kbroker import Producer, Consumer, Admin`; for asyncio see kbroker.aio.

Here are also the names of what users hold and catch: records and deliveries, what Admin takes and gives, and an
exception class for each of Kafka's error codes. All are loaded on first use: importing kbroker loads nothing heavy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbroker.client.blocking import Admin as Admin
    from kbroker.client.blocking import Consumer as Consumer
    from kbroker.client.blocking import Producer as Producer
    from kbroker.client.broker_errors import *  # noqa: F403
    from kbroker.client.delivery import Delivery as Delivery
    from kbroker.client.error_base import AbortableError as AbortableError
    from kbroker.client.error_base import BrokerError as BrokerError
    from kbroker.client.error_base import ClientError as ClientError
    from kbroker.client.error_base import FencedError as FencedError
    from kbroker.client.error_base import KafkaError as KafkaError
    from kbroker.client.errors import BatchNotBuilt as BatchNotBuilt
    from kbroker.client.errors import BufferFull as BufferFull
    from kbroker.client.errors import ClientClosed as ClientClosed
    from kbroker.client.errors import ConfigurationError as ConfigurationError
    from kbroker.client.errors import DeliveryTimeout as DeliveryTimeout
    from kbroker.client.errors import DeserializationError as DeserializationError
    from kbroker.client.errors import IllegalState as IllegalState
    from kbroker.client.errors import LoginFailed as LoginFailed
    from kbroker.client.errors import MalformedValue as MalformedValue
    from kbroker.client.errors import NotAssigned as NotAssigned
    from kbroker.client.errors import NotConnected as NotConnected
    from kbroker.client.errors import OutcomeUnknown as OutcomeUnknown
    from kbroker.client.errors import RowTooLarge as RowTooLarge
    from kbroker.client.errors import SerializationError as SerializationError
    from kbroker.client.errors import TimedOut as TimedOut
    from kbroker.client.errors import TlsFailed as TlsFailed
    from kbroker.client.errors import TransactionTimedOut as TransactionTimedOut
    from kbroker.client.errors import WokenUp as WokenUp
    from kbroker.client.group.group_consumer import Progress as Progress
    from kbroker.client.group.listener import RebalanceListener as RebalanceListener
    from kbroker.client.quota_admin import ClientQuota as ClientQuota
    from kbroker.client.retry import Retry as Retry
    from kbroker.client.table_delivery import PartitionOffsets as PartitionOffsets
    from kbroker.client.table_delivery import TableDelivery as TableDelivery
    from kbroker.client.table_delivery import TableMetadata as TableMetadata
    from kbroker.client.table_delivery import TableNotWritten as TableNotWritten
    from kbroker.client.types import *  # noqa: F403
    from kbroker.protocol.errors import ErrorCode as ErrorCode
    from kbroker.protocol.grouping import TopicPartition as TopicPartition
    from kbroker.protocol.records.record import Record as Record
    from kbroker.security.acls import AclOperation as AclOperation
    from kbroker.security.acls import AclPattern as AclPattern
    from kbroker.security.acls import AclPermission as AclPermission
    from kbroker.security.acls import AclResource as AclResource

__version__ = "0.1.0"

_MODULES = {
    "Admin": "kbroker.client.blocking",
    "Consumer": "kbroker.client.blocking",
    "Producer": "kbroker.client.blocking",
    "Delivery": "kbroker.client.delivery",
    "Progress": "kbroker.client.group.group_consumer",
    "RebalanceListener": "kbroker.client.group.listener",
    "ClientQuota": "kbroker.client.quota_admin",
    "Retry": "kbroker.client.retry",
    "PartitionOffsets": "kbroker.client.table_delivery",
    "TableDelivery": "kbroker.client.table_delivery",
    "TableMetadata": "kbroker.client.table_delivery",
    "TableNotWritten": "kbroker.client.table_delivery",
    "AbortableError": "kbroker.client.error_base",
    "BrokerError": "kbroker.client.error_base",
    "ClientError": "kbroker.client.error_base",
    "FencedError": "kbroker.client.error_base",
    "KafkaError": "kbroker.client.error_base",
    "BatchNotBuilt": "kbroker.client.errors",
    "BufferFull": "kbroker.client.errors",
    "ClientClosed": "kbroker.client.errors",
    "ConfigurationError": "kbroker.client.errors",
    "DeliveryTimeout": "kbroker.client.errors",
    "DeserializationError": "kbroker.client.errors",
    "IllegalState": "kbroker.client.errors",
    "LoginFailed": "kbroker.client.errors",
    "MalformedValue": "kbroker.client.errors",
    "NotAssigned": "kbroker.client.errors",
    "NotConnected": "kbroker.client.errors",
    "OutcomeUnknown": "kbroker.client.errors",
    "RowTooLarge": "kbroker.client.errors",
    "SerializationError": "kbroker.client.errors",
    "TimedOut": "kbroker.client.errors",
    "TlsFailed": "kbroker.client.errors",
    "TransactionTimedOut": "kbroker.client.errors",
    "WokenUp": "kbroker.client.errors",
    "EARLIEST": "kbroker.client.types",
    "LATEST": "kbroker.client.types",
    "MAX_TIMESTAMP": "kbroker.client.types",
    "ErrorCode": "kbroker.protocol.errors",
    "TopicPartition": "kbroker.protocol.grouping",
    "Record": "kbroker.protocol.records.record",
    "AclOperation": "kbroker.security.acls",
    "AclPattern": "kbroker.security.acls",
    "AclPermission": "kbroker.security.acls",
    "AclResource": "kbroker.security.acls",
}
"""Where public names are, but for the classes of _ALL_OF."""
_ALL_OF = ("kbroker.client.types", "kbroker.client.broker_errors")
"""Modules all of whose classes are public."""


def _classes() -> dict[str, Any]:
    """Return the classes of the modules in _ALL_OF."""
    modules = [import_module(name) for name in _ALL_OF]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    }


if not TYPE_CHECKING:  # or a type checker would take any name for a public one

    def __getattr__(name: str) -> Any:
        """Load a public name, or the list of all."""
        if name == "__all__":
            return sorted([*_MODULES, *_classes()])
        if name in _MODULES:
            return getattr(import_module(_MODULES[name]), name)
        if name[:1].isupper() and name in (classes := _classes()):  # `from kbroker import handlers` comes here, too
            return classes[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """Name what is public."""
        return [*globals(), *__getattr__("__all__")]
