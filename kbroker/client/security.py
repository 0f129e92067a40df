"""How a client reaches brokers: in clear or over TLS, with a login or without. Part of every client's settings.

    Security(security_protocol="SSL", ssl_cafile="ca.pem")
    Security(security_protocol="SASL_SSL", ssl_cafile="ca.pem", sasl_mechanism="PLAIN", sasl_username="me", …)

A broker that connects to others is a client, too: it makes one of its listener's keys. Whoever connects in clear does
not load what TLS needs: a Spark query begins in a new process.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kbroker.client.errors import ConfigurationError, TlsFailed
from kbroker.client.settings import check_settings, setting
from kbroker.protocol.config_def import one_of
from kbroker.security.security_protocol import SecurityProtocol

if TYPE_CHECKING:
    import ssl

    from kbroker.client.login import Login, TokenProvider
    from kbroker.security.tls import TlsSettings


@dataclass(frozen=True, kw_only=True)
class Security:
    """The settings, under kafka-python's names; dotted names of Java and librdkafka are read, too."""

    security_protocol: str = setting(
        "PLAINTEXT", "Whether connections are encrypted, and whether the client logs in.", one_of(*SecurityProtocol)
    )
    ssl_cafile: str | None = setting(
        None, "File of the certificates (PEM) that brokers' own are signed by; None: those the system trusts."
    )
    ssl_certfile: str | None = setting(
        None, "File of this client's certificate (PEM, with its chain), for brokers that ask for one."
    )
    ssl_keyfile: str | None = setting(
        None, "File of the private key (PEM) of that certificate; None: it is in ssl_certfile."
    )
    ssl_password: str | None = setting(None, "The password of that key, where it is encrypted.", is_secret=True)
    ssl_check_hostname: bool = setting(True, "Whether a broker's certificate must carry the name it is reached by.")
    ssl_ciphers: str | None = setting(None, "OpenSSL's names of the ciphers for TLS 1.2 that are allowed.")
    ssl_endpoint_identification_algorithm: str = setting(
        "https",
        "Java's ssl_check_hostname: empty text is False.",
        one_of("https", "HTTPS", "", "none"),
    )
    ssl_enabled_protocols: str = setting("TLSv1.2,TLSv1.3", "The versions of TLS that are spoken.")
    ssl_cipher_suites: str = setting("", "Java's names of the ciphers that are allowed; empty: OpenSSL's choice.")
    ssl_truststore_type: str = setting("JKS", "Form of ssl_truststore_location: JKS or PKCS12, or PEM.")
    ssl_truststore_location: str | None = setting(None, "Java's trust store, in place of ssl_cafile.")
    ssl_truststore_password: str | None = setting(None, "What opens it.", is_secret=True)
    ssl_truststore_certificates: str | None = setting(
        None, "The trusted certificates themselves, as PEM, with ssl_truststore_type PEM.", is_secret=True
    )
    ssl_keystore_type: str = setting("JKS", "Form of ssl_keystore_location: JKS or PKCS12, or PEM.")
    ssl_keystore_location: str | None = setting(
        None, "Java's key store, in place of ssl_certfile and ssl_keyfile; ssl_password opens its key."
    )
    ssl_keystore_password: str | None = setting(None, "What opens it.", is_secret=True)
    ssl_keystore_key: str | None = setting(
        None, "The private key itself, as PEM, with ssl_keystore_type PEM.", is_secret=True
    )
    ssl_keystore_certificate_chain: str | None = setting(None, "The certificate itself, as PEM.", is_secret=True)
    sasl_mechanism: str | None = setting(
        None, "How the client logs in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER."
    )
    sasl_username: str | None = setting(None, "The name it logs in with.")
    sasl_password: str | None = setting(None, "The password.", is_secret=True)
    sasl_tokenauth: bool = setting(
        False, "Whether name and password are a delegation token's id and HMAC (base64), for SCRAM."
    )
    sasl_jaas_config: str | None = setting(
        None, "Name and password in Java's notation, instead of the three before.", is_secret=True
    )
    sasl_oauth_token_provider: TokenProvider | None = setting(
        None, "For OAUTHBEARER: a function without arguments that returns a token.", is_secret=True
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "security_protocol", self.security_protocol.upper())
        check_settings(self)
        if self.protocol.has_sasl:
            _ = self.login

    @property
    def protocol(self) -> SecurityProtocol:
        """What is spoken."""
        return SecurityProtocol(self.security_protocol)

    @cached_property
    def login(self) -> Login:
        """As whom the client logs in; raises ConfigurationError that names the setting."""
        from kbroker.client.login import login_of  # only who logs in needs the mechanisms

        return login_of(
            self.sasl_mechanism,
            self.sasl_username,
            self.sasl_password,
            self.sasl_jaas_config,
            self.sasl_oauth_token_provider,
            is_token=self.sasl_tokenauth,
        )

    @cached_property
    def tls_context(self) -> ssl.SSLContext | None:
        """The certificates as TLS needs them, read when they are first needed; None without TLS.

        Raises ConfigurationError that names the file.
        """
        if not self.protocol.has_tls:
            return None
        import ssl

        from kbroker.security.stores import StoreError
        from kbroker.security.tls import client_context

        try:
            context = client_context(self.tls_settings, self.ssl_cafile)
        except StoreError as error:
            raise ConfigurationError(str(error)) from error
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"ssl_cafile={self.ssl_cafile!r} cannot be used: {error}") from error
        if self.ssl_certfile is not None:
            password = self.ssl_password or ""  # never asked for at the terminal
            try:
                context.load_cert_chain(self.ssl_certfile, self.ssl_keyfile, password)
            except (OSError, ssl.SSLError) as error:
                text = f"ssl_certfile={self.ssl_certfile!r}, ssl_keyfile={self.ssl_keyfile!r} cannot be used: {error}"
                raise ConfigurationError(text) from error
        if self.ssl_ciphers is not None:
            try:
                context.set_ciphers(self.ssl_ciphers)
            except ssl.SSLError as error:
                raise ConfigurationError(f"ssl_ciphers={self.ssl_ciphers!r}: OpenSSL knows none of them") from error
        return context

    @property
    def tls_settings(self) -> TlsSettings:
        """Those that Java's clients have, too."""
        from kbroker.security.stores import KeyStore, TrustStore
        from kbroker.security.tls import TlsSettings

        return TlsSettings(
            key_store=KeyStore(
                type=self.ssl_keystore_type,
                location=self.ssl_keystore_location,
                password=self.ssl_keystore_password,
                key_password=self.ssl_password,
                key=self.ssl_keystore_key,
                certificate_chain=self.ssl_keystore_certificate_chain,
            ),
            trust_store=TrustStore(
                type=self.ssl_truststore_type,
                location=self.ssl_truststore_location,
                password=self.ssl_truststore_password,
                certificates=self.ssl_truststore_certificates,
            ),
            enabled_protocols=_names(self.ssl_enabled_protocols),
            cipher_suites=_names(self.ssl_cipher_suites),
            checks_hostname=self.ssl_check_hostname and self.ssl_endpoint_identification_algorithm.lower() == "https",
        )


PLAINTEXT = Security()
"""Neither encrypted nor logged in."""


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def tls_failure(error: BaseException | None, address: str) -> TlsFailed | None:
    """Return what a client raises when TLS itself has failed; None where the connection did, which may pass."""
    import ssl

    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsFailed(address, f"its certificate is refused: {error.verify_message}")
    if error.reason == "WRONG_VERSION_NUMBER":
        return TlsFailed(address, "it does not speak TLS: is security_protocol right, and the port?")
    reason = (error.reason or str(error)).lower().replace("_", " ")
    return TlsFailed(address, f"TLS failed: {reason}")


def tls_arguments(security: Security, host: str) -> dict[str, Any]:
    """Return what asyncio's create_connection is told."""
    context = security.tls_context
    return {} if context is None else {"ssl": context, "server_hostname": host}
