"""The clients for asyncio: the names and arguments of `kbroker`, methods to await."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbroker.client.admin import Admin
    from kbroker.client.consumer import Consumer
    from kbroker.client.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]


if not TYPE_CHECKING:  # or a type checker would take any name for a public one

    def __getattr__(name: str) -> Any:
        """Load a client on first use."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"kbroker.client.{name.lower()}"), name)
