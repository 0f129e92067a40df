"""What a core file or a dump of a broker's memory would hold of those who log in.

A password that the broker never gets is not there, and one that a client sends does not stay.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from pathlib import Path
from typing import Any

import pytest

import kbroker
from kbroker.client.errors import LoginFailed
from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.free_ports import free_ports
from kbroker.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from tests.fixtures.brokers import MakeBroker
from tests.fixtures.certificates import Authority, Identity
from tests.kbroker.security.store_files import STORE_PASSWORD, pkcs12_file
from tests.kbroker.token_broker import PASSWORD, login_of, make_token_broker

pytestmark = pytest.mark.slow

PIECE = 1 << 24
ENOUGH_S = 30.0


def occurrences(broker: BrokerProcess, *wanted: str) -> dict[str, int]:
    """Count texts in all that a broker has written to memory."""
    found = dict.fromkeys(wanted, 0)
    overlap = max(map(len, wanted))
    maps = Path(f"/proc/{broker.pid}/maps").read_text()
    try:
        descriptor = os.open(f"/proc/{broker.pid}/mem", os.O_RDONLY)
    except PermissionError:
        pytest.skip("this machine lets nobody read another process's memory")
    with open(descriptor, "rb", buffering=0) as memory:
        for start, end in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) rw", maps, re.MULTILINE):
            place, rest = int(start, 16), b""
            while place < int(end, 16):
                try:
                    memory.seek(place)
                    data = memory.read(min(PIECE, int(end, 16) - place))
                except OSError:  # a region of the kernel's
                    break
                if not data:
                    break
                for text in wanted:
                    found[text] += (rest + data).count(text.encode())
                rest = data[-overlap + 1 :]
                place += len(data)
    return found


def refused(bootstrap: str, **login: Any) -> None:
    with pytest.raises(LoginFailed), kbroker.Admin(bootstrap, **login) as admin:
        admin.list_topics()


def test_passwords_that_are_not_sent_are_not_in_a_brokers_memory(make_broker: MakeBroker) -> None:
    broker, port = make_token_broker(make_broker)
    bootstrap = f"127.0.0.1:{port}"
    right, wrong, sent = (f"{name}-{secrets.token_hex(8)}" for name in ("right", "wrong", "sent"))
    with kbroker.Admin(bootstrap, **login_of("alice")) as alice:
        alice.set_user("carol", right)
        token = alice.create_delegation_token()
    scram = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "carol"}
    with kbroker.Admin(bootstrap, **scram, sasl_password=right) as carol:
        carol.list_topics()
    for _ in range(3):
        refused(bootstrap, **scram, sasl_password=wrong)
    assert occurrences(broker, right, wrong) == {right: 0, wrong: 0}
    # What has to be there is: this looks at the right places.
    (name,) = occurrences(broker, f'user_alice="{PASSWORD}"').values()
    assert name > 0
    # Nor is a token's HMAC as clients send it: what a login is checked against is derived of its bytes.
    with kbroker.Admin(bootstrap, security_protocol="SASL_PLAINTEXT", **token.login) as by_token:
        by_token.list_topics()
    assert set(occurrences(broker, token.login["sasl_password"]).values()) == {0}
    # PLAIN sends the password itself: it is wiped where it was received, and what was made of it goes with the login.
    refused(bootstrap, **{**login_of("alice"), "sasl_password": sent})
    deadline = time.monotonic() + ENOUGH_S
    while occurrences(broker, sent)[sent]:
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.2)


def test_over_tls_nothing_of_a_login_stays_either(
    make_broker: MakeBroker, authority: Authority, broker_identity: Identity, tmp_path: Path
) -> None:
    own, port = free_ports(2)
    prefix = "listener.name.clients"
    kept = {name: f"{name}-{secrets.token_hex(8)}" for name in ("user", "token-key")}
    store = pkcs12_file(tmp_path, broker_identity, authority)
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{own},CLIENTS://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL",
        f"{prefix}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        f"{prefix}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="{kept["user"]}";',
        f"{prefix}.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "delegation.token.secret.key": kept["token-key"],
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": STORE_PASSWORD,
    }
    broker = make_broker(port=own, properties=properties)
    bootstrap = f"127.0.0.1:{port}"
    encrypted = {"security_protocol": "SASL_SSL", "ssl_cafile": str(authority.file)}
    sent, right = (f"{name}-{secrets.token_hex(8)}" for name in ("sent", "right"))
    alice = {**encrypted, "sasl_mechanism": "PLAIN", "sasl_username": "alice"}
    with kbroker.Admin(bootstrap, **alice, sasl_password=kept["user"]) as admin:
        admin.set_user("carol", right)
        token = admin.create_delegation_token()
        carol = {**encrypted, "sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "carol", "sasl_password": right}
        for login in (carol, {**encrypted, **token.login, "security_protocol": "SASL_SSL"}):
            with kbroker.Admin(bootstrap, **login) as other:
                other.list_topics()
        refused(bootstrap, **alice, sasl_password=sent)
        deadline = time.monotonic() + ENOUGH_S
        while any(occurrences(broker, sent, right, token.login["sasl_password"]).values()):
            assert time.monotonic() < deadline, "it is still there"
            time.sleep(0.2)
        # What has to be there is: this looks at the right places.
        assert min(occurrences(broker, *kept.values()).values()) > 0
