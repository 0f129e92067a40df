"""One file per API family. Importing `FAMILIES` (load_all) registers every handler with dispatch."""

from importlib import import_module

FAMILIES = (
    "acls",
    "api_versions",
    "client_quotas",
    "cluster",
    "committed_offsets",
    "configs",
    "consumer_groups",
    "delegation_tokens",
    "fetch",
    "find_coordinator",
    "groups",
    "log_dirs",
    "metadata",
    "offsets",
    "partitions",
    "produce",
    "producer_ids",
    "producer_states",
    "reassignments",
    "replication",
    "sasl",
    "scram_users",
    "topics",
    "transactional_ids",
    "transactional_offsets",
    "transactions",
)


def load_all() -> None:
    """Import each family, so that its handlers are in the dispatch table."""
    for family in FAMILIES:
        import_module(f"kbroker.handlers.{family}")
