"""The broker's keys for TLS, SASL, delegation tokens and stored passwords."""

from __future__ import annotations

from dataclasses import dataclass

from kbroker.protocol.config_def import Class, Double, Int, List, Long, Password, Scope, Short, at_least, key, one_of


@dataclass(init=False, repr=False, eq=False)
class SecurityKeys:
    """TLS and SASL."""

    connections_max_reauth_ms: Long = key(
        "connections.max.reauth.ms",
        default=0,
        doc="Time after which a SASL client has to authenticate again; 0: never.",
    )
    sasl_server_max_receive_size: Int = key(
        "sasl.server.max.receive.size", default=524_288, doc="Largest message of a SASL handshake."
    )
    security_providers: str | None = key(
        "security.providers", default=None, effect=False, doc="Java security providers."
    )
    principal_builder_class: Class = key(
        "principal.builder.class",
        default="org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        scope=Scope.PER_BROKER,
        doc="How a connection becomes a principal.",
    )
    ssl_client_auth: str = key(
        "ssl.client.auth",
        default="none",
        check=one_of("none", "requested", "required"),
        scope=Scope.PER_BROKER,
        doc="Whether clients have to show a certificate.",
    )
    ssl_principal_mapping_rules: str = key(
        "ssl.principal.mapping.rules",
        default="DEFAULT",
        doc="How a certificate's name becomes a principal's.",
    )
    ssl_allow_dn_changes: bool = key(
        "ssl.allow.dn.changes",
        default=False,
        doc="Whether a new key store may carry another distinguished name.",
    )
    ssl_allow_san_changes: bool = key(
        "ssl.allow.san.changes",
        default=False,
        doc="Whether a new key store may carry other alternative names.",
    )
    ssl_protocol: str = key(
        "ssl.protocol",
        default="TLSv1.3",
        scope=Scope.PER_BROKER,
        effect=False,
        doc="TLS version used to make the context.",
    )
    ssl_provider: str | None = key(
        "ssl.provider", default=None, scope=Scope.PER_BROKER, effect=False, doc="Java security provider for TLS."
    )
    ssl_enabled_protocols: List = key(
        "ssl.enabled.protocols",
        default=(
            "TLSv1.2",
            "TLSv1.3",
        ),
        scope=Scope.PER_BROKER,
        doc="TLS versions that are allowed.",
    )
    ssl_keystore_type: str = key(
        "ssl.keystore.type", default="JKS", scope=Scope.PER_BROKER, doc="Type of the key store."
    )
    ssl_keystore_location: str | None = key(
        "ssl.keystore.location", default=None, scope=Scope.PER_BROKER, doc="File of the key store."
    )
    ssl_keystore_password: Password | None = key(
        "ssl.keystore.password", default=None, scope=Scope.PER_BROKER, doc="Password of the key store."
    )
    ssl_key_password: Password | None = key(
        "ssl.key.password", default=None, scope=Scope.PER_BROKER, doc="Password of the private key."
    )
    ssl_keystore_key: Password | None = key(
        "ssl.keystore.key", default=None, scope=Scope.PER_BROKER, doc="Private key in PEM form."
    )
    ssl_keystore_certificate_chain: Password | None = key(
        "ssl.keystore.certificate.chain",
        default=None,
        scope=Scope.PER_BROKER,
        doc="Certificate chain in PEM form.",
    )
    ssl_truststore_type: str = key(
        "ssl.truststore.type", default="JKS", scope=Scope.PER_BROKER, doc="Type of the trust store."
    )
    ssl_truststore_location: str | None = key(
        "ssl.truststore.location", default=None, scope=Scope.PER_BROKER, doc="File of the trust store."
    )
    ssl_truststore_password: Password | None = key(
        "ssl.truststore.password",
        default=None,
        scope=Scope.PER_BROKER,
        doc="Password of the trust store.",
    )
    ssl_truststore_certificates: Password | None = key(
        "ssl.truststore.certificates",
        default=None,
        scope=Scope.PER_BROKER,
        doc="Trusted certificates in PEM form.",
    )
    ssl_keymanager_algorithm: str = key(
        "ssl.keymanager.algorithm", default="SunX509", scope=Scope.PER_BROKER, effect=False, doc="Java key manager."
    )
    ssl_trustmanager_algorithm: str = key(
        "ssl.trustmanager.algorithm", default="PKIX", scope=Scope.PER_BROKER, effect=False, doc="Java trust manager."
    )
    ssl_endpoint_identification_algorithm: str = key(
        "ssl.endpoint.identification.algorithm",
        default="https",
        scope=Scope.PER_BROKER,
        doc="Check of the peer's host name in its certificate; empty for none.",
    )
    ssl_secure_random_implementation: str | None = key(
        "ssl.secure.random.implementation",
        default=None,
        scope=Scope.PER_BROKER,
        effect=False,
        doc="Java random source.",
    )
    ssl_cipher_suites: List = key(
        "ssl.cipher.suites",
        default=(),
        scope=Scope.PER_BROKER,
        doc="Cipher suites that are allowed; empty: the library's choice.",
    )
    ssl_engine_factory_class: Class | None = key(
        "ssl.engine.factory.class",
        default=None,
        scope=Scope.PER_BROKER,
        doc="Java class that makes TLS engines: only Kafka's own is known here.",
    )
    sasl_mechanism_inter_broker_protocol: str = key(
        "sasl.mechanism.inter.broker.protocol",
        default="GSSAPI",
        scope=Scope.PER_BROKER,
        doc="SASL mechanism between brokers.",
    )
    sasl_enabled_mechanisms: List = key(
        "sasl.enabled.mechanisms",
        default=("GSSAPI",),
        scope=Scope.PER_BROKER,
        doc="SASL mechanisms that clients may use.",
    )
    sasl_server_callback_handler_class: Class | None = key(
        "sasl.server.callback.handler.class", default=None, doc="For OAUTHBEARER, Kafka's class for signed tokens."
    )
    sasl_kerberos_principal_to_local_rules: List = key(
        "sasl.kerberos.principal.to.local.rules",
        default=("DEFAULT",),
        scope=Scope.PER_BROKER,
        effect=False,
        doc="How a Kerberos name becomes a principal's.",
    )
    sasl_jaas_config: Password | None = key(
        "sasl.jaas.config",
        default=None,
        scope=Scope.PER_BROKER,
        doc="Users, or the own login, of a SASL mechanism in JAAS form; only as listener.name.<listener>.<mechanism>.…",
    )
    sasl_client_callback_handler_class: Class | None = key(
        "sasl.client.callback.handler.class", default=None, effect=False, doc="Java class for the client side of SASL."
    )
    sasl_login_class: Class | None = key("sasl.login.class", default=None, effect=False, doc="Java class for logins.")
    sasl_login_callback_handler_class: Class | None = key(
        "sasl.login.callback.handler.class", default=None, doc="For OAUTHBEARER, Kafka's class for a token endpoint."
    )
    sasl_kerberos_service_name: str | None = key(
        "sasl.kerberos.service.name",
        default=None,
        scope=Scope.PER_BROKER,
        effect=False,
        doc="Kerberos name of the service.",
    )
    sasl_kerberos_kinit_cmd: str = key(
        "sasl.kerberos.kinit.cmd", default="/usr/bin/kinit", scope=Scope.PER_BROKER, effect=False, doc="Path of kinit."
    )
    sasl_kerberos_ticket_renew_window_factor: Double = key(
        "sasl.kerberos.ticket.renew.window.factor",
        default=0.8,
        scope=Scope.PER_BROKER,
        effect=False,
        doc="Share of a ticket's life after which it is renewed.",
    )
    sasl_kerberos_ticket_renew_jitter: Double = key(
        "sasl.kerberos.ticket.renew.jitter",
        default=0.05,
        scope=Scope.PER_BROKER,
        effect=False,
        doc="Random part of the renewal time.",
    )
    sasl_kerberos_min_time_before_relogin: Long = key(
        "sasl.kerberos.min.time.before.relogin",
        default=60000,
        scope=Scope.PER_BROKER,
        effect=False,
        doc="Least time between two renewals, in milliseconds.",
    )
    sasl_login_refresh_window_factor: Double = key(
        "sasl.login.refresh.window.factor",
        default=0.8,
        scope=Scope.PER_BROKER,
        effect=False,
        doc="Share of a credential's life after which it is refreshed.",
    )
    sasl_login_refresh_window_jitter: Double = key(
        "sasl.login.refresh.window.jitter",
        default=0.05,
        scope=Scope.PER_BROKER,
        effect=False,
        doc="Random part of the refresh time.",
    )
    sasl_login_refresh_min_period_seconds: Short = key(
        "sasl.login.refresh.min.period.seconds",
        default=60,
        scope=Scope.PER_BROKER,
        effect=False,
        doc="Least time between two refreshes.",
    )
    sasl_login_refresh_buffer_seconds: Short = key(
        "sasl.login.refresh.buffer.seconds",
        default=300,
        scope=Scope.PER_BROKER,
        effect=False,
        doc="Time before expiry by which a credential should be refreshed.",
    )
    sasl_login_connect_timeout_ms: Int | None = key(
        "sasl.login.connect.timeout.ms", default=None, effect=False, doc="Connect time-out of the login provider."
    )
    sasl_login_read_timeout_ms: Int | None = key(
        "sasl.login.read.timeout.ms", default=None, effect=False, doc="Read time-out of the login provider."
    )
    sasl_login_retry_backoff_max_ms: Long = key(
        "sasl.login.retry.backoff.max.ms",
        default=10000,
        effect=False,
        doc="Longest pause between two tries of a login.",
    )
    sasl_login_retry_backoff_ms: Long = key(
        "sasl.login.retry.backoff.ms", default=100, effect=False, doc="First pause between two tries of a login."
    )
    sasl_oauthbearer_scope_claim_name: str = key(
        "sasl.oauthbearer.scope.claim.name", default="scope", doc="Claim that holds the scope."
    )
    sasl_oauthbearer_sub_claim_name: str = key(
        "sasl.oauthbearer.sub.claim.name", default="sub", doc="Claim that holds the subject."
    )
    sasl_oauthbearer_token_endpoint_url: str | None = key(
        "sasl.oauthbearer.token.endpoint.url", default=None, doc="Where tokens are issued."
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = key(
        "sasl.oauthbearer.jwks.endpoint.url", default=None, doc="Where the keys of the issuer are found."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: Long = key(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        default=3_600_000,
        doc="How often the issuer's keys are read anew.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: Long = key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        default=100,
        doc="First pause between two tries to read the issuer's keys.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: Long = key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        default=10000,
        doc="Longest pause between two tries to read the issuer's keys.",
    )
    sasl_oauthbearer_clock_skew_seconds: Int = key(
        "sasl.oauthbearer.clock.skew.seconds", default=30, doc="Difference of clocks that is tolerated."
    )
    sasl_oauthbearer_expected_audience: List | None = key(
        "sasl.oauthbearer.expected.audience", default=None, doc="Audiences a token may be meant for."
    )
    sasl_oauthbearer_expected_issuer: str | None = key(
        "sasl.oauthbearer.expected.issuer", default=None, doc="Issuer a token has to come from."
    )


@dataclass(init=False, repr=False, eq=False)
class TokenKeys:
    """Delegation tokens and the encoding of passwords."""

    delegation_token_master_key: Password | None = key(
        "delegation.token.master.key", default=None, doc="Deprecated name of delegation.token.secret.key."
    )
    delegation_token_secret_key: Password | None = key(
        "delegation.token.secret.key",
        default=None,
        doc="Key that signs delegation tokens, the same on all brokers; unset: tokens are off.",
    )
    delegation_token_max_lifetime_ms: Long = key(
        "delegation.token.max.lifetime.ms",
        default=604_800_000,
        check=at_least(1),
        doc="Longest life of a delegation token, renewals included.",
    )
    delegation_token_expiry_time_ms: Long = key(
        "delegation.token.expiry.time.ms",
        default=86_400_000,
        check=at_least(1),
        doc="Life of a delegation token between two renewals.",
    )
    delegation_token_expiry_check_interval_ms: Long = key(
        "delegation.token.expiry.check.interval.ms",
        default=3_600_000,
        check=at_least(1),
        doc="How often expired delegation tokens are removed.",
    )
    password_encoder_secret: Password | None = key(
        "password.encoder.secret",
        default=None,
        doc="Secret with which passwords in dynamic configurations are encrypted.",
    )
    password_encoder_old_secret: Password | None = key(
        "password.encoder.old.secret",
        default=None,
        doc="The secret used before, while it is being replaced.",
    )
    password_encoder_keyfactory_algorithm: str | None = key(
        "password.encoder.keyfactory.algorithm", default=None, doc="How the encryption key is derived."
    )
    password_encoder_cipher_algorithm: str = key(
        "password.encoder.cipher.algorithm",
        default="AES/CBC/PKCS5Padding",
        doc="Cipher for passwords in dynamic configurations.",
    )
    password_encoder_key_length: Int = key(
        "password.encoder.key.length",
        default=128,
        check=at_least(8),
        doc="Length of the encryption key in bits.",
    )
    password_encoder_iterations: Int = key(
        "password.encoder.iterations",
        default=4096,
        check=at_least(1024),
        doc="Iterations of the key derivation.",
    )
