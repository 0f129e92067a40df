"""Who logs in by which mechanism is who the access rules speak of: allowed here, refused there, while they say so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import kbroker
from kbroker.client.broker_errors import TopicAuthorizationFailedError
from kbroker.client.errors import LoginFailed
from kbroker.client.types import AccessRule, AccessRuleFilter
from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.free_ports import free_ports
from kbroker.security.acls import AclOperation, AclResource
from kbroker.security.tokens import unsecured_token
from tests.fixtures.brokers import MakeBroker
from tests.fixtures.certificates import Authority, Identity

pytestmark = pytest.mark.slow

WAIT_S = 30.0
SASL, TLS, OPEN = "listener.name.sasl_plaintext", "listener.name.ssl", "PLAINTEXT"
MODULE = "org.apache.kafka.common.security"
WHO = ("plain", "scram256", "scram512", "bearer", "cert", "ANONYMOUS")


def properties(ports: list[int], authority: Authority, identity: Identity) -> dict[str, str]:
    names = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL")
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)),
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{SASL}.plain.sasl.jaas.config": (
            f"{MODULE}.plain.PlainLoginModule required "
            'username="admin" password="pass-of-admin" user_admin="pass-of-admin" user_plain="pass-of-plain";'
        ),
        f"{SASL}.scram-sha-256.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
        f"{SASL}.scram-sha-512.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
        f"{SASL}.oauthbearer.sasl.jaas.config": f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;",
        f"{TLS}.ssl.keystore.type": "PEM",
        f"{TLS}.ssl.keystore.location": str(identity.file),
        f"{TLS}.ssl.truststore.type": "PEM",
        f"{TLS}.ssl.truststore.location": str(authority.file),
        f"{TLS}.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": r"RULE:^CN=Known As ([a-zA-Z]+)(,.*)?$/$1/L,DEFAULT",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
        "auto.create.topics.enable": "false",
    }


def sasl(mechanism: str, user: str, password: str = "") -> dict[str, Any]:
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    return {**login, "sasl_username": user, "sasl_password": password or f"pass-of-{user}"}


def bearer() -> str:
    now = int(time.time())
    return unsecured_token({"sub": "bearer", "iat": now - 60, "exp": now + 600})


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def addresses(ports: list[int], authority: Authority) -> dict[str, tuple[str, dict[str, Any]]]:
    """Of each principal: where it connects to, and with which settings."""
    plain, logged_in, encrypted = (f"127.0.0.1:{port}" for port in ports)
    known = authority.issue("Known As Cert")
    return {
        "plain": (logged_in, sasl("PLAIN", "plain")),
        "scram256": (logged_in, sasl("SCRAM-SHA-256", "scram256")),
        "scram512": (logged_in, sasl("SCRAM-SHA-512", "scram512")),
        "bearer": (
            logged_in,
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauth_token_provider": bearer,
            },
        ),
        "cert": (
            encrypted,
            {"security_protocol": "SSL", "ssl_cafile": str(authority.file), "ssl_certfile": str(known.file)},
        ),
        "ANONYMOUS": (plain, {}),
        "admin": (logged_in, sasl("PLAIN", "admin")),
    }


def seen(address: tuple[str, dict[str, Any]]) -> list[str]:
    with kbroker.Admin(address[0], **address[1]) as admin:
        return admin.list_topics()


def write(address: tuple[str, dict[str, Any]], topic: str) -> None:
    with kbroker.Producer(address[0], **address[1]) as producer:
        producer.send(topic, b"mine").result(WAIT_S)


def test_each_login_is_judged_under_its_own_name(
    make_broker: MakeBroker, authority: Authority, broker_identity: Identity
) -> None:
    ports = free_ports(3)
    broker: BrokerProcess = make_broker(port=ports[0], properties=properties(ports, authority, broker_identity))
    known = addresses(ports, authority)
    with kbroker.Admin(known["admin"][0], **known["admin"][1]) as admin:
        for who in WHO:
            admin.create_topic(f"of-{who}", 1)
        for user in ("scram256", "scram512"):
            admin.set_user(user, f"pass-of-{user}")
        rules = [AccessRule(AclResource.TOPIC, f"of-{who}", f"User:{who}", AclOperation.WRITE) for who in WHO]
        admin.create_acls(rules)
        for who in WHO:
            until(lambda who=who: seen(known[who]) == [f"of-{who}"])  # type: ignore[misc]
            write(known[who], f"of-{who}")
        assert seen(known["admin"]) == sorted(f"of-{who}" for who in WHO)
        for who, other in zip(WHO, WHO[1:] + WHO[:1], strict=True):
            with pytest.raises(TopicAuthorizationFailedError):
                write(known[who], f"of-{other}")
        with kbroker.Producer(known["scram512"][0], **known["scram512"][1]) as producer:
            producer.send("of-scram512", b"before").result(WAIT_S)
            admin.delete_acls([AccessRuleFilter(principal="User:scram512")])
            until(lambda: is_refused(producer, "of-scram512"))  # on the connection that it has
        admin.set_user("scram256", "pass-of-later")
        until(lambda: cannot_log_in(known["scram256"]))
        assert seen((known["scram256"][0], sasl("SCRAM-SHA-256", "scram256", "pass-of-later"))) == ["of-scram256"]
    log = broker.log_file.read_text()
    assert "Principal = User:plain is Denied Operation = Describe" in log
    assert "Principal = User:scram512 is Denied Operation = Write" in log
    assert "pass-of-" not in log


def is_refused(producer: kbroker.Producer, topic: str) -> bool:
    try:
        producer.send(topic, b"more").result(WAIT_S)
    except TopicAuthorizationFailedError:
        return True
    return False


def cannot_log_in(address: tuple[str, dict[str, Any]]) -> bool:
    try:
        seen(address)
    except LoginFailed:
        return True
    return False
