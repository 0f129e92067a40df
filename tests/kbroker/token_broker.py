"""A broker where users log in by PLAIN, make delegation tokens, and log in by these."""

from collections.abc import Mapping
from types import MappingProxyType

from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.free_ports import free_ports
from kbroker.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from tests.fixtures.brokers import MakeBroker

PREFIX = "listener.name.clients"
USERS = ("alice", "bob", "eve")
PASSWORD = "secret"


def make_token_broker(
    make_broker: MakeBroker, more: Mapping[str, str] = MappingProxyType({})
) -> tuple[BrokerProcess, int]:
    """Return the broker, and the port on which clients log in; the other listener wants no login.

    `more`: of its properties.
    """
    port, clients = free_ports(2)
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in USERS)
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CLIENTS://127.0.0.1:{clients}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        f"{PREFIX}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{PREFIX}.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {users};",
        f"{PREFIX}.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        f"{PREFIX}.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "delegation.token.secret.key": "the key of tokens",
        **more,
    }
    return make_broker(port=port, properties=properties), clients


def login_of(user: str) -> dict[str, str]:
    """Return a client's settings for a user."""
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": user,
        "sasl_password": PASSWORD,
    }
