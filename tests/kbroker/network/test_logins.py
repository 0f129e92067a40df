"""Listeners that clients log in on, made of a configuration."""

from typing import Any

from kbroker.config.broker_config import resolve_broker_config
from kbroker.network.logins import Logins
from kbroker.security.exchange import SCRAM_SHA_256, Identity
from kbroker.security.jaas import OAUTHBEARER_MODULE, SCRAM_MODULE
from kbroker.security.oauthbearer import OAuthBearerClient
from kbroker.security.scram import ScramClient, credential_of, salted_password
from kbroker.security.tokens import unsecured_token
from tests.kbroker.config.test_sasl import BASE, PREFIX

MORE = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    f"{PREFIX}.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    f"{PREFIX}.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
    "connection.failed.authentication.delay.ms": "70",
    "sasl.server.max.receive.size": "1234",
}
SALT = b"salt"


async def test_each_mechanism_lets_in_whom_it_knows() -> None:
    nowhere: Any = None
    config = resolve_broker_config({**BASE, **MORE})
    logins = Logins(config, nowhere, lambda: False)
    salted = salted_password(SCRAM_SHA_256, "secret", SALT, 4096)
    logins.users.credentials["alice"] = {SCRAM_SHA_256: credential_of(SCRAM_SHA_256, salted, SALT, 4096)}
    (listener,) = (await logins.listeners(config)).values()
    assert (listener.failure_delay_s, listener.max_receive_bytes) == (0.07, 1234)
    assert list(listener.mechanisms) == ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]

    plain = listener.mechanisms["PLAIN"].begin()
    plain.step(b"\0b\0hunter2")
    assert plain.identity == Identity("b")

    scram, client = listener.mechanisms[SCRAM_SHA_256].begin(), ScramClient(SCRAM_SHA_256, "alice", "secret", "n")
    first: Any = scram.step(client.first())
    scram.step(client.step(first) or b"")
    assert scram.identity == Identity("alice")

    bearer = listener.mechanisms["OAUTHBEARER"].begin()
    bearer.step(OAuthBearerClient(unsecured_token({"sub": "carol", "exp": 1 << 34})).first())
    assert bearer.identity is not None
    assert bearer.identity.name == "carol"
    await logins.close()


async def test_a_nonce_is_never_used_twice() -> None:
    nowhere: Any = None
    config = resolve_broker_config({**BASE, **MORE})
    logins = Logins(config, nowhere, lambda: False)
    salted = salted_password(SCRAM_SHA_256, "secret", SALT, 4096)
    logins.users.credentials["a"] = {SCRAM_SHA_256: credential_of(SCRAM_SHA_256, salted, SALT, 4096)}
    (listener,) = (await logins.listeners(config)).values()
    begin = listener.mechanisms[SCRAM_SHA_256].begin
    assert len({begin().step(b"n,,n=a,r=x") for _ in range(100)}) == 100
