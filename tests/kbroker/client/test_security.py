"""The settings of TLS, and what becomes of them on a connection: asyncio's and the blocking one."""

import asyncio
import pickle
import ssl
from pathlib import Path

import pytest

from kbroker.client.client_config import ConsumerConfig
from kbroker.client.cluster import Cluster
from kbroker.client.connection import Connection
from kbroker.client.errors import ClientError, ConfigurationError, LoginFailed, TlsFailed
from kbroker.client.plain_connection import PlainConnection
from kbroker.client.security import PLAINTEXT, Security, tls_failure
from kbroker.protocol.messages.api_versions import ApiVersionsRequest
from tests.fixtures.certificates import HOUR, PASSWORD, Authority, Identity
from tests.fixtures.streams import stream_server
from tests.kbroker.client.tls_peer import server_context, tls_peer


async def ask(port: int, security: Security, host: str = "127.0.0.1") -> None:
    """Shake hands and ask something, over both kinds of connections."""
    connection = await Connection.open(host, port, security=security)
    try:
        await connection.request(ApiVersionsRequest(), 0, timeout=20)
    finally:
        await connection.close()
    await asyncio.to_thread(ask_blocking, port, security, host)


def ask_blocking(port: int, security: Security, host: str = "127.0.0.1") -> None:
    PlainConnection(host, port, client_id="test", timeout=20, security=security).close()


async def refused(port: int, security: Security, message: str, host: str = "127.0.0.1") -> None:
    """Both kinds of connections say why, and that another try is no use."""
    with pytest.raises(TlsFailed, match=message):
        await ask(port, security, host)
    with pytest.raises(TlsFailed, match=message):
        await asyncio.to_thread(ask_blocking, port, security, host)


def trusting(authority: Authority, **more: object) -> Security:
    return Security(security_protocol="ssl", ssl_cafile=str(authority.file), **more)  # type: ignore[arg-type]


async def test_a_broker_whose_certificate_is_trusted_is_spoken_to(
    authority: Authority, broker_identity: Identity
) -> None:
    async with tls_peer(server_context(broker_identity, authority)) as port:
        await ask(port, trusting(authority))
        await ask(port, trusting(authority), host="localhost")


async def test_a_certificate_nobody_vouches_for_is_refused(
    authority: Authority, broker_identity: Identity, tmp_path: Path
) -> None:
    async with tls_peer(server_context(broker_identity, authority)) as port:
        await refused(port, trusting(Authority(tmp_path, "others")), "certificate is refused")
        await refused(port, Security(security_protocol="SSL"), "certificate is refused")


async def test_an_expired_certificate_is_refused(authority: Authority) -> None:
    expired = authority.issue("expired", expires_in=-HOUR)
    async with tls_peer(server_context(expired, authority)) as port:
        await refused(port, trusting(authority), "certificate has expired")


async def test_a_certificate_of_another_host_is_refused_unless_names_do_not_count(authority: Authority) -> None:
    elsewhere = authority.issue("elsewhere", names=["elsewhere.example"])
    async with tls_peer(server_context(elsewhere, authority)) as port:
        await refused(port, trusting(authority), "IP address mismatch")
        await refused(port, trusting(authority), "Hostname mismatch", host="localhost")
        await ask(port, trusting(authority, ssl_check_hostname=False))


async def test_a_client_shows_its_certificate_where_it_is_asked(
    authority: Authority, broker_identity: Identity, client_identity: Identity
) -> None:
    encrypted = {"ssl_keyfile": str(client_identity.encrypted_key_file), "ssl_password": PASSWORD}
    async with tls_peer(server_context(broker_identity, authority, asks=True)) as port:
        await ask(port, trusting(authority, ssl_certfile=str(client_identity.file)))
        await ask(port, trusting(authority, ssl_certfile=str(client_identity.certificate_file), **encrypted))
        with pytest.raises(ClientError):
            await ask(port, trusting(authority))


async def test_a_port_without_tls_is_told_from_one_that_is_closed() -> None:
    async with tls_peer(None) as port:

        async def answer_in_clear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(b"no TLS here, whatever it is")
            writer.close()

        async with stream_server(answer_in_clear) as plain:
            await refused(plain, Security(security_protocol="SSL"), "does not speak TLS")
        assert port


async def test_a_client_does_not_try_on_when_it_trusts_nobody_there(
    authority: Authority, broker_identity: Identity, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "others")
    async with tls_peer(server_context(broker_identity, authority)) as port:
        config = ConsumerConfig.read(
            {"bootstrap": f"127.0.0.1:{port}", "security.protocol": "SSL", "ssl.ca.location": str(other.file)}
        )
        cluster = Cluster(config)
        with pytest.raises(LoginFailed, match="certificate is refused"):
            await cluster.ask(ApiVersionsRequest())
        await cluster.close()


def test_a_lost_connection_is_no_failure_of_tls() -> None:
    assert tls_failure(ConnectionResetError("gone"), "a:1") is None
    assert tls_failure(ssl.SSLEOFError(8, "EOF occurred"), "a:1") is None
    error = ssl.SSLError(1, "something else")
    error.reason = "SOMETHING_ELSE"
    failure = tls_failure(error, "a:1")
    assert failure is not None
    assert "something else" in str(failure)
    assert "broker a:1" in str(failure)
    assert str(pickle.loads(pickle.dumps(failure))) == str(failure)


@pytest.mark.parametrize("setting", ["ssl_cafile", "ssl_certfile"])
def test_a_file_that_is_not_there_is_named(setting: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{setting}='/nowhere/at-all.pem'"):
        _ = Security(security_protocol="SSL", **{setting: "/nowhere/at-all.pem"}).tls_context  # type: ignore[arg-type]


def test_a_wrong_password_is_no_question_at_the_terminal(authority: Authority, client_identity: Identity) -> None:
    for given in ({}, {"ssl_password": "wrong"}):
        certificate, key = str(client_identity.certificate_file), str(client_identity.encrypted_key_file)
        with pytest.raises(ConfigurationError, match="ssl_keyfile"):
            _ = trusting(authority, ssl_certfile=certificate, ssl_keyfile=key, **given).tls_context


def test_unknown_ciphers_are_told() -> None:
    with pytest.raises(ConfigurationError, match="ssl_ciphers='NONE-SUCH'"):
        _ = Security(security_protocol="SSL", ssl_ciphers="NONE-SUCH").tls_context


def test_without_tls_there_is_nothing_to_read() -> None:
    assert PLAINTEXT.tls_context is None
    assert Security(ssl_cafile="/nowhere").tls_context is None


def test_secrets_are_not_shown() -> None:
    config = ConsumerConfig(bootstrap="a:1", sasl_password="open sesame", ssl_password="open sesame")
    assert "sesame" not in repr(config)


def test_other_clients_names_for_settings_are_known() -> None:
    options = {
        "bootstrap.servers": "a:1",
        "kafka.ssl.ca.location": "ca",
        "ssl.certificate.location": "mine",
        "ssl.key.location": "key",
        "ssl.key.password": "p",
        "sasl.mechanisms": "PLAIN",
        "sasl.plain.username": "me",
    }
    config = ConsumerConfig.read(options)
    assert (config.ssl_cafile, config.ssl_certfile, config.ssl_keyfile, config.ssl_password) == (
        ("ca", "mine", "key", "p")
    )
    assert (config.sasl_mechanism, config.sasl_username) == ("PLAIN", "me")
