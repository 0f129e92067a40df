"""A listener whose key or trust store hangs on a password that this broker cannot read keeps the stores that it has."""

from __future__ import annotations

import re

import pytest

from kbroker.config.shares import tls_settings
from kbroker.protocol.config_def import ConfigError
from kbroker.protocol.errors import KafkaError
from tests.kbroker.config.test_dynamic_config import CLIENT_AUTH, EXT, TRUSTED, TRUSTED_TYPE, Store, Trusting, dynamic


async def test_a_listener_that_is_served_keeps_its_stores_where_one_of_their_passwords_cannot_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    configs = dynamic(store, **EXT, **{CLIENT_AUTH: "required"}, password__encoder__secret="new")
    stored = await configs.encoded({TRUSTED: "ours", TRUSTED_TYPE: "PEM"})
    store.nodes["brokers", "1"] = stored
    await configs.load()
    configs.listeners = Trusting()
    broken = {TRUSTED: "AAAA", TRUSTED_TYPE: "PKCS12"}  # as by a broker with another secret
    configs.check_broker_overrides({TRUSTED_TYPE: "PEM", "num.io.threads": "9"}, per_broker=True, unreadable=[TRUSTED])
    store.nodes["brokers", "1"] = {**broken, "num.io.threads": "9"}
    await configs.refresh("brokers", "1")
    trusted = tls_settings(configs.broker, "EXT").trust_store
    assert (trusted.certificates, trusted.type) == ("ours", "PEM")
    assert configs.broker.num_io_threads == 9, "what else is set there holds"
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert f"stay as they are: the password {TRUSTED} cannot be read" in line
    same = {TRUSTED_TYPE: "PKCS12"}
    configs.check_broker_overrides({**same, "num.io.threads": "10"}, per_broker=True, unreadable=[TRUSTED])
    with pytest.raises(KafkaError, match=f"{re.escape(TRUSTED)} cannot be read"):
        configs.check_broker_overrides({TRUSTED_TYPE: "JKS"}, per_broker=True, unreadable=[TRUSTED])
    with pytest.raises(KafkaError, match="would come in"):
        configs.check_broker_overrides(same, per_broker=True)  # it is deleted by its name
    anew = {TRUSTED: "others", TRUSTED_TYPE: "PEM"}
    configs.check_broker_overrides(anew, per_broker=True)
    store.nodes["brokers", "1"] = await configs.encoded(anew)
    await configs.refresh("brokers", "1")
    assert tls_settings(configs.broker, "EXT").trust_store.certificates == "others"


async def test_only_a_start_that_a_lost_secret_ends_is_told_what_to_do_then() -> None:
    unused = "listener.name.other.ssl.keystore.password"
    for stored, is_lost in (
        ({TRUSTED: "AAAA", TRUSTED_TYPE: "PEM"}, True),
        ({unused: "AAAA", "listener.name.ext.ssl.client.auth": "perhaps"}, False),
    ):
        store = Store()
        store.nodes["brokers", "1"] = stored
        with pytest.raises(ConfigError, match=r"ZooKeeper says at /config/brokers/1") as error:
            await dynamic(store, **EXT, **{CLIENT_AUTH: "required"}, password__encoder__secret="new").load()
        assert ("that secret is lost" in str(error.value)) is is_lost
        assert ("cannot be read" in str(error.value)) is is_lost


async def test_of_two_passwords_that_cannot_be_read_neither_goes_without_the_other() -> None:
    """While one stays, the listener keeps its stores: nobody would notice that it lost one of them."""
    store = Store()
    configs = dynamic(store, **EXT, **{CLIENT_AUTH: "required"}, password__encoder__secret="new")
    key_password = "listener.name.ext.ssl.keystore.password"
    store.nodes["brokers", "1"] = await configs.encoded({TRUSTED: "ours", TRUSTED_TYPE: "PEM", key_password: "secret"})
    await configs.load()
    configs.listeners = Trusting()
    store.nodes["brokers", "1"] = {TRUSTED: "AAAA", TRUSTED_TYPE: "PEM", key_password: "AAAA"}
    await configs.refresh("brokers", "1")
    kept = {TRUSTED_TYPE: "PEM"}
    configs.check_broker_overrides(kept, per_broker=True, unreadable=[TRUSTED, key_password])
    with pytest.raises(KafkaError, match=f"{re.escape(key_password)} cannot be read"):
        configs.check_broker_overrides(kept, per_broker=True, unreadable=[key_password])
    configs.check_broker_overrides({**kept, TRUSTED: "others", key_password: "new"}, per_broker=True)
