"""What the page is told when it starts."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kbroker.client.client_config import AdminConfig, ConsumerConfig, ProducerConfig
from kbroker.client.errors import ConfigurationError
from kbroker.client.settings import read_settings, setting_name, settings_of

CLIENT_ID = "kbroker-page"
REQUEST_TIMEOUT_MS = 10_000
CHANGE_TIMEOUT_MS = 30_000
"""Of a change that the controller makes, as on the command line."""
SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class PageOptions:
    """`settings` are the clients', as the command line's -X; `token` is what a login asks for (None: no login)."""

    bootstrap: str
    host: str = "127.0.0.1"
    port: int = 8080
    allow_writes: bool = False
    token: str | None = field(default=None, repr=False)
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    certificate: str | None = None
    """Files (PEM) of a certificate and its key: then the page is served over TLS."""
    key: str | None = None
    registry: str | None = None
    """The address of a schema registry."""

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and self.token is None:
            raise ConfigurationError(f"{self.host} can be reached by others: the page needs a token there")
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            raise ConfigurationError(f"a token has at least {SHORTEST_TOKEN} characters")
        if (self.certificate is None) != (self.key is None):
            raise ConfigurationError("a certificate and its key go together")
        if self.registry is not None and "@" in self.registry:  # errors name the address, to whoever looks
            raise ConfigurationError("a schema registry's address has no user and no password: there is no login")
        if self.registry is not None and not self.registry.startswith(("http://", "https://")):
            raise ConfigurationError(f"{self.registry!r} is not the address of a schema registry: http://host:8081 is")
        for name in self.settings:
            if not any(knows(config, name) for config in (AdminConfig, ConsumerConfig, ProducerConfig)):
                read_settings(ConsumerConfig, {name: ""})  # says which name is nearest

    def for_client(self, config: type, **more: Any) -> dict[str, Any]:
        """Return the arguments of a client: of the settings those that this kind of client knows."""
        known = {name: value for name, value in self.settings.items() if knows(config, name)}
        own: dict[str, Any] = {"client_id": CLIENT_ID, "request_timeout_ms": REQUEST_TIMEOUT_MS}
        if config is AdminConfig:
            own["wait_for_brokers"] = False  # a reader hears at once that no broker answers
            if "request_timeout_ms" not in map(setting_name, known):
                own["default_api_timeout_ms"] = CHANGE_TIMEOUT_MS  # one that is chosen is for changes, too
        return {**own, **known, **more}


def knows(config: type, name: str) -> bool:
    """Whether a kind of client has a setting of this name."""
    return any(each.name == setting_name(name) for each in settings_of(config))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
