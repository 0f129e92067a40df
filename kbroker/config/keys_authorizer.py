"""The broker's keys that decide who may do what. Kafka's AclAuthorizer reads all but the first from the same file."""

from __future__ import annotations

from dataclasses import dataclass

from kbroker.protocol.config_def import Int, key

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


@dataclass(init=False, repr=False, eq=False)
class AuthorizerKeys:
    """Access rules."""

    authorizer_class_name: str = key(
        "authorizer.class.name",
        default="",
        doc=f"Who decides what clients may do: {ACL_AUTHORIZER}, by access rules in ZooKeeper; empty: all may do all.",
    )
    super_users: str = key(
        "super.users",
        default="",
        doc="Principals that may do everything, as Type:name, separated by semicolons. Those of brokers belong here.",
    )
    allow_everyone_if_no_acl_found: bool = key(
        "allow.everyone.if.no.acl.found",
        default=False,
        doc="Whether everybody may do everything with a resource that no access rule speaks of.",
    )
    authorizer_zookeeper_url: str | None = key(
        "authorizer.zookeeper.url", default=None, doc="ZooKeeper with the access rules, where it is another."
    )
    authorizer_zookeeper_connection_timeout_ms: Int | None = key(
        "authorizer.zookeeper.connection.timeout.ms",
        default=None,
        doc="How long connecting to that ZooKeeper may take; unset: as for the broker's.",
    )
    authorizer_zookeeper_session_timeout_ms: Int | None = key(
        "authorizer.zookeeper.session.timeout.ms",
        default=None,
        doc="Time-out of the session there; unset: as for the broker's.",
    )
    authorizer_zookeeper_max_in_flight_requests: Int | None = key(
        "authorizer.zookeeper.max.in.flight.requests",
        default=None,
        doc="Most nodes that are read there at once; unset: as for the broker's.",
    )

    @property
    def super_user_names(self) -> list[str]:
        """The principals of super.users."""
        return [name.strip() for name in self.super_users.split(";") if name.strip()]
