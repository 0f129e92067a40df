"""How a listener is spoken to: encrypted or not, with a login or without."""

from __future__ import annotations

from enum import StrEnum


class SecurityProtocol(StrEnum):
    """Kafka's names; each is equal to its text."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether bytes are encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether a client logs in before it asks for anything."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
